-- One row for each record that has a number, with the records that share its count.
-- nth: its place among those of the same number; first_partition, first_offset: where the first of these stands.
SELECT
  n.topic, n.partition, n.offset, n.key, n.sequence, n.scope, n.whose,
  n.compacted, n.no_gap, n.no_repeat, n.in_order,
  row_number() OVER (PARTITION BY n.topic, n.scope, n.sequence ORDER BY n.partition, n.offset) AS nth,
  first_value(n.partition) OVER (PARTITION BY n.topic, n.scope, n.sequence ORDER BY n.partition, n.offset) AS first_partition,
  first_value(n.offset) OVER (PARTITION BY n.topic, n.scope, n.sequence ORDER BY n.partition, n.offset) AS first_offset
FROM (
  SELECT
    r.topic, r.partition, r.offset, r.key, r.sequence,
    p.compacted, p.no_gap, p.no_repeat, p.in_order,
    CASE p.numbered_per WHEN 'key' THEN r.key WHEN 'partition' THEN CAST(r.partition AS STRING) ELSE '' END AS scope,
    CASE p.numbered_per WHEN 'key' THEN ' of key ' || r.key ELSE '' END AS whose
  FROM records r
  JOIN promises p ON p.topic = r.topic
  WHERE r.sequence IS NOT NULL AND (p.no_gap OR p.no_repeat OR p.in_order)
) n
WHERE n.scope IS NOT NULL
