-- T4 money
-- required: no
-- source: KIP-98; the bank test of Jepsen
-- needs: final read
--
-- Each transfer is a transaction that takes from one account what it gives to another, so what read_committed shows
-- sums to zero.  And a teller that lost its transactional id to another instance (a hijack) can commit nothing more.
-- :examined
SELECT count(*) AS examined
FROM reads r
JOIN sends s ON s.topic = r.topic AND s.value = r.value
WHERE r.committed AND r.witness = 'final' AND s.amount IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  m.topic, CAST(NULL AS INT) AS partition, CAST(NULL AS BIGINT) AS offset, CAST(NULL AS STRING) AS value,
  'the accounts sum to ' || CAST(m.total AS STRING) || ' over ' || CAST(m.records AS STRING) || ' records' AS detail
FROM (
  SELECT v.topic, CAST(sum(s.amount) AS BIGINT) AS total, count(*) AS records
  FROM (
    SELECT DISTINCT r.topic, r.partition, r.offset, r.value FROM reads r WHERE r.committed AND r.witness = 'final'
  ) v
  JOIN (SELECT x.topic, x.value, max(x.amount) AS amount FROM sends x GROUP BY x.topic, x.value) s
    ON s.topic = v.topic AND s.value = v.value
  WHERE s.amount IS NOT NULL
  GROUP BY v.topic
) m
WHERE m.total <> 0
UNION ALL
SELECT DISTINCT
  'violation' AS kind,
  e.topic, CAST(NULL AS INT) AS partition, CAST(NULL AS BIGINT) AS offset, CAST(NULL AS STRING) AS value,
  e.process || ' committed ' || e.txn || ', although ' || b.process || ' had taken over ' || e.transactional_id
    || ' before it asked' AS detail
FROM history e
JOIN history i ON i.f = 'end_txn' AND i.type = 'invoke' AND i.op = e.op
JOIN history a
  ON a.f = 'init_txn' AND a.type = 'ok' AND a.process = e.process AND a.transactional_id = e.transactional_id
JOIN history b
  ON b.f = 'init_txn' AND b.type = 'ok' AND b.process <> e.process AND b.transactional_id = e.transactional_id
JOIN (SELECT DISTINCT s.txn FROM sends s WHERE s.acked AND s.txn IS NOT NULL) x ON x.txn = e.txn
WHERE e.f = 'end_txn' AND e.type = 'ok' AND e.which = 'commit' AND b.t_ns > a.t_ns AND b.t_ns < i.t_ns
