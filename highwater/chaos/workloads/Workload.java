// What the chaos workloads of the Java client share: settings, lines of the history, orders.
//
// usage: java -cp JARS:CLASSES PROGRAM SETTINGS
//
// SETTINGS: the client's properties, and those of the program, which begin with `workload.`.  Each event is a line of JSON on
// standard output: a line of the history (docs/history.md) without index.  The line "stop" on standard input says that the run
// is over for the program; the end of the input ends it at once.

import java.io.BufferedReader;
import java.io.FileReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.util.Properties;
import java.util.Random;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.common.protocol.Errors;

abstract class Workload {
    static final int CALL_MS = 5_000;
    static final AtomicLong operations = new AtomicLong();
    static final Properties settings = new Properties();
    static volatile boolean stopping;

    /** Reads the settings, and listens for orders from now on. */
    static void begin(String file) throws IOException {
        try (FileReader reader = new FileReader(file)) {
            settings.load(reader);
        }
        Thread input = new Thread(Workload::listen);
        input.setDaemon(true);
        input.start();
    }

    static String given(String name) {
        return settings.getProperty("workload." + name);
    }

    static Properties common(String process) {
        Properties made = new Properties();
        settings.stringPropertyNames().stream().filter(name -> !name.startsWith("workload."))
            .forEach(name -> made.put(name, settings.getProperty(name)));
        made.put("client.id", process);
        made.put("reconnect.backoff.max.ms", "500");
        made.put("request.timeout.ms", String.valueOf(CALL_MS));
        made.put("metadata.max.age.ms", "3000");
        return made;
    }

    /** Prints a line; `fields` are names and values in turn, of which null values are left out. */
    static void lineAt(long nanos, String process, String f, String type, Object... fields) {
        StringBuilder text = new StringBuilder();
        text.append("{\"process\":\"").append(process).append("\",\"f\":\"").append(f).append("\",\"type\":\"").append(type)
            .append("\",\"t_ns\":").append(nanos).append(",\"phase\":\"run\"");
        for (int at = 0; at < fields.length; at += 2) {
            Object value = fields[at + 1];
            if (value != null) {
                text.append(",\"").append(fields[at]).append("\":");
                text.append(value instanceof String ? "\"" + value + "\"" : value.toString());
            }
        }
        synchronized (System.out) {
            System.out.println(text.append('}'));
            System.out.flush();
        }
    }

    static void line(String process, String f, String type, Object... fields) {
        lineAt(System.nanoTime(), process, f, type, fields);
    }

    /** Kafka's name of an error that a broker gave, or the class of one that the client made. */
    static String nameOf(Throwable error) {
        Errors known = Errors.forException(error);
        return known == Errors.UNKNOWN_SERVER_ERROR ? error.getClass().getSimpleName() : known.name();
    }

    static Random chance(String name) {
        return new Random((given("seed") + " " + name).hashCode());
    }

    static void pause(long ms) {
        try {
            Thread.sleep(ms);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    static void listen() {
        try (BufferedReader in = new BufferedReader(new InputStreamReader(System.in))) {
            for (String said = in.readLine(); said != null; said = in.readLine()) {
                stopping |= said.equals("stop");
            }
        } catch (IOException error) {
            // the same as the end of input: no one listens any more
        }
        Runtime.getRuntime().halt(stopping ? 0 : 1);
    }
}
