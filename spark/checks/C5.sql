-- C5 lost where
-- required: no
-- needs: final read
--
-- Where C4's records are: in a broker's segments (lost on the way to the consumer), or in none (data loss).  It
-- explains C4, so its findings are counted, not violations of their own.
-- :examined
SELECT count(*) AS examined FROM segments g
-- :findings
SELECT
  'counted' AS kind,
  s.topic, s.partition, s.offset, s.value,
  CASE
    WHEN count(g.broker) = 0 THEN 'in no broker''s segments: data loss'
    ELSE 'in the segments of ' || CAST(count(DISTINCT g.broker) AS STRING) || ' broker(s), for instance broker '
      || CAST(min(g.broker) AS STRING) || ' at offset ' || CAST(min(g.offset) AS STRING)
      || ': lost on the way to the consumer'
  END AS detail
FROM sends s
LEFT JOIN segments g ON g.topic = s.topic AND g.value = s.value
LEFT JOIN log_starts l ON l.topic = s.topic AND l.partition = s.partition
LEFT JOIN (SELECT DISTINCT r.topic, r.value FROM reads r) seen ON seen.topic = s.topic AND seen.value = s.value
WHERE s.acked AND seen.value IS NULL AND (s.offset IS NULL OR s.offset >= coalesce(l.log_start, 0))
  AND EXISTS (SELECT 1 FROM segments e)
GROUP BY s.topic, s.partition, s.offset, s.value
