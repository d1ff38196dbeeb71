-- K9 output of no input
-- required: yes
--
-- A pipeline's output has the id of no input. It is counted, and no violation, where the input may be gone by right
-- (the source is compacted, or a partition of it begins above offset 0), and where the output came after the reading
-- had begun.
-- :examined
SELECT count(*) AS examined FROM outputs o WHERE o.at_most
-- :findings
SELECT
  CASE
    WHEN o.source_compacted OR coalesce(s.starts, 0) > 0 OR coalesce(o.timestamp_ms, 0) >= o.read_ms THEN 'counted'
    ELSE 'violation'
  END AS kind,
  o.target AS topic, o.partition, o.offset, CAST(NULL AS STRING) AS value,
  'has id ' || substr(o.id, 1, 60) || ', which no record of ' || o.source || ' has' AS detail
FROM outputs o
LEFT JOIN (
  SELECT p.topic, max(p.start) AS starts
  FROM (SELECT r.topic, r.partition, min(r.offset) AS start FROM records r GROUP BY r.topic, r.partition) p
  GROUP BY p.topic
) s ON s.topic = o.source
LEFT JOIN inputs i ON i.pipeline = o.pipeline AND i.id = o.id AND i.nth = 1
WHERE o.at_most AND i.id IS NULL
