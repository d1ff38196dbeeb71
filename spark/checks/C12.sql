-- C12 ack uniqueness
-- required: yes
-- source: Kafka's protocol: an offset is given to one record
-- claim: acked_at
--
-- Two acknowledgements of different values name one offset.  Where one of them did not bind (acks=1), the offset was
-- given away again after an expected loss.
-- :examined
SELECT count(*) AS examined FROM sends s WHERE s.acked AND s.offset IS NOT NULL
-- :findings
SELECT
  CASE
    WHEN min(CASE WHEN s.binding THEN s.value END) <> max(CASE WHEN s.binding THEN s.value END) THEN 'violation'
    ELSE 'expected'
  END AS kind,
  s.topic, s.partition, s.offset,
  CAST(NULL AS STRING) AS value,
  'was acknowledged for ' || substr(min(s.value), 1, 60) || ' and for ' || substr(max(s.value), 1, 60) AS detail
FROM sends s
WHERE s.acked AND s.offset IS NOT NULL
GROUP BY s.topic, s.partition, s.offset
HAVING min(s.value) <> max(s.value)
