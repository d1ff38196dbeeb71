-- Each record that a consumer read, beside the one that it read before in that partition, with no assign between (after
-- an assign there is no step).
-- Under read_committed (committed) a step may rightly pass over records: those that were aborted.
SELECT s.process, s.topic, s.partition, s.offset, s.value, s.before_offset, s.committed, coalesce(t.unclean, false) AS unclean
FROM (
  SELECT
    h.f, h.process, h.topic, h.partition, h.offset, h.value,
    coalesce(h.isolation = 'read_committed', false) AS committed,
    lag(CASE WHEN h.f = 'poll' THEN h.offset END)
      OVER (PARTITION BY h.process, h.topic, h.partition ORDER BY h.index) AS before_offset
  FROM history h
  WHERE h.f = 'assign' OR (h.f = 'poll' AND h.type = 'ok' AND h.offset >= 0)
) s
LEFT JOIN topic_rules t ON t.topic = s.topic
WHERE s.f = 'poll' AND s.before_offset IS NOT NULL
