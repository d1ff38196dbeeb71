// What applications use Kafka Streams for, each with a result that is known: see java_suites.py.
//
// usage: java -cp KAFKA_STREAMS_JARS:CLASSES StreamsCases BOOTSTRAP STATE_FOLDER
// It prints a line for each case: "passed NAME" or "failed NAME: what was seen".

import java.time.Duration;
import java.time.Instant;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.TreeMap;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StoreQueryParameters;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.StreamJoined;
import org.apache.kafka.streams.kstream.Suppressed;
import org.apache.kafka.streams.kstream.TimeWindows;
import org.apache.kafka.streams.state.QueryableStoreTypes;

public class StreamsCases {
    static final List<String> TOPICS = Arrays.asList(
        "lines", "counts", "orders", "payments", "paid", "unpaid", "people", "cities", "visits", "where", "stays", "hours");
    static final long START = Instant.parse("2026-01-01T00:00:00Z").toEpochMilli();
    static String bootstrap;

    static StreamsBuilder topology() {
        StreamsBuilder builder = new StreamsBuilder();
        builder.<String, String>stream("lines")
            .flatMapValues(line -> Arrays.asList(line.split(" ")))
            .groupBy((key, word) -> word)
            .count(Materialized.as("counted"))
            .toStream().mapValues(count -> Long.toString(count)).to("counts");

        KStream<String, String> orders = builder.stream("orders");
        KStream<String, String> payments = builder.stream("payments");
        JoinWindows minute = JoinWindows.ofTimeDifferenceWithNoGrace(Duration.ofMinutes(1));
        StreamJoined<String, String, String> strings =
            StreamJoined.with(Serdes.String(), Serdes.String(), Serdes.String());
        orders.join(payments, (order, payment) -> order + "+" + payment, minute, strings).to("paid");
        orders.leftJoin(payments, (order, payment) -> order + "+" + payment, minute, strings)
            .filter((key, both) -> both.endsWith("+null")).to("unpaid");

        builder.<String, String>stream("visits")
            .join(builder.<String, String>table("people"), (visit, person) -> person + " " + visit)
            .join(builder.<String, String>globalTable("cities"), (key, value) -> value.split(" ")[1],
                (value, city) -> value.split(" ")[0] + " in " + city)
            .to("where");

        builder.<String, String>stream("stays")
            .groupBy((key, place) -> place, Grouped.with(Serdes.String(), Serdes.String()))
            .windowedBy(TimeWindows.ofSizeWithNoGrace(Duration.ofHours(1)))
            .count()
            .suppress(Suppressed.untilWindowCloses(Suppressed.BufferConfig.unbounded()))
            .toStream((window, count) -> window.key() + "@" + (window.window().start() - START) / 3_600_000)
            .mapValues(count -> Long.toString(count)).to("hours");
        return builder;
    }

