-- T3 torn transaction
-- required: no
-- source: KIP-98: a transaction is visible as a whole, or not at all
-- claim: in_transactions
-- needs: final read
--
-- Under read_committed a transaction is there as a whole or not at all: a committed one with every record that was
-- acknowledged in it, one of unknown outcome with all or none, and none that is open, aborting or aborted.
-- :examined
SELECT count(*) AS examined FROM transactions t WHERE t.fate <> 'never'
-- :findings
SELECT
  'violation' AS kind,
  r.topic, r.partition, r.offset, r.value,
  'was read by ' || min(r.process) || ' under read_committed, and the commit of ' || min(t.txn) || ' was '
    || CASE WHEN min(t.fate) = 'never' THEN 'never asked for, or refused' ELSE 'not asked for yet' END AS detail
FROM reads r
JOIN sends s ON s.topic = r.topic AND s.value = r.value
JOIN transactions t ON t.txn = s.txn
WHERE r.committed AND (t.fate = 'never' OR r.t_ns < t.commit_ns)
GROUP BY r.topic, r.partition, r.offset, r.value
UNION ALL
SELECT
  'violation' AS kind,
  p.topic, p.partition, p.offset, p.value,
  CASE
    WHEN p.fate = 'committed' THEN p.txn || ' was committed, and this record of it is not there'
    ELSE p.txn || ' is torn: of ' || CAST(p.acked AS STRING) || ' records ' || CAST(p.visible AS STRING) || ' are there'
  END AS detail
FROM (
  SELECT
    s.topic, s.partition, s.offset, s.value, s.deleted, s.binding, t.txn, t.fate, f.value IS NOT NULL AS there,
    count(*) OVER (PARTITION BY t.txn) AS acked,
    count(f.value) OVER (PARTITION BY t.txn) AS visible
  FROM sends s
  JOIN transactions t ON t.txn = s.txn
  LEFT JOIN (
    SELECT DISTINCT r.topic, r.value FROM reads r WHERE r.committed AND r.witness = 'final'
  ) f ON f.topic = s.topic AND f.value = s.value
  WHERE s.acked AND t.fate <> 'never'
) p
WHERE NOT p.there AND p.binding AND NOT p.deleted AND (p.fate = 'committed' OR p.visible > 0)
