-- C8 poll skip
-- required: yes
-- source: Jepsen's Kafka workload (poll skip)
-- claim: read_plainly
--
-- The same consumer, with no assign between: its next record of a partition lies beyond an offset that exists
-- (some reader read it).  Offsets that no reader ever read may be holes: control batches, compaction.
-- :examined
SELECT count(*) AS examined FROM poll_steps p WHERE NOT p.committed
-- :findings
SELECT
  'violation' AS kind,
  p.topic, p.partition, p.offset, p.value,
  p.process || ' read offset ' || CAST(p.before_offset AS STRING) || ', then ' || CAST(p.offset AS STRING)
    || ', and left out ' || CAST(e.before_offset AS STRING) AS detail
FROM poll_steps p
JOIN places e ON e.topic = p.topic AND e.partition = p.partition AND e.offset = p.offset
WHERE e.before_offset > p.before_offset AND NOT p.committed
