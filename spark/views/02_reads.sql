-- One row for each record that any witness read.
-- witness: run (polls while faults were active), final (the harness's full read after healing), spark (the full
-- read of an independent client).  A share group's members read, too (f = acquire).  committed: under read_committed, which passes over aborted records.
SELECT
  w.witness, w.process, w.topic, w.partition, w.offset, w.key, w.value, w.leader_epoch, w.t_ns, w.place,
  w.committed,
  coalesce(t.unclean, false) AS unclean
FROM (
  SELECT
    CASE WHEN h.phase = 'final' THEN 'final' ELSE 'run' END AS witness,
    h.process, h.topic, h.partition, h.offset, h.key, h.value,
    CASE WHEN h.leader_epoch >= 0 THEN h.leader_epoch END AS leader_epoch,
    h.t_ns, h.index AS place,
    coalesce(h.isolation = 'read_committed', false) AS committed
  FROM history h
  WHERE h.f IN ('poll', 'acquire') AND h.type = 'ok' AND h.offset >= 0
  UNION ALL
  SELECT
    'spark' AS witness,
    'spark' AS process, c.topic, c.partition, c.offset, c.key, c.value,
    CAST(NULL AS INT) AS leader_epoch,
    CAST(NULL AS BIGINT) AS t_ns, CAST(NULL AS BIGINT) AS place,
    false AS committed
  FROM consumed c
) w
LEFT JOIN topic_rules t ON t.topic = w.topic
