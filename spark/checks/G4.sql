-- G4 commits survive
-- required: no
-- source: Kafka's GroupMetadataManager: offsets are commits in a replicated log
--
-- A group's committed offset was answered lower than a commit that had been acknowledged before the request, or as not
-- there: it went back, or vanished, as happens when a coordinator moves and loses or half-loads its log.  A commit that
-- a member of aiokafka took back itself (view commits) is not held against the coordinator.
-- :examined
SELECT count(*) AS examined FROM history h WHERE h.f = 'committed' AND h.type = 'ok'
-- :findings
SELECT
  'violation' AS kind,
  a.topic, a.partition, a.offset, CAST(NULL AS STRING) AS value,
  a.process || ' was told that group ' || a.group_id || ' has committed ' || CAST(a.offset AS STRING) || ', and '
    || CAST(a.acked AS STRING) || ' was acknowledged before it asked' AS detail
FROM (
  SELECT o.process, o.group_id, o.topic, o.partition, coalesce(o.offset, -1) AS offset, max(c.offset) AS acked
  FROM history o
  JOIN history i ON i.f = 'committed' AND i.type = 'invoke' AND i.op = o.op
  JOIN commits c
    ON c.group_id = o.group_id AND c.topic = o.topic AND c.partition = o.partition AND c.t_ns < i.t_ns
    AND (c.until IS NULL OR c.until >= o.t_ns)
  WHERE o.f = 'committed' AND o.type = 'ok'
  GROUP BY o.op, o.process, o.group_id, o.topic, o.partition, coalesce(o.offset, -1)
) a
WHERE a.offset < a.acked
