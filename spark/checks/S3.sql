-- S3 one lock
-- required: no
-- source: KIP-932: an acquired record belongs to one member, until it acknowledges it or its lock ends
--
-- A member of a share group was given a record, then another one was given it, and then the acknowledgement of the first one
-- was answered without an error, although it was not given the record again.  So both had it at once.  Where another member
-- may have ended the record by then, that proves nothing: see S2.
-- :examined
SELECT count(*) AS examined FROM acknowledgements k WHERE k.acquired_ns IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  k.topic, k.partition, k.offset, min(a.value) AS value,
  'group ' || k.group_id || ': ' || k.process || ' had the record, then ' || min(a.process) || ' got it, and the '
    || k.which || ' of the first one was taken' AS detail
FROM acknowledgements k
JOIN acquisitions a
  ON a.group_id = k.group_id AND a.topic = k.topic AND a.partition = k.partition AND a.offset = k.offset
  AND a.process <> k.process
LEFT JOIN (
  SELECT h.group_id, h.topic, h.partition, h.offset, min(h.t_ns) AS t_ns, max(h.process) AS last, min(h.process) AS one
  FROM history h
  WHERE h.f = 'acknowledge' AND h.type = 'invoke' AND h.which <> 'release'
  GROUP BY h.group_id, h.topic, h.partition, h.offset
) e
  ON e.group_id = k.group_id AND e.topic = k.topic AND e.partition = k.partition AND e.offset = k.offset
  AND (e.one <> k.process OR e.last <> k.process)
WHERE a.since_ns > k.acquired_ns AND a.t_ns < k.began_ns AND (e.t_ns IS NULL OR e.t_ns > k.ended_ns)
GROUP BY k.group_id, k.process, k.topic, k.partition, k.offset, k.op, k.which
