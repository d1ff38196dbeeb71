-- C15 vanished read
-- required: yes
-- source: Kafka's replication: consumers read below the high watermark, which every member of the ISR has
-- claim: read_before
-- needs: full read
--
-- A value was read at an offset and no longer stands there in a fresh full read at the end: it was served above the
-- high watermark and then truncated.  Records below the log start offset may be gone by right; unclean elections are
-- set apart.  A topic that may lose acknowledged records (acks=1) still may not lose a record that was read.
-- :examined
SELECT count(*) AS examined
FROM (SELECT DISTINCT r.topic, r.partition, r.offset, r.value FROM reads r WHERE r.witness = 'run') x
-- :findings
SELECT
  CASE WHEN max(CASE WHEN r.unclean THEN 1 ELSE 0 END) = 1 THEN 'expected' ELSE 'violation' END AS kind,
  r.topic, r.partition, r.offset, r.value,
  'was read by ' || min(r.process) || ', and is gone from the full read at the end' AS detail
FROM reads r
LEFT JOIN log_starts l ON l.topic = r.topic AND l.partition = r.partition
WHERE r.offset >= coalesce(l.log_start, 0)
GROUP BY r.topic, r.partition, r.offset, r.value
HAVING max(CASE WHEN r.witness = 'run' THEN 0 ELSE 1 END) = 0
