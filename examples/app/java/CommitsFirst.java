// Wrong: an order is committed before its invoice is stored; a death between the two loses it.

import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.errors.RebalanceInProgressException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class CommitsFirst {
    public static void main(String[] arguments) {
        Map<String, String> given = System.getenv();
        Map<String, Object> servers = Map.of("bootstrap.servers", given.get("KAFKA_BOOTSTRAP_SERVERS"));
        Map<String, Object> group = Map.of("bootstrap.servers", given.get("KAFKA_BOOTSTRAP_SERVERS"),
            "group.id", given.get("KAFKA_GROUP_ID"), "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        var orders = new KafkaConsumer<>(group, new StringDeserializer(), new StringDeserializer());
        orders.subscribe(List.of(given.get("HIGHWATER_INPUT")));
        var invoices = new KafkaProducer<>(servers, new StringSerializer(), new StringSerializer());
        while (true) {
            var batch = orders.poll(Duration.ofMillis(100));
            if (batch.isEmpty())
                continue;
            try {
                orders.commitSync();
            } catch (CommitFailedException | RebalanceInProgressException gone) {
                System.err.println("another copy reads these orders again: " + gone.getMessage());
            }
            for (var order : batch)
                invoices.send(new ProducerRecord<>(given.get("HIGHWATER_OUTPUT"), order.key(), order.value()));
            invoices.flush();
        }
    }
}
