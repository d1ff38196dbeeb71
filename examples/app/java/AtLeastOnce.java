// Right, where an invoice may be written twice: it is stored before its order is committed.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class AtLeastOnce {
    public static void main(String[] arguments) throws Exception {
        Map<String, String> given = System.getenv();
        Map<String, Object> servers = Map.of("bootstrap.servers", given.get("KAFKA_BOOTSTRAP_SERVERS"));
        Map<String, Object> group = Map.of("bootstrap.servers", given.get("KAFKA_BOOTSTRAP_SERVERS"),
            "group.id", given.get("KAFKA_GROUP_ID"), "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        var orders = new KafkaConsumer<>(group, new StringDeserializer(), new StringDeserializer());
        orders.subscribe(List.of(given.get("HIGHWATER_INPUT")));
        var invoices = new KafkaProducer<>(servers, new StringSerializer(), new StringSerializer());
        while (true) {
            List<Future<?>> sent = new ArrayList<>();
            for (var order : orders.poll(Duration.ofMillis(100)))
                sent.add(invoices.send(new ProducerRecord<>(given.get("HIGHWATER_OUTPUT"), order.key(), order.value())));
            for (var one : sent)
                one.get(); // an invoice that is not stored ends the application before the commit
            if (!sent.isEmpty())
                try {
                    orders.commitSync();
                } catch (CommitFailedException | RebalanceInProgressException gone) {
                    System.err.println("another copy reads these orders again: " + gone.getMessage());
                }
        }
    }
}
