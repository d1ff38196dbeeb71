-- C13 stale end offset
-- required: no
-- source: KIP-207: ListOffsets never answers below an earlier answer
--
-- ListOffsets(latest) answered below an offset that was known before the call (acknowledged or read).  The answer is
-- from the leader of the newest epoch at that time, by ZooKeeper's state znode and by the records known.  A leader that
-- was replaced may still answer for its own, older epoch, even below records of that epoch which its followers had and
-- it did not yet count: such an answer is counted, and so is one of unknown epoch.
-- :examined
SELECT count(DISTINCT h.op) AS examined
FROM history h
WHERE h.f = 'list_offsets' AND h.which = 'latest' AND h.type = 'ok'
-- :findings
WITH epochs AS (
  SELECT e.topic, e.partition, e.offset, min(e.leader_epoch) AS leader_epoch
  FROM (
    SELECT o.topic, o.partition, o.offset, o.lowest_epoch AS leader_epoch FROM places o
    UNION ALL
    SELECT g.topic, g.partition, g.offset, g.leader_epoch FROM segments g
    UNION ALL
    SELECT s.topic, s.partition, s.offset, s.leader_epoch FROM sends s WHERE s.binding
  ) e
  WHERE e.leader_epoch >= 0
  GROUP BY e.topic, e.partition, e.offset
),
calls AS (
  SELECT
    h.op, h.topic, h.partition, min(h.process) AS process, min(h.t_ns) AS t_ns,
    max(CASE WHEN h.type = 'ok' THEN h.offset END) AS answer,
    coalesce(max(CASE WHEN h.type = 'ok' THEN h.leader_epoch END), -1) AS answer_epoch
  FROM history h
  WHERE h.f = 'list_offsets' AND h.which = 'latest'
  GROUP BY h.op, h.topic, h.partition
),
timeline AS (
  SELECT
    k.topic, k.partition, k.t_ns, 1 AS is_known, k.offset + 1 AS end_offset, e.leader_epoch AS epoch,
    CAST(NULL AS BIGINT) AS op, CAST(NULL AS STRING) AS process, CAST(NULL AS BIGINT) AS answer, -1 AS answer_epoch
  FROM (
    SELECT s.topic, s.partition, s.acked_ns AS t_ns, s.offset FROM sends s WHERE s.binding AND s.offset IS NOT NULL
    UNION ALL
    SELECT o.topic, o.partition, o.known_ns AS t_ns, o.offset FROM places o WHERE o.known_ns IS NOT NULL
  ) k
  JOIN epochs e ON e.topic = k.topic AND e.partition = k.partition AND e.offset = k.offset
  UNION ALL
  SELECT
    w.topic, w.partition, w.written_ns AS t_ns, 0 AS is_known, CAST(NULL AS BIGINT) AS end_offset,
    w.leader_epoch AS epoch, CAST(NULL AS BIGINT) AS op, CAST(NULL AS STRING) AS process,
    CAST(NULL AS BIGINT) AS answer, -1 AS answer_epoch
  FROM witness w
  WHERE w.leader_epoch IS NOT NULL AND w.written_ns IS NOT NULL
  UNION ALL
  SELECT
    c.topic, c.partition, c.t_ns, 0 AS is_known, CAST(NULL AS BIGINT) AS end_offset,
    CAST(NULL AS INT) AS epoch, c.op, c.process, c.answer, c.answer_epoch
  FROM calls c
  WHERE c.answer IS NOT NULL
)
SELECT
  CASE
    WHEN max(CASE WHEN u.unclean THEN 1 ELSE 0 END) = 1 THEN 'expected'
    WHEN max(a.answer_epoch) >= max(a.newest) THEN 'violation'
    ELSE 'counted'
  END AS kind,
  a.topic, a.partition, max(a.answer) AS offset,
  CAST(NULL AS STRING) AS value,
  min(a.process) || ' was told that the log ends at ' || CAST(max(a.answer) AS STRING) || ' in leader epoch '
    || CAST(max(a.answer_epoch) AS STRING) || ', when ' || CAST(max(a.highest) AS STRING)
    || ' was known and the newest epoch was ' || CAST(max(a.newest) AS STRING) AS detail
FROM (
  SELECT
    t.*,
    max(t.end_offset) OVER (
      PARTITION BY t.topic, t.partition ORDER BY t.t_ns, t.is_known
      ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS highest,
    max(t.epoch) OVER (
      PARTITION BY t.topic, t.partition ORDER BY t.t_ns, t.is_known
      RANGE BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS newest
  FROM timeline t
) a
LEFT JOIN topic_rules u ON u.topic = a.topic
WHERE a.op IS NOT NULL AND a.highest > a.answer
GROUP BY a.op, a.topic, a.partition
