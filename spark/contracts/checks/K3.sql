-- K3 repeat
-- required: yes
--
-- A number (of a key, a partition, or the topic) stands at two places. The later ones are the offenders.
-- :examined
SELECT count(*) AS examined FROM numbered n WHERE n.no_repeat
-- :findings
SELECT
  'violation' AS kind,
  n.topic, n.partition, n.offset, CAST(NULL AS STRING) AS value,
  'has number ' || CAST(n.sequence AS STRING) || n.whose || ', which ' || n.topic || '-'
    || CAST(n.first_partition AS STRING) || ' offset ' || CAST(n.first_offset AS STRING) || ' has already' AS detail
FROM numbered n
WHERE n.no_repeat AND n.nth > 1
