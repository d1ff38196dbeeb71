-- Each input beside its output: the first of an id with the first, the second with the second.
-- due: whether its output has to be there; an input that came shortly before the reading still has time.
SELECT
  i.pipeline, i.source, i.target, i.at_least, i.in_order, i.whole, i.within_ms,
  i.partition, i.offset, i.key, i.id, i.time_ms, i.txn,
  o.partition AS to_partition, o.offset AS to_offset, o.time_ms AS to_time_ms,
  i.within_ms IS NULL OR i.timestamp_ms IS NULL OR i.timestamp_ms + i.within_ms <= i.read_ms AS due
FROM inputs i
LEFT JOIN outputs o ON o.pipeline = i.pipeline AND o.id = i.id AND o.nth = i.nth
