-- K7 missing in the pipeline
-- required: yes
--
-- An input has no output. The first output of an id answers the first input of that id, the second the second. An
-- input that is younger than the contract's time was when the reading began is counted, and no violation.
-- :examined
SELECT count(*) AS examined FROM pairs p WHERE p.at_least
-- :findings
SELECT
  CASE WHEN p.due THEN 'violation' ELSE 'counted' END AS kind,
  p.source AS topic, p.partition, p.offset, CAST(NULL AS STRING) AS value,
  'is not in ' || p.target || ' (id ' || substr(p.id, 1, 60) || ')' || CASE WHEN p.due THEN '' ELSE ' yet' END AS detail
FROM pairs p
WHERE p.at_least AND p.to_offset IS NULL
