-- One row for each record at the end of a pipeline; nth: its place among those of the same id.
-- Within a partition offsets decide: what comes late, of an earlier owner, has an older timestamp.
SELECT
  o.pipeline, o.source, o.target, o.at_most, o.source_compacted, o.read_ms,
  o.partition, o.offset, o.id, o.time_ms, o.timestamp_ms,
  row_number() OVER (PARTITION BY o.pipeline, o.id ORDER BY o.first_ms NULLS FIRST, o.partition, o.offset) AS nth
FROM (
  SELECT
    p.pipeline, p.source, p.target, p.at_most, p.source_compacted, p.read_ms,
    r.partition, r.offset, r.id, r.time_ms, r.timestamp_ms,
    min(r.timestamp_ms) OVER (PARTITION BY p.pipeline, r.id, r.partition) AS first_ms
  FROM pipelines p
  JOIN records r ON r.topic = p.target
  WHERE r.id IS NOT NULL
) o
