import java.lang.reflect.Method;
import java.util.*;
import java.util.regex.*;
import org.apache.kafka.common.config.ConfigDef;

/** Apache Kafka's properties of brokers and topics as lines: kind, name, type, default, range, update mode or synonyms.
 *
 * java -cp "$(scripts/apache-kafka fetch)/libs/*" tests/integration/oracle/KafkaConfigs.java > tests/unit/highwater/kafka/config/kafka_configs.tsv
 *
 * With the classes of Apache Kafka 4.2 it prints those of share groups, which go to the end as lines of the kind "share".
 */
public class KafkaConfigs {
    static String text(Object value) {
        if (value == null || value == ConfigDef.NO_DEFAULT_VALUE) return "null";
        return ConfigDef.convertToString(value, value instanceof List ? ConfigDef.Type.LIST
            : value instanceof Class ? ConfigDef.Type.CLASS : ConfigDef.Type.STRING);
    }

    static String range(ConfigDef.Validator validator) {
        String told = validator == null ? "" : validator.toString();
        return told.matches("(\\(case insensitive\\) )?\\[.*\\].*") ? told : "";
    }

    static void print(String kind, ConfigDef all, Map<String, String> last) {
        for (ConfigDef.ConfigKey key : new TreeMap<>(all.configKeys()).values())
            System.out.println(String.join("\t", kind, key.name, key.type.toString(), text(key.defaultValue),
                range(key.validator), last.getOrDefault(key.name, "")));
    }

    @SuppressWarnings("unchecked")
    public static void main(String[] arguments) throws Exception {
        Object brokers = Class.forName("kafka.server.DynamicBrokerConfig$").getField("MODULE$").get(null);
        Map<String, String> modes = (Map<String, String>) brokers.getClass().getMethod("dynamicConfigUpdateModes").invoke(brokers);
        print("broker", (ConfigDef) Class.forName("kafka.server.KafkaConfig").getMethod("configDef").invoke(null), modes);
        Map<String, List<?>> synonyms = (Map<String, List<?>>) Class.forName("org.apache.kafka.server.config.ServerTopicConfigSynonyms")
            .getField("ALL_TOPIC_CONFIG_SYNONYMS").get(null);
        Map<String, String> names = new HashMap<>();
        for (Map.Entry<String, List<?>> topic : synonyms.entrySet()) {
            List<String> of = new ArrayList<>();
            for (Object synonym : topic.getValue()) of.add((String) synonym.getClass().getMethod("name").invoke(synonym));
            names.put(topic.getKey(), String.join(",", of));
        }
        Class<?> logs = Class.forName("org.apache.kafka.storage.internals.log.LogConfig");
        print("topic", (ConfigDef) logs.getMethod("configDefCopy").invoke(null), names);
    }
}
