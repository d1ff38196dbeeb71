-- Which transaction comes before which, by what they wrote and read; aborted ones are left out.
-- kind: ww (in a partition, a record of `earlier` stands right before one of `later`), wr (`later` read a record that
-- `earlier` wrote; it says so by `copy_of`, or a poll names it).
-- topic, partition, offset: the record of `earlier`; to_offset: the one of `later`, under ww.
-- One row for each kind and pair: the first such place.
SELECT e.kind, e.earlier, e.later, e.topic, e.partition, e.offset, e.to_offset, e.reader
FROM (
  SELECT
    x.kind, x.earlier, x.later, x.topic, x.partition, x.offset, x.to_offset, x.reader,
    row_number() OVER (
      PARTITION BY x.kind, x.earlier, x.later
      ORDER BY x.topic, x.partition NULLS FIRST, x.offset NULLS FIRST, x.to_offset NULLS FIRST, x.reader NULLS FIRST
    ) AS nth
  FROM (
    SELECT
      'ww' AS kind, w.before_txn AS earlier, w.txn AS later, w.topic, w.partition, w.before_offset AS offset,
      w.offset AS to_offset, CAST(NULL AS STRING) AS reader
    FROM (
      SELECT
        s.topic, s.partition, s.offset, s.txn,
        lag(s.txn) OVER (PARTITION BY s.topic, s.partition ORDER BY s.offset, s.txn) AS before_txn,
        lag(s.offset) OVER (PARTITION BY s.topic, s.partition ORDER BY s.offset, s.txn) AS before_offset
      FROM sends s
      JOIN transactions t ON t.txn = s.txn
      WHERE s.offset IS NOT NULL AND t.fate = 'committed'
    ) w
    WHERE w.before_txn <> w.txn
    UNION ALL
    SELECT
      'wr' AS kind, s.txn AS earlier, r.txn AS later, s.topic, s.partition, s.offset,
      CAST(NULL AS BIGINT) AS to_offset, r.process AS reader
    FROM (
      SELECT c.txn, c.copy_of AS value, CAST(NULL AS STRING) AS topic, c.process
      FROM sends c
      WHERE c.copy_of IS NOT NULL AND c.txn IS NOT NULL
      UNION ALL
      SELECT h.txn, h.value, h.topic, h.process
      FROM history h
      WHERE h.f = 'poll' AND h.type = 'ok' AND h.txn IS NOT NULL AND h.isolation = 'read_committed'
    ) r
    JOIN sends s ON s.value = r.value AND (r.topic IS NULL OR r.topic = s.topic)
    JOIN transactions a ON a.txn = s.txn
    JOIN transactions b ON b.txn = r.txn
    WHERE a.fate <> 'never' AND b.fate <> 'never'
  ) x
) e
WHERE e.nth = 1
