-- K5 monotonic time
-- required: yes
--
-- A record's time is before that of the record in front of it, in its partition or among those of its key there.
-- :examined
SELECT count(*) AS examined FROM records r JOIN promises p ON p.topic = r.topic
WHERE p.monotonic AND r.time_ms IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  g.topic, g.partition, g.offset, CAST(NULL AS STRING) AS value,
  'is ' || CAST(g.before_ms - g.time_ms AS STRING) || ' ms older than offset ' || CAST(g.before_offset AS STRING)
    || ', which stands in front of it' AS detail
FROM (
  SELECT
    r.topic, r.partition, r.offset, r.time_ms,
    lag(r.time_ms) OVER (
      PARTITION BY r.topic, r.partition, CASE WHEN p.timed_per = 'key' THEN r.key ELSE '' END ORDER BY r.offset
    ) AS before_ms,
    lag(r.offset) OVER (
      PARTITION BY r.topic, r.partition, CASE WHEN p.timed_per = 'key' THEN r.key ELSE '' END ORDER BY r.offset
    ) AS before_offset
  FROM records r
  JOIN promises p ON p.topic = r.topic
  WHERE p.monotonic AND r.time_ms IS NOT NULL AND (p.timed_per <> 'key' OR r.key IS NOT NULL)
) g
WHERE g.before_ms > g.time_ms
