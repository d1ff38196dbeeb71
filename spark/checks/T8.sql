-- T8 write cycle (G0)
-- required: no
-- source: Adya's G0; elle
--
-- Two or three committed transactions, each of which has a record right before one of the next, and the last before
-- one of the first: no order of the transactions is the order of their records. Kafka does not keep the writes of
-- transactions apart, so this is counted, and no violation (Adya's G0; Jepsen's Kafka workload allows it, too).
-- Circles of more than three are not looked for.
-- :examined
SELECT count(*) AS examined FROM txn_edges e WHERE e.kind = 'ww'
-- :findings
SELECT
  'counted' AS kind,
  a.topic, a.partition, a.offset, CAST(NULL AS STRING) AS value,
  'is of ' || a.earlier || ' and stands before offset ' || CAST(a.to_offset AS STRING) || ' of ' || a.later || '; but '
    || b.topic || '-' || CAST(b.partition AS STRING) || ' offset ' || CAST(b.offset AS STRING) || ' of ' || a.later
    || ' stands before offset ' || CAST(b.to_offset AS STRING) || ' of ' || a.earlier AS detail
FROM txn_edges a
JOIN txn_edges b ON b.kind = 'ww' AND b.earlier = a.later AND b.later = a.earlier
WHERE a.kind = 'ww' AND a.earlier < a.later
UNION ALL
SELECT
  'counted' AS kind,
  a.topic, a.partition, a.offset, CAST(NULL AS STRING) AS value,
  'is of ' || a.earlier || ' and stands before offset ' || CAST(a.to_offset AS STRING) || ' of ' || a.later || '; '
    || b.topic || '-' || CAST(b.partition AS STRING) || ' offset ' || CAST(b.offset AS STRING) || ' of ' || a.later
    || ' stands before offset ' || CAST(b.to_offset AS STRING) || ' of ' || b.later || '; but '
    || c.topic || '-' || CAST(c.partition AS STRING) || ' offset ' || CAST(c.offset AS STRING) || ' of ' || b.later
    || ' stands before offset ' || CAST(c.to_offset AS STRING) || ' of ' || a.earlier AS detail
FROM txn_edges a
JOIN txn_edges b ON b.kind = 'ww' AND b.earlier = a.later
JOIN txn_edges c ON c.kind = 'ww' AND c.earlier = b.later AND c.later = a.earlier
WHERE a.kind = 'ww' AND a.earlier < a.later AND a.earlier < b.later
