-- C2 duplicate
-- required: yes
--
-- A value that was attempted once stands at two or more offsets of a partition.  With idempotence this is a
-- violation; without, a retry leaves a second copy by right, and it is counted.
-- :examined
SELECT count(*) AS examined FROM placed p
-- :findings
SELECT
  CASE
    WHEN max(CASE WHEN s.unclean THEN 1 ELSE 0 END) = 1 THEN 'expected'
    WHEN min(CASE WHEN s.idempotent AND s.tries = 1 THEN 1 ELSE 0 END) = 1 THEN 'violation'
    ELSE 'counted'
  END AS kind,
  p.topic, p.partition, p.lowest AS offset, p.value,
  'stands at offsets ' || CAST(p.lowest AS STRING) || ' and ' || CAST(p.highest AS STRING)
    || ', sent by ' || coalesce(min(s.process), 'nobody') AS detail
FROM placed p
LEFT JOIN sends s ON s.topic = p.topic AND s.value = p.value
WHERE p.lowest < p.highest
GROUP BY p.topic, p.partition, p.lowest, p.highest, p.value
