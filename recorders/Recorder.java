// Wraps a producer and a consumer of kafka-clients, and writes docs/history.md.  Copy this file.
//
//   var history = new Recorder("my-run/history.jsonl", "worker-1");
//   history.send(producer, new ProducerRecord<>("orders", "ada", "order 17"), -1, true);
//   consumer.subscribe(topics, history.assignments());
//   var records = history.poll(consumer, Duration.ofSeconds(1), "run", null);
//   history.fullRead(settings, "orders");                                  // when all are done
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.time.Instant;
import java.util.*;
import java.util.concurrent.Future;
import java.util.concurrent.ThreadLocalRandom;
import org.apache.kafka.clients.consumer.*;
import org.apache.kafka.clients.producer.*;
import org.apache.kafka.common.TopicPartition;

public final class Recorder {
    private final java.io.OutputStream file;
    private final String process;
    private long last;
    private long count = (long) ThreadLocalRandom.current().nextInt(1 << 20) << 32;

    public Recorder(String path, String process) throws java.io.IOException {
        file = Files.newOutputStream(Path.of(path), StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        this.process = process;
    }

    synchronized long op() {
        return ++count;
    }

    /** Names and values in turn; null values are left out. */
    synchronized void line(String f, String type, Object... fields) {
        Instant now = Instant.now();
        last = Math.max(now.getEpochSecond() * 1_000_000_000L + now.getNano(), last + 1);
        var text = new StringBuilder("{\"index\":" + last + ",\"t_ns\":" + last);
        var all = new ArrayList<Object>(List.of("process", process, "client", "kafka-clients", "f", f, "type", type));
        all.addAll(Arrays.asList(fields));
        for (int at = 0; at < all.size(); at += 2) {
            Object value = all.get(at + 1);
            if (value != null) {
                text.append(",\"").append(all.get(at)).append("\":").append(value instanceof String s ? quoted(s) : value);
            }
        }
        try {
            file.write(text.append("}\n").toString().getBytes(StandardCharsets.UTF_8));
        } catch (java.io.IOException error) {
            throw new java.io.UncheckedIOException(error);
        }
    }

    private static String quoted(String text) {
        var out = new StringBuilder("\"");
        for (char c : text.toCharArray()) {
            out.append(c == '"' || c == '\\' ? "\\" + c : c < ' ' ? String.format("\\u%04x", (int) c) : String.valueOf(c));
        }
        return out.append('"').toString();
    }

    /** acks: -1, 1 or 0, and idempotent: as in the producer's settings.  It tries again by itself: no error proves anything. */
    public Future<RecordMetadata> send(
            Producer<String, String> producer, ProducerRecord<String, String> r, int acks, boolean idempotent) {
        long op = op();
        line("send", "invoke", "op", op, "topic", r.topic(), "partition", r.partition(), "key", r.key(),
                "value", r.value(), "acks", acks, "idempotent", idempotent);
        return producer.send(r, (place, error) -> line("send", error == null ? "ok" : "info", "op", op,
                "topic", r.topic(), "key", r.key(), "value", r.value(), "acks", acks, "idempotent", idempotent,
                "partition", error == null ? (Object) place.partition() : null,
                "offset", error == null && place.hasOffset() ? (Object) place.offset() : null,
                "error", error == null ? null : error.getClass().getSimpleName()));
    }

    public ConsumerRebalanceListener assignments() {
        return new ConsumerRebalanceListener() {
            @Override
            public void onPartitionsRevoked(Collection<TopicPartition> places) {}

            @Override
            public void onPartitionsAssigned(Collection<TopicPartition> places) {
                places.forEach(p -> line("assign", "ok", "op", op(), "topic", p.topic(), "partition", p.partition()));
            }
        };
    }

    /** isolation: "read_committed" where the consumer's is, else null. */
    public ConsumerRecords<String, String> poll(
            Consumer<String, String> consumer, Duration timeout, String phase, String isolation) {
        var records = consumer.poll(timeout);
        long op = op();
        for (var r : records) {
            line("poll", "ok", "op", op, "poll_id", op, "n", records.count(), "phase", phase, "isolation", isolation,
                    "topic", r.topic(), "partition", r.partition(), "offset", r.offset(), "key", r.key(),
                    "value", r.value());
        }
        return records;
    }

    /** Reads a topic from start to end, aborted records too; settings: bootstrap.servers, deserializers, security. */
    public void fullRead(Map<String, Object> settings, String topic) {
        var own = new HashMap<>(settings);
        own.remove("group.id");
        own.put("isolation.level", "read_uncommitted");
        own.put("enable.auto.commit", false);
        try (var consumer = new KafkaConsumer<String, String>(own)) {
            for (var info : consumer.partitionsFor(topic)) {
                var place = new TopicPartition(topic, info.partition());
                long op = op();
                line("full_read", "invoke", "op", op, "topic", topic, "partition", place.partition(), "phase", "final");
                consumer.assign(List.of(place));
                long first = consumer.beginningOffsets(List.of(place)).get(place);
                long end = consumer.endOffsets(List.of(place)).get(place);
                consumer.seek(place, first);
                line("assign", "ok", "op", op(), "topic", topic, "partition", place.partition(), "offset", first,
                        "phase", "final");
                for (long idle = System.nanoTime(), at = first; at < end; ) {
                    poll(consumer, Duration.ofMillis(500), "final", null);
                    idle = consumer.position(place) > at ? System.nanoTime() : idle;
                    at = consumer.position(place);
                    if (System.nanoTime() - idle > 60_000_000_000L) {
                        throw new IllegalStateException(place + " gave nothing for 60 s, before offset " + end);
                    }
                }
                line("full_read", "ok", "op", op, "topic", topic, "partition", place.partition(), "phase", "final",
                        "offset", end);
            }
        }
    }
}
