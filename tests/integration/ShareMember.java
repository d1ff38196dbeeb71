// A member of a share group, for share_member.py: it says what it gets, and what has become of its acknowledgements.
//
// usage: java -cp JARS ShareMember.java BOOTSTRAP GROUP TOPIC NAME MODE
//
// Each event is a line of JSON on standard output.  A line on standard input changes the mode: accept; release-first, which
// releases a record at its first delivery and accepts it later; reject; hold, which keeps what it has and gets nothing more;
// renew, which renews the locks of what it has, again and again; stop.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Properties;
import java.util.Set;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.consumer.AcknowledgeType;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaShareConsumer;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicIdPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.serialization.StringDeserializer;

public class ShareMember {
    static volatile String mode;

    static void say(String event, ConsumerRecord<String, String> r, String more) {
        System.out.printf("{\"event\": \"%s\", \"partition\": %d, \"offset\": %d, \"count\": %d, \"value\": \"%s\"%s}%n",
            event, r.partition(), r.offset(), r.deliveryCount().orElse((short) 0), r.value(), more);
    }

    static AcknowledgeType typeOf(ConsumerRecord<String, String> r) {
        if (mode.equals("renew"))
            return AcknowledgeType.RENEW;
        if (mode.equals("reject"))
            return AcknowledgeType.REJECT;
        boolean first = r.deliveryCount().orElse((short) 0) == 1;
        return mode.equals("release-first") && first ? AcknowledgeType.RELEASE : AcknowledgeType.ACCEPT;
    }

    static void readModes() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String line = in.readLine(); line != null; line = in.readLine())
                mode = line.trim();
        } catch (java.io.IOException e) {
            System.err.println(e);
        }
        mode = "stop";
    }

    static void beginAtTheStart(String bootstrap, String group) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
            ConfigEntry earliest = new ConfigEntry("share.auto.offset.reset", "earliest");
            admin.incrementalAlterConfigs(Map.of(new ConfigResource(ConfigResource.Type.GROUP, group),
                Set.of(new AlterConfigOp(earliest, AlterConfigOp.OpType.SET)))).all().get();
        }
    }

    public static void main(String[] args) throws Exception {
        mode = args[4];
        Thread modes = new Thread(ShareMember::readModes);
        modes.setDaemon(true);
        modes.start();
        beginAtTheStart(args[0], args[1]);
        Properties settings = new Properties();
        settings.put("bootstrap.servers", args[0]);
        settings.put("group.id", args[1]);
        settings.put("client.id", args[3]);
        settings.put("share.acknowledgement.mode", "explicit");
        settings.put("reconnect.backoff.max.ms", "500");
        try (KafkaShareConsumer<String, String> consumer =
                 new KafkaShareConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.subscribe(List.of(args[2]));
            System.out.println("{\"event\": \"ready\"}");
            List<ConsumerRecord<String, String>> held = new ArrayList<>();
            while (!mode.equals("stop")) {
                if (held.isEmpty()) {
                    for (ConsumerRecord<String, String> r : consumer.poll(Duration.ofMillis(200))) {
                        say("got", r, "");
                        held.add(r);
                    }
                }
                if (mode.equals("hold") || mode.equals("stop")) {
                    Thread.sleep(50);
                    continue;
                }
                acknowledge(consumer, held);
                held.clear(); // what is renewed comes again by the next poll
                if (mode.equals("renew"))
                    Thread.sleep(500);
            }
        }
        System.out.println("{\"event\": \"ended\"}");
    }

    static void acknowledge(KafkaShareConsumer<String, String> consumer, List<ConsumerRecord<String, String>> held) {
        if (held.isEmpty())
            return;
        List<AcknowledgeType> types = new ArrayList<>();
        for (ConsumerRecord<String, String> r : held) {
            types.add(typeOf(r));
            try {
                consumer.acknowledge(r, types.get(types.size() - 1));
            } catch (IllegalStateException e) {
                say("failed", r, ", \"type\": \"none\", \"error\": \"not held\"");
            }
        }
        Map<TopicIdPartition, Optional<KafkaException>> results = consumer.commitSync(Duration.ofSeconds(30));
        for (int n = 0; n < held.size(); n++) {
            ConsumerRecord<String, String> r = held.get(n);
            for (Map.Entry<TopicIdPartition, Optional<KafkaException>> result : results.entrySet()) {
                if (result.getKey().partition() != r.partition())
                    continue;
                if (result.getValue().isPresent())
                    say("failed", r, ", \"type\": \"" + types.get(n) + "\", \"error\": \""
                        + result.getValue().get().getClass().getSimpleName() + "\"");
                else
                    say(types.get(n).toString(), r, "");
            }
        }
    }
}
