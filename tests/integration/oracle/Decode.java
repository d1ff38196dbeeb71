import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.ByteBuffer;
import java.util.HexFormat;
import java.util.stream.Collectors;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.requests.AbstractResponse;

/** Reads lines of API key, version and an answer's body in hex; writes the errors that Java's client finds in it. */
public class Decode {
    public static void main(String[] args) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split(" ");
            ApiKeys key = ApiKeys.forId(Integer.parseInt(words[0]));
            short version = Short.parseShort(words[1]);
            if (!key.isVersionSupported(version)) {
                System.out.println("unsupported");
                continue;
            }
            ByteBuffer body = ByteBuffer.wrap(HexFormat.of().parseHex(words[2]));
            AbstractResponse answer =
                AbstractResponse.parseResponse(key, new ByteBufferAccessor(body), version);
            String found = answer.errorCounts().keySet().stream()
                .filter(error -> error != Errors.NONE).map(Errors::name).sorted().collect(Collectors.joining(","));
            System.out.println((body.hasRemaining() ? "bytes left " : "") + found);
        }
    }
}
