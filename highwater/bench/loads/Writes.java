// One writer for `highwater bench failover`: the Java client with its defaults, run from this source.
//
// usage: java -cp KAFKA_JARS Writes.java SETTINGS TOPIC
// Sends a small record to partition 0 each 5 ms, as long as not too many wait, and prints a line for each that is
// acknowledged ("ack NANOSECONDS") or failed ("error TEXT").  Ends with its standard input.

import java.io.FileReader;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicInteger;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;

public class Writes {
    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        try (FileReader file = new FileReader(arguments[0])) {
            settings.load(file);
        }
        settings.put("key.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        settings.put("value.serializer", "org.apache.kafka.common.serialization.StringSerializer");
        Thread end = new Thread(() -> {
            try {
                while (System.in.read() >= 0) {
                }
            } catch (java.io.IOException e) {
                // the same as the end of input: no one listens any more
            }
            Runtime.getRuntime().halt(0);
        });
        end.setDaemon(true);
        end.start();
        AtomicInteger waiting = new AtomicInteger();
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings);
        for (long number = 0; ; number++) {
            if (waiting.get() < 200) {
                waiting.incrementAndGet();
                producer.send(new ProducerRecord<>(arguments[1], 0, null, "record " + number), (place, error) -> {
                    waiting.decrementAndGet();
                    say(error == null ? "ack " + System.nanoTime() : "error " + error);
                });
            }
            Thread.sleep(5);
        }
    }
}
