-- One row for each transaction that sent or read a record or was told to end, as its producer knows it.
-- fate: committed; unknown (a commit was asked for, and no answer is certain); never (no commit was asked for, or it was
-- refused for certain).  failed: an answer says that it was aborted, or not committed.
SELECT
  t.txn, t.transactional_id, t.process, t.commit_ns,
  t.committed = 0 AND (t.aborted = 1 OR t.refused = 1) AND (t.commit_ns IS NULL OR t.refused = 1) AS failed,
  CASE
    WHEN t.committed = 1 THEN 'committed'
    WHEN t.commit_ns IS NULL OR t.refused = 1 THEN 'never'
    ELSE 'unknown'
  END AS fate
FROM (
  SELECT
    h.txn,
    max(h.transactional_id) AS transactional_id,
    min(CASE WHEN h.f <> 'poll' THEN h.process END) AS process,
    min(CASE WHEN h.f = 'end_txn' AND h.which = 'commit' AND h.type = 'invoke' THEN h.t_ns END) AS commit_ns,
    max(CASE WHEN h.f = 'end_txn' AND h.which = 'commit' AND h.type = 'ok' THEN 1 ELSE 0 END) AS committed,
    max(CASE WHEN h.f = 'end_txn' AND h.which = 'commit' AND h.type = 'fail' THEN 1 ELSE 0 END) AS refused,
    max(CASE WHEN h.f = 'end_txn' AND h.which = 'abort' AND h.type = 'ok' THEN 1 ELSE 0 END) AS aborted
  FROM history h
  WHERE h.txn IS NOT NULL
  GROUP BY h.txn
) t
