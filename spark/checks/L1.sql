-- L1 progress
-- required: no
-- source: none of Kafka's: what a cluster with a majority of its brokers is for
--
-- After a fault that a cluster should survive, some send with acks=all is acknowledged within 30 seconds (Kafka's
-- default ZooKeeper session is 18), while producers go on.  Times near a fault that stops all brokers are left out.
-- :examined
SELECT count(*) AS examined
FROM faults x
WHERE x.effect IS NOT NULL AND x.name IN (
  'kill', 'stop', 'restart', 'pause', 'cut', 'isolate', 'hold', 'drop', 'swap_leader', 'move_controller',
  'preferred_election', 'expire_session'
)
-- :findings
SELECT
  'violation' AS kind,
  CAST(NULL AS STRING) AS topic, CAST(NULL AS INT) AS partition, CAST(NULL AS BIGINT) AS offset,
  CAST(NULL AS STRING) AS value,
  'no send with acks=all was acknowledged in the 30 s after ' || x.name || ' of ' || coalesce(x.target, 'nothing') AS detail
FROM faults x
LEFT JOIN sends s ON s.binding AND s.acked_ns > x.t_ns AND s.acked_ns <= x.t_ns + 30000000000
LEFT JOIN faults z
  ON z.name IN ('kill_all', 'start_all') AND z.t_ns > x.t_ns - 30000000000 AND z.t_ns < x.t_ns + 30000000000
WHERE x.effect IS NOT NULL AND x.name IN (
    'kill', 'stop', 'restart', 'pause', 'cut', 'isolate', 'hold', 'drop', 'swap_leader', 'move_controller',
    'preferred_election', 'expire_session'
  )
  AND s.op IS NULL AND z.name IS NULL
  AND (SELECT max(q.started_ns) FROM sends q WHERE NOT q.expect_loss AND q.acks = -1) >= x.t_ns + 30000000000
