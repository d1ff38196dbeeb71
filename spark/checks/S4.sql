-- S4 delivery count
-- required: no
-- source: KIP-932: the delivery count, and group.share.delivery.count.limit
--
-- A member of a share group was given a record with a delivery count below 1 or above the limit; or with one that is not above
-- the count with which a member had been given the record that it released, and whose release was answered.  A count that
-- nobody released may come again where the leader of the partition has changed: it is not stored.
-- :examined
SELECT count(*) AS examined FROM acquisitions a
-- :findings
SELECT
  'violation' AS kind,
  a.topic, a.partition, a.offset, a.value,
  a.process || ' of group ' || a.group_id || ' was given the record for the ' || CAST(a.delivery_count AS STRING)
    || '. time, of ' || CAST(a.delivery_limit AS STRING) AS detail
FROM acquisitions a
WHERE a.delivery_count < 1 OR a.delivery_count > a.delivery_limit
UNION ALL
SELECT
  'violation' AS kind,
  a.topic, a.partition, a.offset, a.value,
  'group ' || a.group_id || ': ' || min(k.process) || ' released it with the delivery count '
    || CAST(max(k.delivery_count) AS STRING) || ', and then ' || a.process || ' got it with '
    || CAST(a.delivery_count AS STRING) AS detail
FROM acknowledgements k
JOIN acquisitions a
  ON a.group_id = k.group_id AND a.topic = k.topic AND a.partition = k.partition AND a.offset = k.offset
WHERE k.which = 'release' AND a.since_ns > k.ended_ns AND a.delivery_count <= k.delivery_count
GROUP BY a.group_id, a.process, a.topic, a.partition, a.offset, a.value, a.delivery_count, a.t_ns
