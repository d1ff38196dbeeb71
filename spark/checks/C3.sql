-- C3 lost write
-- required: yes
-- source: Jepsen's Kafka workload (lost write)
-- claim: acked_at
-- needs: full read
--
-- A reader went past the place of an acknowledged record, and no reader ever read that record.  A record of unknown
-- outcome counts too when another record of the same operation was read: the operation took place as a whole.
-- Where the record was acknowledged, C4 finds it as well.
-- :examined
SELECT count(*) AS examined FROM sends s WHERE s.acked AND s.offset IS NOT NULL
-- :findings
SELECT
  CASE WHEN s.binding THEN 'violation' ELSE 'expected' END AS kind,
  s.topic, s.partition, s.offset, s.value,
  'was acknowledged to ' || s.process || ' and never read, though ' || CAST(h.highest AS STRING) || ' was' AS detail
FROM sends s
JOIN (SELECT o.topic, o.partition, max(o.offset) AS highest FROM places o GROUP BY o.topic, o.partition) h
  ON h.topic = s.topic AND h.partition = s.partition AND h.highest >= s.offset
WHERE s.acked AND NOT s.seen AND NOT s.deleted
UNION ALL
SELECT
  CASE WHEN max(CASE WHEN u.expect_loss OR u.acks <> -1 THEN 1 ELSE 0 END) = 1 THEN 'expected' ELSE 'violation' END AS kind,
  u.topic, u.partition, CAST(NULL AS BIGINT) AS offset, u.value,
  'is of unknown outcome and was never read, though ' || substr(min(b.value), 1, 60) || ' of the same operation was' AS detail
FROM sends u
JOIN sends b ON b.op = u.op AND b.value <> u.value
WHERE u.outcome = 'info' AND NOT u.seen AND b.seen
GROUP BY u.topic, u.partition, u.value
