-- C7 phantom, mismatch
-- required: yes
-- source: Kafka's protocol: the base offset of a Produce answer names where the record stands
-- claim: read
--
-- Phantom: a value was read that no client attempted in that topic (a damaged one is such a value). A topic that the
-- run does not name, and to which no process of its history sends, is fed by others: the rule does not apply to it.
-- Mismatch: a value came back with another key or in another partition than it was sent with, or an acknowledged
-- offset holds another value.  Where the acknowledgement did not bind (acks=1), the last is an expected loss.
-- :examined
SELECT count(*) AS examined FROM reads r
-- :findings
SELECT DISTINCT d.kind, d.topic, d.partition, d.offset, d.value, d.detail
FROM (
  SELECT
    'violation' AS kind,
    r.topic, r.partition, r.offset, r.value,
    CASE
      WHEN s.value IS NULL THEN 'was read, but nobody sent it'
      WHEN r.partition <> s.asked_partition
        THEN 'was read in partition ' || CAST(r.partition AS STRING) || ', sent to partition ' || CAST(s.asked_partition AS STRING)
      ELSE 'was read with key ' || coalesce(r.key, '(null)') || ', sent with key ' || coalesce(s.key, '(null)')
    END AS detail
  FROM reads r
  LEFT JOIN (
    SELECT
      a.topic, a.value, min(a.key) AS key,
      CASE WHEN min(a.asked_partition) = max(a.asked_partition) THEN min(a.asked_partition) END AS asked_partition
    FROM sends a
    GROUP BY a.topic, a.value
  ) s ON s.topic = r.topic AND s.value = r.value
  LEFT JOIN (SELECT t.topic FROM topics t UNION SELECT a.topic FROM sends a) w ON w.topic = r.topic
  WHERE (s.value IS NULL AND w.topic IS NOT NULL) OR r.partition <> s.asked_partition
    OR (s.value IS NOT NULL AND coalesce(r.key, '(null)') <> coalesce(s.key, '(null)'))
  UNION ALL
  SELECT
    CASE WHEN s.binding THEN 'violation' ELSE 'expected' END AS kind,
    s.topic, s.partition, s.offset, s.value,
    'was acknowledged to ' || s.process || ', but the offset holds ' || substr(coalesce(r.value, '(null)'), 1, 60) AS detail
  FROM sends s
  JOIN (SELECT DISTINCT a.topic, a.partition, a.offset, a.value FROM reads a) r
    ON r.topic = s.topic AND r.partition = s.partition AND r.offset = s.offset
  WHERE s.acked AND coalesce(r.value, '(null)') <> s.value
) d
