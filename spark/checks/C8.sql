-- C8 poll skip
-- required: yes
--
-- The same consumer, with no assign between: its next record of a partition lies beyond an offset that exists
-- (somebody read it).  Offsets that nobody ever read may be holes: control batches, compaction.
-- :examined
SELECT count(*) AS examined FROM poll_steps p
-- :findings
WITH existing AS (
  SELECT
    o.topic, o.partition, o.offset,
    row_number() OVER (PARTITION BY o.topic, o.partition ORDER BY o.offset) AS nth
  FROM (SELECT DISTINCT r.topic, r.partition, r.offset FROM reads r) o
)
SELECT
  'violation' AS kind,
  p.topic, p.partition, p.offset, p.value,
  p.process || ' read offset ' || CAST(p.before_offset AS STRING) || ', then ' || CAST(p.offset AS STRING)
    || ', and left out ' || CAST(b.nth - a.nth - 1 AS STRING) || ' that exist' AS detail
FROM poll_steps p
JOIN existing a ON a.topic = p.topic AND a.partition = p.partition AND a.offset = p.before_offset
JOIN existing b ON b.topic = p.topic AND b.partition = p.partition AND b.offset = p.offset
WHERE b.nth > a.nth + 1
