-- One row for each record at the end of a pipeline; nth: its place among those of the same id.
SELECT
  p.pipeline, p.source, p.target, p.at_most, p.source_compacted, p.read_ms,
  r.partition, r.offset, r.id, r.time_ms, r.timestamp_ms,
  row_number() OVER (PARTITION BY p.pipeline, r.id ORDER BY r.timestamp_ms NULLS FIRST, r.partition, r.offset) AS nth
FROM pipelines p
JOIN records r ON r.topic = p.target
WHERE r.id IS NOT NULL
