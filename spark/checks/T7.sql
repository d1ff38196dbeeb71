-- T7 LSO progress
-- required: no
-- source: KIP-98: the last stable offset
-- needs: final read
--
-- read_committed returns nothing at or above the LSO that the same answer names.  After the time-out of all
-- transactions that were left open, the LSO comes to the end of the partition: a transaction that stays open holds up
-- every reader.
-- :examined
SELECT count(*) AS examined
FROM history h
WHERE h.type = 'ok' AND (
  (h.f = 'poll' AND h.isolation = 'read_committed' AND h.lso >= 0 AND h.offset >= 0)
  OR (h.f = 'list_offsets' AND h.which = 'stable' AND h.phase = 'final')
)
-- :findings
SELECT
  'violation' AS kind,
  h.topic, h.partition, h.offset, h.value,
  h.process || ' read it under read_committed, and the LSO was ' || CAST(h.lso AS STRING) AS detail
FROM history h
WHERE h.f = 'poll' AND h.type = 'ok' AND h.isolation = 'read_committed' AND h.lso >= 0 AND h.offset >= h.lso
UNION ALL
SELECT
  'violation' AS kind,
  l.topic, l.partition, l.stable AS offset, CAST(NULL AS STRING) AS value,
  'the LSO stays there, and the partition ends at ' || CAST(l.latest AS STRING) AS detail
FROM (
  SELECT
    h.topic, h.partition,
    max(CASE WHEN h.which = 'stable' THEN h.offset END) AS stable,
    max(CASE WHEN h.which = 'latest' THEN h.offset END) AS latest
  FROM history h
  WHERE h.f = 'list_offsets' AND h.type = 'ok' AND h.phase = 'final'
  GROUP BY h.topic, h.partition
) l
WHERE l.stable < l.latest
