import static org.junit.jupiter.api.Assertions.assertEquals;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.util.Collections;
import java.util.List;
import java.util.ArrayList;
import java.util.Map;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.StringSerializer;
import org.junit.jupiter.api.Test;

class OrdersTest {
    static JsonNode control(String method, String path, Map<String, ?> body) throws Exception {
        var url = System.getenv().getOrDefault("CONTROL", "http://127.0.0.1:9990") + "/v1" + path;
        var json = HttpRequest.BodyPublishers.ofString(new ObjectMapper().writeValueAsString(body));
        var request = HttpRequest.newBuilder(URI.create(url)).version(HttpClient.Version.HTTP_1_1).method(method, json)
            .header("Authorization", "Bearer " + System.getenv().getOrDefault("HIGHWATER_CONTROL_TOKEN", "")).build();
        var answer = HttpClient.newHttpClient().send(request, BodyHandlers.ofString());
        assertEquals(200, answer.statusCode(), answer.body());
        return new ObjectMapper().readTree(answer.body());
    }

    @Test
    void noAcknowledgedOrderIsLost() throws Exception {
        control("POST", "/topics", Map.of("name", "orders", "partitions", 1));
        var history = "/history/" + control("POST", "/history", Map.of()).get("history");
        var brokers = control("GET", "/status", Map.of()).get("bootstrap").asText();
        List<String> acknowledged = Collections.synchronizedList(new ArrayList<>());
        Map<String, Object> settings = Map.of("bootstrap.servers", brokers, "transactional.id", "shop");
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            producer.initTransactions();
            producer.beginTransaction();
            var denied = control("POST", "/faults", // the first request gets this error
                Map.of("name", "answer", "api", "Produce", "error", "NOT_LEADER_OR_FOLLOWER"));
            JsonNode killed = null;
            for (int number = 0; number < 200; number++) {
                var value = "order " + number;
                producer.send(new ProducerRecord<>("orders", value), (to, error) -> { if (error == null) acknowledged.add(value); });
                if (number == 100) // the leader dies with records on their way
                    killed = control("POST", "/faults", Map.of("name", "kill", "target", "leader of orders-0"));
            }
            producer.flush();
            control("DELETE", "/faults/" + killed.get("id"), Map.of()); // starts it again
            control("DELETE", "/faults/" + denied.get("id"), Map.of()); // fails where no request has met it
            control("POST", "/faults", Map.of("name", "hold", "api", "EndTxn", "for", 1));
            producer.commitTransaction(); // takes a second
        }
        control("POST", history + "/claims", Map.of("topic", "orders", "does", "acknowledged", "values", acknowledged));
        var verdict = control("POST", history + "/check", Map.of("topic", "orders"));
        assertEquals("", verdict.get("story").asText());
        assertEquals(200, verdict.get("read").asInt());
        System.out.println("java: " + verdict.get("read") + " read of " + verdict.get("acknowledged") + " acknowledged, no violation");
    }
}
