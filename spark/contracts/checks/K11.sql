-- K11 order in the pipeline
-- required: yes
--
-- Two inputs of one key and partition have their outputs in one partition, the later input's first.
-- :examined
SELECT count(*) AS examined FROM pairs p WHERE p.in_order AND p.to_offset IS NOT NULL AND p.key IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  g.target AS topic, g.to_partition AS partition, g.to_offset AS offset, CAST(NULL AS STRING) AS value,
  'is the output of ' || g.source || '-' || CAST(g.partition AS STRING) || ' offset ' || CAST(g.offset AS STRING)
    || ' (key ' || g.key || '), and comes after that of offset ' || CAST(g.before_offset AS STRING) AS detail
FROM (
  SELECT
    p.source, p.target, p.partition, p.offset, p.key, p.to_partition, p.to_offset,
    lag(p.offset) OVER (PARTITION BY p.pipeline, p.partition, p.key, p.to_partition ORDER BY p.to_offset) AS before_offset
  FROM pairs p
  WHERE p.in_order AND p.to_offset IS NOT NULL AND p.key IS NOT NULL
) g
WHERE g.before_offset > g.offset
