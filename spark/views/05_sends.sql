-- One row for each record that a producer attempted, with how it ended.
-- outcome: ok; fail (certainly not appended); info (unknown; so is an attempt without an ending).
-- An acknowledgement *binds* when it was given for acks=all on a topic that promises to lose nothing.
-- Clients book an unknown offset as -1 (a duplicate that the broker recognised): NULL here.
-- seen: some witness read the value; deleted: it lay below the log start offset at the end.
-- txn, amount, copy_of: the transaction that sent it, the amount that it moves, and the value that it is a copy of.
-- tries: how often the application attempted this value; two attempts may leave two copies by right.
SELECT
  s.op, s.topic, s.value, s.process, s.client, s.key, s.asked_partition, s.partition, s.offset, s.leader_epoch,
  s.outcome, s.place, s.started_ns, s.acked_ns, s.acks, s.idempotent, s.in_order,
  s.txn, s.amount, s.copy_of,
  coalesce(t.expect_loss OR t.unclean, false) AS expect_loss,
  coalesce(t.unclean, false) AS unclean,
  s.outcome = 'ok' AND s.acks <> 0 AS acked,
  s.outcome = 'ok' AND s.acks = -1 AND NOT coalesce(t.expect_loss OR t.unclean, false) AS binding,
  r.value IS NOT NULL AS seen,
  coalesce(s.offset < l.log_start, false) AS deleted,
  count(*) OVER (PARTITION BY s.topic, s.value) AS tries
FROM (
  SELECT
    h.op,
    h.topic,
    h.value,
    min(h.process) AS process,
    min(h.client) AS client,
    max(h.key) AS key,
    max(CASE WHEN h.type = 'invoke' THEN h.partition END) AS asked_partition,
    coalesce(max(CASE WHEN h.type = 'ok' THEN h.partition END), max(h.partition)) AS partition,
    max(CASE WHEN h.type = 'ok' AND h.offset >= 0 THEN h.offset END) AS offset,
    max(CASE WHEN h.type = 'ok' AND h.leader_epoch >= 0 THEN h.leader_epoch END) AS leader_epoch,
    CASE
      WHEN max(CASE WHEN h.type = 'ok' THEN 1 ELSE 0 END) = 1 THEN 'ok'
      WHEN max(CASE WHEN h.type = 'fail' THEN 1 ELSE 0 END) = 1 THEN 'fail'
      ELSE 'info'
    END AS outcome,
    min(h.index) AS place,
    min(h.t_ns) AS started_ns,
    min(CASE WHEN h.type = 'ok' THEN h.t_ns END) AS acked_ns,
    coalesce(max(h.acks), -1) AS acks,
    max(CASE WHEN h.idempotent THEN 1 ELSE 0 END) = 1 AS idempotent,
    max(CASE WHEN h.idempotent OR h.max_in_flight = 1 THEN 1 ELSE 0 END) = 1 AS in_order,
    max(h.txn) AS txn,
    max(h.amount) AS amount,
    max(h.copy_of) AS copy_of
  FROM history h
  WHERE h.f = 'send'
  GROUP BY h.op, h.topic, h.value
) s
LEFT JOIN topic_rules t ON t.topic = s.topic
LEFT JOIN log_starts l ON l.topic = s.topic AND l.partition = s.partition
LEFT JOIN (SELECT DISTINCT x.topic, x.value FROM reads x) r ON r.topic = s.topic AND r.value = s.value
