-- C10 non-monotonic send
-- required: yes
-- source: Jepsen's Kafka workload (nonmonotonic send); KIP-98, sequence numbers
-- claim: acked
--
-- A producer's later send stands before its earlier one in a partition.  With idempotence or one request in flight
-- this is a violation, else it is counted.  It is also counted where an ending is unknown, because a client that gives
-- up a record starts a new sequence, and the old one may still arrive.
-- :examined
SELECT count(*) AS examined
FROM sends s JOIN placed p ON p.topic = s.topic AND p.value = s.value AND p.partition = s.partition
WHERE s.outcome <> 'fail'
-- :findings
SELECT
  CASE
    WHEN q.unclean THEN 'expected'
    WHEN q.in_order AND q.sure AND q.before_sure THEN 'violation'
    ELSE 'counted'
  END AS kind,
  q.topic, q.partition, q.offset, q.value,
  q.process || ' sent it after ' || substr(q.before_value, 1, 60) || ', which stands at '
    || CAST(q.before_offset AS STRING) AS detail
FROM (
  SELECT
    o.*,
    lag(o.offset) OVER (PARTITION BY o.process, o.topic, o.partition ORDER BY o.place) AS before_offset,
    lag(o.value) OVER (PARTITION BY o.process, o.topic, o.partition ORDER BY o.place) AS before_value,
    lag(o.sure) OVER (PARTITION BY o.process, o.topic, o.partition ORDER BY o.place) AS before_sure
  FROM (
    SELECT
      s.process, p.topic, p.partition, s.value, s.place, s.in_order,
      CASE WHEN s.binding AND s.offset IS NOT NULL THEN s.offset ELSE p.lowest END AS offset,
      s.outcome = 'ok' AND s.tries = 1 AS sure,
      s.unclean
    FROM sends s
    JOIN placed p ON p.topic = s.topic AND p.value = s.value AND p.partition = s.partition
    WHERE s.outcome <> 'fail'
  ) o
) q
WHERE q.offset < q.before_offset
