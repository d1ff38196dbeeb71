-- L4 non-vacuity
-- required: yes
-- source: none of Kafka's: a check that saw nothing proves nothing
-- verdict: void
--
-- A kind of operation never succeeded, or a fault had no visible effect: such a run proves nothing, whatever the other
-- checks say.  The runner adds to these findings each check that examined nothing.
-- :examined
SELECT
  (SELECT count(DISTINCT h.f) FROM history h WHERE h.type = 'invoke') + (SELECT count(*) FROM faults x) AS examined
-- :findings
SELECT
  'violation' AS kind,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS BIGINT) AS offset,
  CAST(NULL AS STRING) AS value,
  'no ' || h.f || ' ever succeeded' AS detail
FROM history h
GROUP BY h.f
HAVING max(CASE WHEN h.type = 'ok' THEN 1 ELSE 0 END) = 0
UNION ALL
SELECT
  'violation' AS kind,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS BIGINT) AS offset,
  CAST(NULL AS STRING) AS value,
  'nobody hijacked transactional id ' || m.transactional_id || ', which moved money' AS detail
FROM (SELECT DISTINCT t.transactional_id FROM transactions t JOIN sends s ON s.txn = t.txn WHERE s.amount IS NOT NULL) m
JOIN (
  SELECT h.transactional_id, count(DISTINCT h.process) AS owners
  FROM history h WHERE h.f = 'init_txn' AND h.type = 'ok' GROUP BY h.transactional_id
) i ON i.transactional_id = m.transactional_id
WHERE i.owners < 2
UNION ALL
SELECT
  'violation' AS kind,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS BIGINT) AS offset,
  CAST(NULL AS STRING) AS value,
  'fault ' || x.name || ' on ' || coalesce(x.target, 'nothing') || ' had no visible effect' AS detail
FROM faults x
WHERE x.effect IS NULL
