-- C9 non-monotonic poll
-- required: yes
-- source: Jepsen's Kafka workload (nonmonotonic poll)
-- claim: read
--
-- The same consumer, with no assign between: its next record of a partition lies at or before the last one.
-- :examined
SELECT count(*) AS examined FROM poll_steps p
-- :findings
SELECT
  'violation' AS kind,
  p.topic, p.partition, p.offset, p.value,
  p.process || ' read offset ' || CAST(p.before_offset AS STRING) || ', then ' || CAST(p.offset AS STRING) AS detail
FROM poll_steps p
WHERE p.offset <= p.before_offset
