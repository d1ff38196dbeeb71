-- One row for each record whose acknowledgement by a member of a share group was answered without an error.
-- acquired_ns: when the member was given the record last, before it acknowledged it.
-- final: accepted or rejected, so that no member may get it again; a release is not.
SELECT
  k.group_id, k.process, k.topic, k.partition, k.offset, k.op, k.which, k.delivery_count, k.began_ns, k.ended_ns,
  k.which <> 'release' AS final,
  max(a.t_ns) AS acquired_ns
FROM (
  SELECT
    i.group_id, i.process, i.topic, i.partition, i.offset, i.op, i.which, i.delivery_count,
    i.t_ns AS began_ns, e.t_ns AS ended_ns
  FROM history i
  JOIN history e ON e.f = 'acknowledge' AND e.type = 'ok' AND e.op = i.op
  WHERE i.f = 'acknowledge' AND i.type = 'invoke'
) k
LEFT JOIN acquisitions a
  ON a.group_id = k.group_id AND a.topic = k.topic AND a.partition = k.partition AND a.offset = k.offset
  AND a.process = k.process AND a.t_ns <= k.began_ns
GROUP BY
  k.group_id, k.process, k.topic, k.partition, k.offset, k.op, k.which, k.delivery_count, k.began_ns, k.ended_ns
