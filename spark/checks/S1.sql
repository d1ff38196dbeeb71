-- S1 delivered
-- required: no
-- source: KIP-932: a share group delivers every record at least once
--
-- A record was acknowledged, a share group has taken everything that its topic held after that (nothing of it is left to
-- deliver), and no member of the group ever got the record.
-- :examined
SELECT count(*) AS examined
FROM sends s
JOIN (SELECT h.group_id, h.topic, max(h.t_ns) AS t_ns FROM history h WHERE h.f = 'drained' GROUP BY h.group_id, h.topic) d
  ON d.topic = s.topic
WHERE s.binding AND NOT s.deleted AND s.acked_ns < d.t_ns
-- :findings
SELECT
  'violation' AS kind,
  s.topic, s.partition, s.offset, s.value,
  'acknowledged to ' || s.process || ', and given to no member of share group ' || d.group_id AS detail
FROM sends s
JOIN (SELECT h.group_id, h.topic, max(h.t_ns) AS t_ns FROM history h WHERE h.f = 'drained' GROUP BY h.group_id, h.topic) d
  ON d.topic = s.topic
LEFT JOIN (SELECT DISTINCT a.group_id, a.topic, a.value FROM acquisitions a) g
  ON g.group_id = d.group_id AND g.topic = s.topic AND g.value = s.value
WHERE s.binding AND NOT s.deleted AND s.acked_ns < d.t_ns AND g.value IS NULL
