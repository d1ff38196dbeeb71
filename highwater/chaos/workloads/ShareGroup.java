// Members of a share group (KIP-932), for `highwater chaos --workload share`.
//
// Settings: `workload.` seed, name, group, topic, members, delivery.limit, lock.ms, and drain, where this process says when the
// group has taken everything.  A member accepts most records, releases and rejects some, sometimes keeps them for longer than
// their locks last, and sometimes leaves without a word about those that it has; where it does not drain, the whole process dies
// after a while.  "stop" ends the deaths, and the process that drains, once the group has taken what the topic held then.

import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.ListShareGroupOffsetsSpec;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareGroup extends Workload {
    static final int DIES_AFTER_MS = 2_000, AND_UP_TO_MS = 4_000, DIED = 137;

    /** Makes the group begin at the start of its topics: without this property it begins at their end. */
    static void beginAtTheStart(Admin admin) {
        ConfigResource group = new ConfigResource(ConfigResource.Type.GROUP, given("group"));
        var set = new AlterConfigOp(new ConfigEntry("share.auto.offset.reset", "earliest"), AlterConfigOp.OpType.SET);
        patiently(() -> admin.incrementalAlterConfigs(Map.of(group, List.of(set))).all().get());
    }

    interface Question<T> {
        T ask() throws Exception;
    }

    static <T> T patiently(Question<T> question) {
        while (true) {
            try {
                return question.ask();
            } catch (Exception error) {
                System.err.println(error); // it is in the log, where this lasts
                pause(200);
            }
        }
    }

    /**
     * Waits until nothing is left of what the topic holds now, and prints it; where that does not come in time, ends the process and says what
     * is left.  The start offset says less: it may stay behind.
     */
    static void drain(Admin admin) {
        String topic = given("topic"), group = given("group");
        long asked = System.nanoTime();
        int partitions = patiently(() -> admin.describeTopics(List.of(topic)).allTopicNames().get()).get(topic).partitions().size();
        List<TopicPartition> places = IntStream.range(0, partitions).mapToObj(p -> new TopicPartition(topic, p)).toList();
        var specification = Map.of(group, new ListShareGroupOffsetsSpec().topicPartitions(places));
        while (true) {
            var found = patiently(() -> admin.listShareGroupOffsets(specification).partitionsToOffsetInfo(group).get());
            if (places.stream().allMatch(p -> found.get(p) != null && found.get(p).lag().orElse(-1L) == 0)) {
                lineAt(asked, given("name"), "drained", "ok", "group_id", group, "topic", topic);
                return;
            }
            if (System.nanoTime() - asked > Long.parseLong(given("drain.s")) * 1_000_000_000L) {
                String left = places.stream().filter(p -> found.get(p) == null || found.get(p).lag().orElse(-1L) != 0)
                    .map(p -> p + ": " + found.get(p)).collect(Collectors.joining("; "));
                System.err.println("the group has not taken everything after " + given("drain.s") + " s: " + left);
                Runtime.getRuntime().halt(1);
            }
            pause(200);
        }
    }

    /** Joins the group again and again, each time under another name. */
    static void member(int place) {
        for (int number = 0;; number++) {
            String process = given("name") + "-" + place + "-" + number;
            Properties made = common(process);
            made.put("group.id", given("group"));
            made.put("share.acknowledgement.mode", "explicit");
            made.put("max.poll.records", "50");
            made.put("fetch.max.wait.ms", "200");
            Random chance = chance(process);
            KafkaShareConsumer<String, String> consumer =
                new KafkaShareConsumer<>(made, new StringDeserializer(), new StringDeserializer());
            consumer.subscribe(List.of(given("topic")));
            try {
                int polls = 40 + chance.nextInt(160);
                while (polls-- > 0 && take(consumer, process, chance)) {
                    // until its time is over
                }
            } catch (KafkaException | IllegalStateException error) {
                line(process, "acquire", "info", "group_id", given("group"), "error", nameOf(error));
            }
            try {
                consumer.close(Duration.ofSeconds(5)); // releases what it has
            } catch (KafkaException error) {
                line(process, "acquire", "info", "group_id", given("group"), "error", nameOf(error));
            }
        }
    }

    /** One poll, and what becomes of its records; returns false where the member leaves with them. */
    static boolean take(KafkaShareConsumer<String, String> consumer, String process, Random chance) {
        String group = given("group");
        long poll = operations.incrementAndGet();
        line(process, "acquire", "invoke", "poll_id", poll, "op", poll, "group_id", group,
            "delivery_limit", Integer.parseInt(given("delivery.limit")));
        ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(500));
        long nanos = System.nanoTime();
        for (ConsumerRecord<String, String> r : found) {
            lineAt(nanos, process, "acquire", "ok", "poll_id", poll, "op", poll, "n", found.count(), "group_id", group, "topic",
                r.topic(), "partition", r.partition(), "offset", r.offset(), "key", r.key(), "value", r.value(),
                "delivery_count", r.deliveryCount().orElse((short) 0).intValue());
        }
        if (found.isEmpty()) {
            return true;
        }
        if (chance.nextDouble() < 0.01) {
            return false;
        }
        if (chance.nextDouble() < 0.01) {
            pause(Long.parseLong(given("lock.ms")) * 3 / 2);
        }
        List<Object[]> told = new ArrayList<>();
        long began = System.nanoTime();
        for (ConsumerRecord<String, String> r : found) {
            double choice = chance.nextDouble();
            AcknowledgeType type = choice < 0.08 ? AcknowledgeType.RELEASE : choice < 0.1 ? AcknowledgeType.REJECT
                : AcknowledgeType.ACCEPT;
            consumer.acknowledge(r, type);
            Object[] fields = {"op", operations.incrementAndGet(), "group_id", group, "topic", r.topic(), "partition",
                r.partition(), "offset", r.offset(), "which", type.toString(), "delivery_count",
                r.deliveryCount().orElse((short) 0).intValue()};
            lineAt(began, process, "acknowledge", "invoke", fields);
            told.add(fields);
        }
        end(process, told, consumer);
        return true;
    }

    /** Sends the acknowledgements, and prints how each of them ended. */
    static void end(String process, List<Object[]> told, KafkaShareConsumer<String, String> consumer) {
        Map<TopicPartition, Optional<KafkaException>> answers;
        try {
            answers = consumer.commitSync(Duration.ofMillis(2 * CALL_MS)).entrySet().stream()
                .collect(Collectors.toMap(e -> e.getKey().topicPartition(), Map.Entry::getValue));
        } catch (KafkaException error) {
            answers = Map.of();
        }
        long ended = System.nanoTime();
        for (Object[] fields : told) {
            Optional<KafkaException> answer = answers.get(new TopicPartition((String) fields[5], (Integer) fields[7]));
            List<Object> all = new ArrayList<>(List.of(fields));
            if (answer == null || answer.isPresent()) {
                all.add("error");
                all.add(answer == null ? "_NO_ANSWER" : nameOf(answer.get()));
            }
            lineAt(ended, process, "acknowledge", answer != null && answer.isEmpty() ? "ok" : "info", all.toArray());
        }
    }

    static void die() {
        pause(DIES_AFTER_MS + chance(given("name")).nextInt(AND_UP_TO_MS));
        if (!stopping) {
            synchronized (System.out) { // no line is cut
                Runtime.getRuntime().halt(DIED);
            }
        }
    }

    public static void main(String[] arguments) throws Exception {
        begin(arguments[0]);
        try (Admin admin = Admin.create(common(given("name") + "-admin"))) {
            beginAtTheStart(admin);
            for (int number = 0; number < Integer.parseInt(given("members")); number++) {
                int place = number;
                Thread member = new Thread(() -> member(place));
                member.setDaemon(true);
                member.start();
            }
            if (!Boolean.parseBoolean(given("drain"))) {
                die();
                Thread.currentThread().join();
            }
            while (!stopping) {
                pause(50);
            }
            drain(admin);
        }
        synchronized (System.out) {
            Runtime.getRuntime().halt(0);
        }
    }
}
