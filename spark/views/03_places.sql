-- One row for each offset at which any witness read a record, beside the one before it in its partition.
-- known_ns: when a client read it first.  lowest_epoch, highest_epoch: of those reads that know a leader epoch.
SELECT
  o.topic, o.partition, o.offset, o.known_ns, o.lowest_epoch, o.highest_epoch, o.unclean,
  lag(o.offset) OVER (PARTITION BY o.topic, o.partition ORDER BY o.offset) AS before_offset
FROM (
  SELECT
    r.topic, r.partition, r.offset, min(r.t_ns) AS known_ns,
    min(r.leader_epoch) AS lowest_epoch, max(r.leader_epoch) AS highest_epoch,
    max(CASE WHEN r.unclean THEN 1 ELSE 0 END) = 1 AS unclean
  FROM reads r
  GROUP BY r.topic, r.partition, r.offset
) o
