-- T9 circular reads (G1c)
-- required: no
-- source: Adya's G1c; elle
--
-- Under read_committed a transaction read what another one wrote, that one what a third wrote, and so on, back to the
-- first: each of them read before the other's commit. So does a transaction that reads its own records. Only reads
-- make the circle: with writes in it, Kafka allows it (T8). Circles of up to four are reported. In a longer one, too, a
-- read is older than the commit of what it shows, which T3 finds.
-- :examined
SELECT count(*) AS examined FROM txn_edges e WHERE e.kind = 'wr'
-- :findings
SELECT
  'violation' AS kind,
  a.topic, a.partition, a.offset, CAST(NULL AS STRING) AS value,
  'was written in ' || a.earlier || ', and read in it by ' || a.reader || ' before it was committed' AS detail
FROM txn_edges a
WHERE a.kind = 'wr' AND a.earlier = a.later
UNION ALL
SELECT
  'violation' AS kind,
  a.topic, a.partition, a.offset, CAST(NULL AS STRING) AS value,
  'was written in ' || a.earlier || ' and read in ' || a.later || '; ' || b.topic || '-' || CAST(b.partition AS STRING)
    || ' offset ' || coalesce(CAST(b.offset AS STRING), 'unknown') || ' was written in ' || a.later || ' and read in '
    || a.earlier || ': neither comes first' AS detail
FROM txn_edges a
JOIN txn_edges b ON b.kind = 'wr' AND b.earlier = a.later AND b.later = a.earlier
WHERE a.kind = 'wr' AND a.earlier < a.later
UNION ALL
SELECT
  'violation' AS kind,
  a.topic, a.partition, a.offset, CAST(NULL AS STRING) AS value,
  'was written in ' || a.earlier || ' and read in ' || a.later || '; ' || b.topic || '-' || CAST(b.partition AS STRING)
    || ' offset ' || coalesce(CAST(b.offset AS STRING), 'unknown') || ' was written in ' || a.later || ' and read in '
    || b.later || '; ' || c.topic || '-' || CAST(c.partition AS STRING) || ' offset '
    || coalesce(CAST(c.offset AS STRING), 'unknown') || ' was written in ' || b.later || ' and read in ' || a.earlier
    || ': none comes first' AS detail
FROM txn_edges a
JOIN txn_edges b ON b.kind = 'wr' AND b.earlier = a.later
JOIN txn_edges c ON c.kind = 'wr' AND c.earlier = b.later AND c.later = a.earlier
WHERE a.kind = 'wr' AND a.earlier < a.later AND a.earlier < b.later AND b.later <> a.later
UNION ALL
SELECT
  'violation' AS kind,
  a.topic, a.partition, a.offset, CAST(NULL AS STRING) AS value,
  'was written in ' || a.earlier || ' and read in ' || a.later || '; what ' || a.later || ' wrote was read in ' || b.later
    || '; what ' || b.later || ' wrote was read in ' || c.later || '; what ' || c.later || ' wrote was read in '
    || a.earlier || ': none comes first' AS detail
FROM txn_edges a
JOIN txn_edges b ON b.kind = 'wr' AND b.earlier = a.later
JOIN txn_edges c ON c.kind = 'wr' AND c.earlier = b.later
JOIN txn_edges d ON d.kind = 'wr' AND d.earlier = c.later AND d.later = a.earlier
WHERE a.kind = 'wr' AND a.earlier < a.later AND a.earlier < b.later AND a.earlier < c.later
  AND a.later <> b.later AND a.later <> c.later AND b.later <> c.later
