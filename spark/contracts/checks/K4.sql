-- K4 order per key
-- required: yes
--
-- Behind a record of a key stands one of the same key and partition with a lower number. Repeats are left out: they
-- are K3's.
-- :examined
SELECT count(*) AS examined FROM numbered n WHERE n.in_order AND n.key IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  g.topic, g.partition, g.offset, CAST(NULL AS STRING) AS value,
  'has number ' || CAST(g.sequence AS STRING) || ' of key ' || g.key || ', and comes after '
    || CAST(g.before_sequence AS STRING) || ' (offset ' || CAST(g.before_offset AS STRING) || ')' AS detail
FROM (
  SELECT
    n.topic, n.partition, n.offset, n.key, n.sequence,
    lag(n.sequence) OVER (PARTITION BY n.topic, n.partition, n.key ORDER BY n.offset) AS before_sequence,
    lag(n.offset) OVER (PARTITION BY n.topic, n.partition, n.key ORDER BY n.offset) AS before_offset
  FROM numbered n
  WHERE n.in_order AND n.nth = 1 AND n.key IS NOT NULL
) g
WHERE g.before_sequence > g.sequence
