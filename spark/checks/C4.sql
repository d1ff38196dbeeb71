-- C4 unseen
-- required: yes
-- source: Jepsen's Kafka workload (unseen); acks=all in Kafka's documentation of producers
-- claim: acked
-- needs: full read
--
-- A record was acknowledged, and is in no read by the end of the final full read.  One that was acknowledged with
-- acks=1, or on a topic that may lose records, is an expected loss: counted apart.
-- :examined
SELECT count(*) AS examined FROM sends s WHERE s.acked
-- :findings
SELECT
  CASE WHEN s.binding THEN 'violation' ELSE 'expected' END AS kind,
  s.topic, s.partition, s.offset, s.value,
  'was acknowledged to ' || s.process || CASE WHEN s.binding THEN '' ELSE ' (acks ' || CAST(s.acks AS STRING) || ')' END
    || ' and is in no read' AS detail
FROM sends s
WHERE s.acked AND NOT s.seen AND NOT s.deleted
