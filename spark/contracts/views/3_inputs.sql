-- One row for each record that has to go through a pipeline; nth: its place among those of the same id.
SELECT
  p.pipeline, p.source, p.target, p.at_least, p.at_most, p.in_order, p.whole, p.within_ms, p.read_ms,
  r.partition, r.offset, r.key, r.id, r.time_ms, r.timestamp_ms, r.txn,
  row_number() OVER (PARTITION BY p.pipeline, r.id ORDER BY r.timestamp_ms NULLS FIRST, r.partition, r.offset) AS nth
FROM pipelines p
JOIN records r ON r.topic = p.source
WHERE r.id IS NOT NULL
