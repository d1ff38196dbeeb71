-- C2 duplicate
-- required: yes
-- source: Jepsen's Kafka workload (duplicate); KIP-98, idempotent producers
-- claim: read
-- needs: producer epochs
--
-- A value that was attempted once stands at two or more offsets of a partition.  With idempotence this is a violation;
-- without, a retry leaves a second copy by right, and it is counted.
--
-- Copies under different producer epochs are librdkafka's own doing, and counted: when the batch behind a refused
-- one gets OUT_OF_ORDER_SEQUENCE_NUMBER, it raises its epoch and sends again everything that has no answer yet, stored
-- or not (librdkafka issue 4953).  A broker that does not recognise a repetition stores both copies under one epoch.
-- The brokers' segments tell the epochs, and so do the reads of a client that sees whole batches.
-- :examined
SELECT count(*) AS examined FROM placed p
-- :findings
SELECT
  CASE
    WHEN max(CASE WHEN s.unclean THEN 1 ELSE 0 END) = 1 THEN 'expected'
    WHEN max(CASE WHEN s.client = 'confluent-kafka' AND e.copies > 1 AND e.copies = e.epochs THEN 1 ELSE 0 END) = 1
      THEN 'counted'
    WHEN min(CASE WHEN s.idempotent AND s.tries = 1 THEN 1 ELSE 0 END) = 1 THEN 'violation'
    ELSE 'counted'
  END AS kind,
  p.topic, p.partition, p.lowest AS offset, p.value,
  'stands at offsets ' || CAST(p.lowest AS STRING) || ' and ' || CAST(p.highest AS STRING)
    || ', sent by ' || coalesce(min(s.process), 'nobody') AS detail
FROM placed p
LEFT JOIN sends s ON s.topic = p.topic AND s.value = p.value
LEFT JOIN (
  SELECT g.topic, g.partition, g.value, count(DISTINCT g.offset) AS copies, count(DISTINCT g.producer_epoch) AS epochs
  FROM (
    SELECT d.topic, d.partition, d.value, d.offset, d.producer_epoch FROM segments d WHERE d.producer_epoch >= 0
    UNION ALL
    SELECT h.topic, h.partition, h.value, h.offset, h.producer_epoch
    FROM history h
    WHERE h.f = 'poll' AND h.type = 'ok' AND h.producer_epoch >= 0
  ) g
  GROUP BY g.topic, g.partition, g.value
) e ON e.topic = p.topic AND e.partition = p.partition AND e.value = p.value
WHERE p.lowest < p.highest
GROUP BY p.topic, p.partition, p.lowest, p.highest, p.value
