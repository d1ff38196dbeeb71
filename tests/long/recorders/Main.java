// usage: java Main SERVER TOPIC HISTORY work|lose|read
import java.time.Duration;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.*;

public final class Main {
    public static void main(String[] args) throws Exception {
        String topic = args[1];
        var history = new Recorder(args[2], "java-" + args[3]);
        Map<String, Object> reading = Map.of("bootstrap.servers", args[0], "group.id", topic,
                "auto.offset.reset", "earliest", "key.deserializer", StringDeserializer.class,
                "value.deserializer", StringDeserializer.class);
        if (args[3].equals("read")) {
            history.fullRead(reading, topic);
            return;
        }
        Map<String, Object> writing = Map.of("bootstrap.servers", args[0], "enable.idempotence", true,
                "key.serializer", StringSerializer.class, "value.serializer", StringSerializer.class);
        try (var producer = new KafkaProducer<String, String>(writing)) {
            if (args[3].equals("lose")) {
                history.send(producer, new ProducerRecord<>(topic, "gone"), -1, true).get();
                return;
            }
            for (int n = 0; n < 60; n++) {
                history.send(producer, new ProducerRecord<>(topic, "key " + n % 7, "value " + n), -1, true);
            }
        }
        try (var consumer = new KafkaConsumer<String, String>(reading)) {
            consumer.subscribe(List.of(topic), history.assignments());
            for (int count = 0; count < 60; ) {
                count += history.poll(consumer, Duration.ofSeconds(1), "run", null).count();
            }
        }
    }
}
