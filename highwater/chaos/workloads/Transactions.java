// The tellers and the copier of `highwater chaos --workload java-transactions`: what transactional.py does, with the Java client.
//
// Settings: `workload.` run, seed, partitions, value.bytes.  "stop" ends the tellers, and the copier once it has copied everything.

import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.zip.CRC32;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Transactions extends Workload {
    static final String BANK = "bank", COPY_IN = "copy-in", COPY_OUT = "copy-out";
    static final int TELLERS = 2, TIMEOUT_MS = 10_000;
    static final long GIVE_UP_NS = 40_000_000_000L, HIJACKED_AFTER_NS = 6_000_000_000L, DRAIN_NS = 60_000_000_000L;

    /** This producer cannot go on: it is fenced, or its transaction's outcome is unknown. */
    static class Ended extends Exception {
        private static final long serialVersionUID = 1;
    }

    static KafkaConsumer<String, String> consumer(String process, String group) {
        Properties made = common(process);
        made.put("group.id", group);
        made.put("enable.auto.commit", "false");
        made.put("auto.offset.reset", "earliest");
        made.put("isolation.level", "read_committed");
        made.put("fetch.max.wait.ms", "100");
        made.put("max.poll.records", "100");
        made.put("allow.auto.create.topics", "false");
        made.put("default.api.timeout.ms", String.valueOf(GIVE_UP_NS / 1_000_000));
        return new KafkaConsumer<>(made, new StringDeserializer(), new StringDeserializer());
    }

    /** A value that describes itself, as `highwater.verdict.history.make_value` makes it. */
    static String value(String process, int sequence, long nanos) {
        String text = given("run") + "|" + process + "|" + sequence + "|" + nanos + "|";
        CRC32 sum = new CRC32();
        sum.update(text.getBytes(StandardCharsets.UTF_8));
        text += String.format("%08x", sum.getValue());
        int missing = Integer.parseInt(given("value.bytes")) - text.length();
        return missing <= 0 ? text : text + "|" + ".".repeat(missing - 1);
    }

    /** One producer with a transactional id, and its lines in the history. */
    static class Instance {
        final String process, id;
        final KafkaProducer<String, String> producer;
        final Map<Long, Object[]> open = new ConcurrentHashMap<>();
        String txn;
        int count, sequence;

        Instance(String process, String id) {
            this.process = process;
            this.id = id;
            Properties made = common(process);
            made.put("transactional.id", id);
            made.put("transaction.timeout.ms", String.valueOf(TIMEOUT_MS));
            made.put("delivery.timeout.ms", String.valueOf(TIMEOUT_MS));
            made.put("max.block.ms", String.valueOf(CALL_MS));
            made.put("linger.ms", "0");
            producer = new KafkaProducer<>(made, new StringSerializer(), new StringSerializer());
        }

        /** Makes a call and prints it; repeats it while it runs out of its time, which is safe. */
        void operation(String f, String which, Runnable call) {
            long op = operations.incrementAndGet(), started = System.nanoTime();
            String of = which == null ? null : txn;
            line(process, f, "invoke", "op", op, "transactional_id", id, "txn", of, "which", which);
            while (true) {
                try {
                    call.run();
                    line(process, f, "ok", "op", op, "transactional_id", id, "txn", of, "which", which);
                    return;
                } catch (TimeoutException error) {
                    if (System.nanoTime() - started < GIVE_UP_NS) {
                        continue;
                    }
                    line(process, f, "info", "op", op, "transactional_id", id, "txn", of, "which", which, "error", nameOf(error));
                    throw error;
                } catch (RuntimeException error) {
                    line(process, f, "info", "op", op, "transactional_id", id, "txn", of, "which", which, "error", nameOf(error));
                    throw error;
                }
            }
        }

        void init() {
            operation("init_txn", null, producer::initTransactions);
        }

        void send(String topic, int partition, Object... more) {
            long op = operations.incrementAndGet(), nanos = System.nanoTime();
            String value = value(process, sequence, nanos), key = "k" + sequence % 16;
            sequence++;
            List<Object> fields = new ArrayList<>(List.of("op", op, "topic", topic, "partition", partition, "key", key, "value",
                value, "acks", -1, "idempotent", true, "expect_loss", false, "txn", txn));
            fields.addAll(List.of(more));
            open.put(op, fields.toArray());
            lineAt(nanos, process, "send", "invoke", open.get(op));
            producer.send(new ProducerRecord<>(topic, partition, key, value), (place, error) -> {
                if (error != null) {
                    end(op, "info", "error", nameOf(error));
                } else if (!place.hasOffset()) {
                    end(op, "info", "error", "_NO_OFFSET");
                } else {
                    end(op, "ok", "offset", place.offset());
                }
            });
        }

        void end(long op, String type, String name, Object value) {
            Object[] fields = open.remove(op);
            if (fields != null) {
                List<Object> all = new ArrayList<>(List.of(fields));
                all.add(name);
                all.add(value);
                line(process, "send", type, all.toArray());
            }
        }

        /** Runs a transaction; `work` says whether to commit.  Returns whether it did. */
        boolean transact(Work work) throws Ended {
            count++;
            txn = given("run") + "|" + process + "|" + count;
            try {
                producer.beginTransaction();
                if (work.run()) {
                    operation("end_txn", "commit", producer::commitTransaction);
                    return true;
                }
            } catch (ProducerFencedException | TimeoutException error) {
                throw new Ended();
            } catch (KafkaException | IllegalStateException error) {
                // an aborted transaction is the way on, where there is one
            }
            try {
                operation("end_txn", "abort", producer::abortTransaction);
            } catch (RuntimeException error) {
                throw new Ended();
            }
            return false;
        }

        void close() {
            producer.close(Duration.ofMillis(100));
            for (long op : open.keySet()) {
                end(op, "info", "error", "_UNFINISHED");
            }
        }
    }

    interface Work {
        boolean run() throws Ended;
    }

    /** A teller's own reading of the bank, from the beginning on. */
    static class Ledger {
        final String process;
        final KafkaConsumer<String, String> consumer;

        Ledger(String process) {
            this.process = process;
            consumer = consumer(process, process);
            List<TopicPartition> places = places(BANK);
            consumer.assign(places);
            consumer.seekToBeginning(places);
            places.forEach(p -> line(process, "assign", "ok", "topic", BANK, "partition", p.partition(), "offset", 0));
        }

        void read(String txn) {
            long op = operations.incrementAndGet();
            line(process, "poll", "invoke", "poll_id", op, "op", op);
            ConsumerRecords<String, String> found = consumer.poll(Duration.ZERO);
            for (ConsumerRecord<String, String> r : found) {
                line(process, "poll", "ok", "poll_id", op, "op", op, "n", found.count(), "topic", r.topic(), "partition",
                    r.partition(), "offset", r.offset(), "key", r.key(), "value", r.value(), "txn", txn,
                    "isolation", "read_committed");
            }
            if (found.isEmpty()) {
                line(process, "poll", "ok", "poll_id", op, "op", op, "n", 0);
            }
        }
    }

    static List<TopicPartition> places(String topic) {
        List<TopicPartition> made = new ArrayList<>();
        for (int p = 0; p < Integer.parseInt(given("partitions")); p++) {
            made.add(new TopicPartition(topic, p));
        }
        return made;
    }

    /** Moves money: one instance after the other under one transactional id, each of which is taken over by the next. */
    static void teller(String name) {
        Random random = chance(name);
        Ledger ledger = new Ledger(name + "-ledger");
        List<Thread> zombies = new ArrayList<>();
        for (int number = 0; !stopping; number++) {
            Instance instance = new Instance(name + "-" + number, given("run") + "-" + name);
            try {
                instance.init();
                transfers(instance, 2 + random.nextInt(9), HIJACKED_AFTER_NS, ledger);
            } catch (Ended | RuntimeException error) {
                instance.close();
                continue;
            }
            Thread zombie = new Thread(() -> { // goes on while the next one takes over
                try {
                    transfers(instance, 1000, Long.MAX_VALUE, null);
                } catch (Ended | RuntimeException error) {
                    // that is what it waits for
                }
                instance.close();
            });
            zombie.setDaemon(true);
            zombie.start();
            zombies.add(zombie);
        }
        ledger.consumer.close(org.apache.kafka.clients.consumer.CloseOptions.timeout(Duration.ofSeconds(1)));
        long deadline = System.nanoTime() + GIVE_UP_NS;
        for (Thread zombie : zombies) {
            join(zombie, Math.max(1, (deadline - System.nanoTime()) / 1_000_000));
        }
    }

    static void transfers(Instance instance, int most, long nanos, Ledger ledger) throws Ended {
        Random chance = chance(instance.process);
        long started = System.nanoTime();
        for (int n = 0; n < most && !stopping && System.nanoTime() - started < nanos; n++) {
            instance.transact(() -> transfer(instance, chance, ledger));
            pause(chance.nextInt(100));
        }
    }

    static boolean transfer(Instance instance, Random chance, Ledger ledger) throws Ended {
        if (ledger != null) {
            ledger.read(instance.txn);
        }
        int accounts = Integer.parseInt(given("partitions")), from = chance.nextInt(accounts);
        int to = (from + 1 + chance.nextInt(accounts - 1)) % accounts, amount = 1 + chance.nextInt(100);
        instance.send(BANK, from, "amount", -amount);
        if (chance.nextDouble() < 0.2) {
            pause(chance.nextInt(500));
        }
        if (ledger != null) {
            ledger.read(instance.txn);
        }
        instance.send(BANK, to, "amount", amount);
        double choice = chance.nextDouble();
        if (choice < 0.2) {
            instance.producer.flush();
        }
        if (choice < 0.03) {
            throw new Ended(); // abandoned: the next instance or the time-out aborts it
        }
        return choice >= 0.2;
    }

    /** Reads and writes in one transaction, again and again, until all is copied. */
    static void copier(String name) {
        long deadline = 0;
        for (int number = 0; deadline == 0 || System.nanoTime() < deadline; number++) {
            if (deadline == 0 && stopping) {
                deadline = System.nanoTime() + DRAIN_NS;
            }
            Instance instance = new Instance(name + "-" + number, given("run") + "-" + name);
            try (KafkaConsumer<String, String> consumer = consumer(instance.process, instance.id)) {
                instance.init();
                if (copies(instance, consumer, chance(instance.process))) {
                    return;
                }
            } catch (Ended | RuntimeException error) {
                pause(50);
            } finally {
                instance.close();
            }
        }
    }

    /** Returns true once it was stopped and has copied everything; any other end is an exception. */
    static boolean copies(Instance instance, KafkaConsumer<String, String> consumer, Random chance) throws Ended {
        List<TopicPartition> sources = places(COPY_IN);
        Map<TopicPartition, Long> positions = new HashMap<>();
        // no other instance can move the offsets any more: this one has fenced them all
        consumer.committed(Set.copyOf(sources)).forEach((place, at) -> positions.put(place, at == null ? 0 : at.offset()));
        consumer.assign(sources);
        positions.forEach(consumer::seek);
        while (true) {
            ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(200));
            if (found.isEmpty()) {
                if (stopping && consumer.endOffsets(sources).entrySet().stream()
                    .allMatch(end -> positions.get(end.getKey()) >= end.getValue())) {
                    return true;
                }
                continue;
            }
            Map<TopicPartition, Long> moved = new HashMap<>(positions);
            boolean committed = instance.transact(() -> {
                for (ConsumerRecord<String, String> r : found) {
                    moved.put(new TopicPartition(COPY_IN, r.partition()), r.offset() + 1);
                    instance.send(COPY_OUT, r.partition(), "copy_of", r.value());
                }
                Map<TopicPartition, OffsetAndMetadata> offsets = new HashMap<>();
                moved.forEach((place, at) -> offsets.put(place, new OffsetAndMetadata(at)));
                instance.producer.sendOffsetsToTransaction(offsets, consumer.groupMetadata());
                if (chance.nextDouble() < 0.02) {
                    throw new Ended(); // a crash
                }
                return chance.nextDouble() >= 0.05;
            });
            if (!committed) {
                throw new Ended(); // the next instance reads the same records again
            }
            positions.putAll(moved);
        }
    }

    static void join(Thread thread, long ms) {
        try {
            thread.join(ms);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    public static void main(String[] arguments) throws Exception {
        begin(arguments[0]);
        List<Thread> threads = new ArrayList<>();
        for (int number = 0; number < TELLERS; number++) {
            String name = "java-teller-" + number;
            threads.add(new Thread(() -> teller(name)));
        }
        threads.add(new Thread(() -> copier("java-copier")));
        threads.forEach(Thread::start);
        for (Thread thread : threads) {
            thread.join();
        }
        System.out.flush();
        Runtime.getRuntime().halt(0);
    }
}
