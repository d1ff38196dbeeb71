-- C14 epoch order
-- required: no
-- source: KIP-101 and KIP-320: leader epochs rise along the log
--
-- Along the offsets of a partition the leader epochs of the records never fall, and one offset has one epoch.
-- Two consumers agree on which record follows a record (if one of them skipped records, C8 finds it).
-- :examined
SELECT count(*) AS examined FROM reads r WHERE r.leader_epoch IS NOT NULL
-- :findings
SELECT
  CASE WHEN e.unclean THEN 'expected' ELSE 'violation' END AS kind,
  e.topic, e.partition, e.offset,
  CAST(NULL AS STRING) AS value,
  CASE
    WHEN e.lowest_epoch < e.highest_epoch
      THEN 'was read with leader epoch ' || CAST(e.lowest_epoch AS STRING) || ' and with ' || CAST(e.highest_epoch AS STRING)
    ELSE 'leader epoch ' || CAST(e.lowest_epoch AS STRING) || ' stands after epoch ' || CAST(e.before_epoch AS STRING)
  END AS detail
FROM (
  SELECT
    o.topic, o.partition, o.offset, o.lowest_epoch, o.highest_epoch, o.unclean,
    lag(o.highest_epoch) OVER (PARTITION BY o.topic, o.partition ORDER BY o.offset) AS before_epoch
  FROM places o
  WHERE o.lowest_epoch IS NOT NULL
) e
WHERE e.lowest_epoch < e.highest_epoch OR e.lowest_epoch < e.before_epoch
UNION ALL
SELECT
  CASE WHEN max(CASE WHEN p.unclean THEN 1 ELSE 0 END) = 1 THEN 'expected' ELSE 'violation' END AS kind,
  p.topic, p.partition, p.before_offset AS offset,
  CAST(NULL AS STRING) AS value,
  'is followed by offset ' || CAST(min(p.offset) AS STRING) || ' for one consumer and by '
    || CAST(max(p.offset) AS STRING) || ' for another' AS detail
FROM poll_steps p
WHERE p.offset > p.before_offset AND NOT p.committed
GROUP BY p.topic, p.partition, p.before_offset
HAVING min(p.offset) < max(p.offset)
