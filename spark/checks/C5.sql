-- C5 lost where
-- required: no
-- source: Kafka's replication: an acknowledged record is in the log of every member of the ISR
-- needs: full read
--
-- The place of each record of C4: in a broker's segments (lost on the way to the consumer), or in none (data loss).
-- It explains C4, so its findings are counted, and are not violations of their own.
-- :examined
SELECT count(*) AS examined FROM segments g
-- :findings
SELECT
  'counted' AS kind,
  s.topic, s.partition, s.offset, s.value,
  CASE
    WHEN count(g.broker) = 0 THEN 'in the segments of no broker: data loss'
    ELSE 'in the segments of ' || CAST(count(DISTINCT g.broker) AS STRING) || ' broker(s), for instance broker '
      || CAST(min(g.broker) AS STRING) || ' at offset ' || CAST(min(g.offset) AS STRING)
      || ': lost on the way to the consumer'
  END AS detail
FROM sends s
LEFT JOIN segments g ON g.topic = s.topic AND g.value = s.value
WHERE s.acked AND NOT s.seen AND NOT s.deleted AND s.topic IN (SELECT e.topic FROM segments e)
GROUP BY s.topic, s.partition, s.offset, s.value
