// A Kafka Streams application under `highwater chaos --app`: it writes an invoice for each order.
//
// usage: java -cp KAFKA_STREAMS_JARS:CLASSES Invoices GUARANTEE STATE_FOLDER
// GUARANTEE is a value of processing.guarantee.  Topics, brokers and the application's id come from the environment
// (docs/app.md).  The orders go through a topic of the application's own (repartition), so that there are two tasks to
// each partition, each with offsets and transactions of its own, and through a state store with its changelog.

import java.time.Duration;
import java.util.Map;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.api.FixedKeyProcessor;
import org.apache.kafka.streams.processor.api.FixedKeyProcessorContext;
import org.apache.kafka.streams.processor.api.FixedKeyRecord;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

public class Invoices {
    /** Numbers a customer's invoices: {"order_id": "...", "number": 3}. */
    static class Numbering implements FixedKeyProcessor<String, String, String> {
        private FixedKeyProcessorContext<String, String> context;
        private KeyValueStore<String, Long> numbers;

        @Override
        public void init(FixedKeyProcessorContext<String, String> given) {
            context = given;
            numbers = given.getStateStore("numbers");
        }

        @Override
        public void process(FixedKeyRecord<String, String> order) {
            Long last = numbers.get(order.key());
            long number = last == null ? 1 : last + 1;
            numbers.put(order.key(), number);
            String value = order.value();
            String invoice = value.substring(0, value.lastIndexOf('}')) + ", \"number\": " + number + "}";
            context.forward(order.withValue(invoice));
        }
    }

    public static void main(String[] arguments) throws Exception {
        Map<String, String> environment = System.getenv();
        Properties settings = new Properties();
        settings.put("bootstrap.servers", environment.get("KAFKA_BOOTSTRAP_SERVERS"));
        settings.put("application.id", environment.get("KAFKA_GROUP_ID"));
        settings.put("processing.guarantee", arguments[0]);
        settings.put("state.dir", arguments[1] + "/" + environment.get("HIGHWATER_COPY"));
        settings.put("replication.factor", "3");
        settings.put("auto.offset.reset", "earliest");
        settings.put("session.timeout.ms", "6000");
        settings.put("heartbeat.interval.ms", "500");
        settings.put("producer.delivery.timeout.ms", "60000");
        if (!arguments[0].equals("at_least_once")) {
            settings.put("producer.transaction.timeout.ms", "5000");
        } // at least once, it commits every 30 s: what a kill repeats

        StreamsBuilder builder = new StreamsBuilder();
        builder.addStateStore(Stores.keyValueStoreBuilder(
            Stores.inMemoryKeyValueStore("numbers"), Serdes.String(), Serdes.Long()));
        builder.stream(environment.get("HIGHWATER_INPUT"), Consumed.with(Serdes.String(), Serdes.String()))
            .repartition(Repartitioned.with(Serdes.String(), Serdes.String()).withName("orders").withNumberOfPartitions(3))
            .processValues(Numbering::new, "numbers")
            .to(environment.get("HIGHWATER_OUTPUT"), Produced.with(Serdes.String(), Serdes.String()));

        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.setUncaughtExceptionHandler(error -> {
            System.out.println("error " + error);
            return StreamThreadExceptionResponse.REPLACE_THREAD;
        });
        streams.setStateListener((now, before) -> System.out.println("state " + now));
        Runtime.getRuntime().addShutdownHook(new Thread(() -> streams.close(Duration.ofSeconds(3))));
        streams.start();
    }
}
