-- K12 transaction in parts
-- required: yes
--
-- Of the inputs of one transaction some have an output, and some have none.
-- :examined
SELECT count(*) AS examined FROM pairs p WHERE p.whole AND p.txn IS NOT NULL
-- :findings
SELECT
  CASE WHEN g.due THEN 'violation' ELSE 'counted' END AS kind,
  g.source AS topic, g.partition, g.offset, CAST(NULL AS STRING) AS value,
  'is not in ' || g.target || ', where ' || CAST(g.there AS STRING) || ' of the ' || CAST(g.records AS STRING)
    || ' records of transaction ' || substr(g.txn, 1, 60) || ' are' AS detail
FROM (
  SELECT
    p.source, p.target, p.partition, p.offset, p.txn, p.to_offset, p.due,
    count(*) OVER (PARTITION BY p.pipeline, p.txn) AS records,
    count(p.to_offset) OVER (PARTITION BY p.pipeline, p.txn) AS there
  FROM pairs p
  WHERE p.whole AND p.txn IS NOT NULL
) g
WHERE g.to_offset IS NULL AND g.there > 0
