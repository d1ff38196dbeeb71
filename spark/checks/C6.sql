-- C6 aborted read (G1a)
-- required: no
-- source: Adya's G1a (aborted reads); KIP-98
--
-- A read returned a value whose only attempts definitely failed; or, under read_committed, one whose transaction
-- definitely failed.
-- :examined
SELECT count(*) AS examined
FROM sends s
LEFT JOIN transactions t ON t.txn = s.txn
WHERE s.outcome = 'fail' OR t.failed
-- :findings
SELECT
  'violation' AS kind,
  r.topic, r.partition, r.offset, r.value,
  'was read by ' || min(r.process) || ', although the attempt of ' || min(s.process) || ' failed for certain' AS detail
FROM reads r
JOIN (
  SELECT f.topic, f.value, min(f.process) AS process
  FROM sends f
  GROUP BY f.topic, f.value
  HAVING min(f.outcome) = 'fail' AND max(f.outcome) = 'fail'
) s ON s.topic = r.topic AND s.value = r.value
GROUP BY r.topic, r.partition, r.offset, r.value
UNION ALL
SELECT
  'violation' AS kind,
  r.topic, r.partition, r.offset, r.value,
  'was read by ' || min(r.process) || ' under read_committed, although transaction ' || min(t.txn) || ' was aborted' AS detail
FROM reads r
JOIN sends s ON s.topic = r.topic AND s.value = r.value
JOIN transactions t ON t.txn = s.txn
WHERE r.committed AND t.failed
GROUP BY r.topic, r.partition, r.offset, r.value