    static KafkaStreams started(String folder) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("application.id", "cases");
        settings.put("state.dir", folder);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("replication.factor", "3");
        settings.put("num.stream.threads", "2");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0"); // a record for each change
        settings.put("max.task.idle.ms", "2000"); // so that what is joined is read in the order of time
        settings.put("auto.offset.reset", "earliest");
        settings.put("default.key.serde", Serdes.StringSerde.class);
        settings.put("default.value.serde", Serdes.StringSerde.class);
        KafkaStreams streams = new KafkaStreams(topology().build(), settings);
        streams.start();
        for (int n = 0; n < 600 && streams.state() != KafkaStreams.State.RUNNING; n++) {
            Thread.sleep(100);
        }
        return streams;
    }

    static KafkaProducer<String, String> producer() {
        return new KafkaProducer<>(Map.of("bootstrap.servers", bootstrap), new StringSerializer(), new StringSerializer());
    }

    static void send(KafkaProducer<String, String> to, String topic, String key, int minute, String value) {
        to.send(new ProducerRecord<>(topic, null, START + minute * 60_000L, key, value));
    }

    /** The last value of each key that read_committed shows, once as many records have come, or after a minute. */
    static Map<String, String> committed(String topic, int records) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "group.id", "see-" + topic + records,
            "auto.offset.reset", "earliest", "isolation.level", "read_committed");
        Map<String, String> seen = new TreeMap<>();
        int count = 0;
        try (KafkaConsumer<String, String> consumer =
                new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(topic));
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(60);
            long quiet = end;
            while (System.nanoTime() < Math.min(end, quiet)) {
                for (ConsumerRecord<String, String> record : consumer.poll(Duration.ofMillis(200))) {
                    seen.put(record.key(), record.value());
                    count++;
                }
                if (count >= records && quiet == end) {
                    quiet = System.nanoTime() + TimeUnit.SECONDS.toNanos(1); // nothing more is to come
                }
            }
        }
        seen.put("records", Integer.toString(count));
        return seen;
    }

    static void judge(String name, Object expected, Object seen) {
        boolean same = expected.equals(seen);
        System.out.println((same ? "passed " : "failed ") + name + (same ? "" : ": " + seen + ", not " + expected));
    }

    public static void main(String[] arguments) throws Exception {
        bootstrap = arguments[0];
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            admin.createTopics(TOPICS.stream().map(name -> new NewTopic(name, 3, (short) 3)).toList()).all().get();
        }
        try (KafkaProducer<String, String> to = producer()) {
            for (int n = 0; n < 500; n++) {
                send(to, "lines", null, 0, "a b" + n % 2 + " a");
            }
            for (String[] row : new String[][] {{"1", "Ada"}, {"2", "Bob"}, {"1", "Ann"}}) {
                send(to, "people", row[0], 0, row[1]);
            }
            send(to, "cities", "r", 0, "Rome");
            send(to, "cities", "o", 0, "Oslo");
            send(to, "orders", "x", 0, "book");
            send(to, "payments", "x", 1, "5");
            send(to, "orders", "y", 0, "pen");
            send(to, "payments", "y", 2, "7");
            for (int partition = 0; partition < 3; partition++) { // time goes on in every partition
                for (String topic : List.of("orders", "payments")) {
                    long at = START + (topic.equals("orders") ? 3_600_000L : 7_200_000L);
                    to.send(new ProducerRecord<>(topic, partition, at, "late" + partition, topic));
                }
            }
            send(to, "visits", "1", 1, "r");
            send(to, "visits", "2", 2, "o");
            send(to, "visits", "nobody", 3, "r");
            for (int[] stay : new int[][] {{0, 0}, {0, 30}, {1, 61}, {0, 62}}) {
                send(to, "stays", "k", stay[1], stay[0] == 0 ? "r" : "o");
            }
            for (int n = 0; n < 60; n++) { // closes the windows of the first two hours
                send(to, "stays", "k", 200, "place" + n);
            }
            to.flush();
            KafkaStreams streams = started(arguments[1] + "/1");
            judge("starts", KafkaStreams.State.RUNNING, streams.state());
            judge("counts words exactly once", Map.of("a", "1000", "b0", "250", "b1", "250", "records", "1500"),
                committed("counts", 1500));
            judge("joins streams within a window, and none beyond", Map.of("x", "book+5", "records", "1"),
                committed("paid", 1));
            judge("left join tells what had no partner", "pen+null", committed("unpaid", 1).get("y"));
            judge("joins a table and a global table", Map.of("1", "Ann in Rome", "2", "Bob in Oslo", "records", "2"),
                committed("where", 2));
            judge("counts in windows that close", Map.of("r@0", "2", "r@1", "1", "o@1", "1", "records", "3"),
                committed("hours", 3));
            Thread.sleep(500);
            judge("answers from its store", 1000L, streams.store(StoreQueryParameters.fromNameAndType(
                "counted", QueryableStoreTypes.<String, Long>keyValueStore())).get("a"));
            judge("closes", true, streams.close(Duration.ofSeconds(30)));

            streams = started(arguments[1] + "/2"); // without the state of the first
            send(to, "lines", null, 0, "a");
            to.flush();
            Thread.sleep(1000);
            judge("goes on from its changelog", "1001", committed("counts", 1501).get("a"));
            judge("closes again", true, streams.close(Duration.ofSeconds(30)));
        }
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            Collection<String> names = admin.listTopics().names().get();
            judge("makes its changelogs", true, names.contains("cases-counted-changelog")
                && names.stream().anyMatch(name -> name.startsWith("cases-") && name.endsWith("-repartition")));
        }
    }
}
