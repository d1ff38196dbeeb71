-- G6 one committer
-- required: no
-- source: Kafka's group protocols, classic and KIP-848: a commit with a past generation or member epoch is refused
--
-- A member that had lost a partition committed it: two members of a group had commits of one partition acknowledged in
-- turns, and the first one was not assigned it again in between.  So the coordinator took both for members that own it.
-- Commits without an invoke line are left out, and so are aiokafka's: it may commit what it read before a rebalance.
-- :examined
SELECT count(*) AS examined
FROM history i JOIN history e ON e.f = 'commit' AND e.type = 'ok' AND e.op = i.op
WHERE i.f = 'commit' AND i.type = 'invoke' AND i.client <> 'aiokafka'
-- :findings
SELECT
  'violation' AS kind,
  c.topic, c.partition, c.offset, CAST(NULL AS STRING) AS value,
  c.process || ' of group ' || c.group_id || ' committed ' || CAST(c.offset AS STRING) || ' after '
    || min(o.process) || ' had committed the partition, and was not assigned it again' AS detail
FROM (
  SELECT i.process, i.group_id, i.topic, i.partition, i.op, i.offset, i.t_ns, max(a.t_ns) AS since
  FROM history i
  JOIN history e ON e.f = 'commit' AND e.type = 'ok' AND e.op = i.op
  JOIN history a
    ON a.f = 'assign' AND a.type = 'ok' AND a.process = i.process AND a.group_id = i.group_id AND a.topic = i.topic
    AND a.partition = i.partition AND a.t_ns < i.t_ns
  WHERE i.f = 'commit' AND i.type = 'invoke' AND i.client <> 'aiokafka'
  GROUP BY i.process, i.group_id, i.topic, i.partition, i.op, i.offset, i.t_ns
) c
JOIN (
  SELECT i.process, i.group_id, i.topic, i.partition, i.t_ns AS began, e.t_ns AS ended
  FROM history i
  JOIN history e ON e.f = 'commit' AND e.type = 'ok' AND e.op = i.op
  WHERE i.f = 'commit' AND i.type = 'invoke' AND i.client <> 'aiokafka'
) o
  ON o.group_id = c.group_id AND o.topic = c.topic AND o.partition = c.partition AND o.process <> c.process
  AND o.began > c.since AND o.ended < c.t_ns
GROUP BY c.process, c.group_id, c.topic, c.partition, c.op, c.offset
