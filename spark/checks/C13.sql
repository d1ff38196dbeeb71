-- C13 stale end offset
-- required: no
--
-- ListOffsets(latest) answered below an offset that was known before the call (acknowledged or read), in the leader
-- epoch of that record or a later one.  A fenced leader may still answer for its own, older epoch: such an answer, and
-- one whose epoch nobody knows, is counted.
-- :examined
SELECT count(DISTINCT h.op) AS examined
FROM history h
WHERE h.f = 'list_offsets' AND h.which = 'latest' AND h.type = 'ok'
-- :findings
WITH epochs AS (
  SELECT e.topic, e.partition, e.offset, min(e.leader_epoch) AS leader_epoch
  FROM (
    SELECT r.topic, r.partition, r.offset, r.leader_epoch FROM reads r
    UNION ALL
    SELECT g.topic, g.partition, g.offset, g.leader_epoch FROM segments g
    UNION ALL
    SELECT s.topic, s.partition, s.offset, s.leader_epoch FROM sends s WHERE s.binding
  ) e
  WHERE e.leader_epoch >= 0
  GROUP BY e.topic, e.partition, e.offset
),
known AS (
  SELECT k.topic, k.partition, k.t_ns, k.offset + 1 AS end_offset, coalesce(e.leader_epoch, 2147483647) AS leader_epoch
  FROM (
    SELECT s.topic, s.partition, s.acked_ns AS t_ns, s.offset FROM sends s WHERE s.binding AND s.offset IS NOT NULL
    UNION ALL
    SELECT r.topic, r.partition, r.t_ns, r.offset FROM reads r WHERE r.t_ns IS NOT NULL
  ) k
  LEFT JOIN epochs e ON e.topic = k.topic AND e.partition = k.partition AND e.offset = k.offset
),
calls AS (
  SELECT
    h.op, h.topic, h.partition, min(h.process) AS process, min(h.t_ns) AS t_ns,
    max(CASE WHEN h.type = 'ok' THEN h.offset END) AS answer,
    coalesce(max(CASE WHEN h.type = 'ok' THEN h.leader_epoch END), -1) AS leader_epoch
  FROM history h
  WHERE h.f = 'list_offsets' AND h.which = 'latest'
  GROUP BY h.op, h.topic, h.partition
),
timeline AS (
  SELECT
    k.topic, k.partition, k.leader_epoch AS of_epoch, k.t_ns, 1 AS is_known, k.end_offset,
    CAST(NULL AS BIGINT) AS op, CAST(NULL AS STRING) AS process, CAST(NULL AS BIGINT) AS answer, 0 AS leader_epoch
  FROM known k
  UNION ALL
  SELECT
    c.topic, c.partition, b.leader_epoch AS of_epoch, c.t_ns, 0 AS is_known, CAST(NULL AS BIGINT) AS end_offset,
    c.op, c.process, c.answer, c.leader_epoch
  FROM calls c
  JOIN (SELECT DISTINCT n.topic, n.partition, n.leader_epoch FROM known n) b
    ON b.topic = c.topic AND b.partition = c.partition
  WHERE c.answer IS NOT NULL
)
SELECT
  CASE
    WHEN max(CASE WHEN u.unclean THEN 1 ELSE 0 END) = 1 THEN 'expected'
    WHEN max(CASE WHEN a.of_epoch <= a.leader_epoch THEN 1 ELSE 0 END) = 1 THEN 'violation'
    ELSE 'counted'
  END AS kind,
  a.topic, a.partition, max(a.answer) AS offset,
  CAST(NULL AS STRING) AS value,
  min(a.process) || ' was told that the log ends at ' || CAST(max(a.answer) AS STRING) || ' in leader epoch '
    || CAST(max(a.leader_epoch) AS STRING) || ', when ' || CAST(max(a.highest) AS STRING) || ' was known' AS detail
FROM (
  SELECT
    t.*,
    max(t.end_offset) OVER (
      PARTITION BY t.topic, t.partition, t.of_epoch ORDER BY t.t_ns, t.is_known
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS highest
  FROM timeline t
) a
LEFT JOIN topic_rules u ON u.topic = a.topic
WHERE a.is_known = 0 AND a.highest > a.answer
GROUP BY a.op, a.topic, a.partition
