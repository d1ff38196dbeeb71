-- G3 ownership
-- required: no
-- source: Kafka's group protocol: a partition has one owner in a generation
--
-- In one generation of a group, one partition was assigned to two members.  A member is known by its id; assignments of
-- clients that tell no generation, or no member id, are left out.
-- :examined
SELECT count(*) AS examined
FROM history h
WHERE h.f = 'assign' AND h.type = 'ok' AND h.group_id IS NOT NULL AND h.generation >= 0 AND h.member IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  g.topic, g.partition, CAST(NULL AS BIGINT) AS offset, CAST(NULL AS STRING) AS value,
  'generation ' || CAST(g.generation AS STRING) || ' of group ' || g.group_id || ': assigned to ' || g.one
    || ' and to ' || g.other AS detail
FROM (
  SELECT h.group_id, h.generation, h.topic, h.partition, min(h.member) AS one, max(h.member) AS other
  FROM history h
  WHERE h.f = 'assign' AND h.type = 'ok' AND h.group_id IS NOT NULL AND h.generation >= 0 AND h.member IS NOT NULL
  GROUP BY h.group_id, h.generation, h.topic, h.partition
) g
WHERE g.one <> g.other
