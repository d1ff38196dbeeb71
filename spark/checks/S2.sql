-- S2 done for good
-- required: no
-- source: KIP-932: a record that was accepted or rejected is not delivered again
--
-- A member of a share group accepted or rejected a record, and that was answered without an error.  Afterwards a member of
-- the group got the record again.
--
-- A record that is ended twice is counted, and no violation: of a member whose lock has ended, Kafka takes the
-- acknowledgement without an error once the start offset has passed the record, whoever has ended it.
-- :examined
SELECT count(*) AS examined FROM acknowledgements k WHERE k.final
-- :findings
SELECT
  'violation' AS kind,
  k.topic, k.partition, k.offset, min(a.value) AS value,
  'group ' || k.group_id || ': ' || k.process || ' was answered its ' || k.which || ', and then ' || min(a.process)
    || ' got the record' AS detail
FROM acknowledgements k
JOIN acquisitions a
  ON a.group_id = k.group_id AND a.topic = k.topic AND a.partition = k.partition AND a.offset = k.offset
WHERE k.final AND a.since_ns > k.ended_ns
GROUP BY k.group_id, k.process, k.topic, k.partition, k.offset, k.op, k.which
UNION ALL
SELECT
  'counted' AS kind,
  k.topic, k.partition, k.offset, CAST(NULL AS STRING) AS value,
  'group ' || k.group_id || ': the record was ended ' || CAST(count(*) AS STRING) || ' times, by ' || min(k.process)
    || CASE WHEN min(k.process) <> max(k.process) THEN ' and by ' || max(k.process) ELSE '' END AS detail
FROM acknowledgements k
WHERE k.final
GROUP BY k.group_id, k.topic, k.partition, k.offset
HAVING count(*) > 1
