-- K10 late
-- required: yes
--
-- An output's time is further behind its input's than the contract allows.
-- :examined
SELECT count(*) AS examined FROM pairs p WHERE p.within_ms IS NOT NULL AND p.to_offset IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  p.target AS topic, p.to_partition AS partition, p.to_offset AS offset, CAST(NULL AS STRING) AS value,
  'is ' || CAST(p.to_time_ms - p.time_ms AS STRING) || ' ms behind its input, ' || p.source || '-'
    || CAST(p.partition AS STRING) || ' offset ' || CAST(p.offset AS STRING) AS detail
FROM pairs p
WHERE p.to_time_ms - p.time_ms > p.within_ms
