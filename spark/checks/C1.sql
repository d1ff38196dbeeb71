-- C1 inconsistent offset
-- required: yes
-- source: Jepsen's Kafka workload (inconsistent offsets)
-- claim: read
--
-- One offset of a partition holds one value, for ever, in every answer.  Witnesses are the binding acknowledgements and
-- all reads.  An acks=1 acknowledgement whose offset was given away again is an expected loss.
-- :examined
SELECT count(*) AS examined FROM places o
-- :findings
SELECT
  CASE
    WHEN min(c.sure_value) <> max(c.sure_value) AND max(c.unclean) = 0 THEN 'violation'
    ELSE 'expected'
  END AS kind,
  c.topic, c.partition, c.offset,
  CAST(NULL AS STRING) AS value,
  'holds ' || min(c.witness) || ' and ' || max(c.witness) AS detail
FROM (
  SELECT
    r.topic, r.partition, r.offset,
    coalesce(r.value, '(null)') AS sure_value, coalesce(r.value, '(null)') AS value,
    substr(coalesce(r.value, '(null)'), 1, 60) || ' (read by ' || r.process || ')' AS witness,
    CASE WHEN r.unclean THEN 1 ELSE 0 END AS unclean
  FROM reads r
  UNION ALL
  SELECT
    s.topic, s.partition, s.offset,
    CASE WHEN s.binding THEN s.value END AS sure_value, s.value,
    substr(s.value, 1, 60) || ' (acknowledged to ' || s.process || ')' AS witness,
    0 AS unclean
  FROM sends s
  WHERE s.acked AND s.offset IS NOT NULL
) c
GROUP BY c.topic, c.partition, c.offset
HAVING min(c.value) <> max(c.value)
