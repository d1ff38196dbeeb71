-- One row for each record that a member of a share group was given.
-- t_ns: when its poll returned it.  since_ns: before that time the member cannot have acquired it.  A client asks only while
-- it polls, but may have kept what came late, or came with more than one poll returns, for a poll or two.
SELECT
  a.group_id, a.process, a.topic, a.partition, a.offset, a.value, a.delivery_count, a.t_ns,
  p.since_ns, p.delivery_limit
FROM history a
JOIN (
  SELECT
    h.process, h.poll_id, h.delivery_limit,
    coalesce(
      lag(h.t_ns, 3) OVER (PARTITION BY h.process ORDER BY h.index),
      min(h.t_ns) OVER (PARTITION BY h.process)
    ) AS since_ns
  FROM history h
  WHERE h.f = 'acquire' AND h.type = 'invoke'
) p ON p.process = a.process AND p.poll_id = a.poll_id
WHERE a.f = 'acquire' AND a.type = 'ok' AND a.offset >= 0
