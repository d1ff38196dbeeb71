-- C11 real-time order
-- required: yes
-- source: linearizability (Herlihy and Wing) of one partition's appends
-- claim: bound
--
-- A send that started after the acknowledgement of offset o stands at or below o.  Binding acknowledgements only.
-- The offset of a send is the lowest at which it was acknowledged or read.
-- :examined
SELECT count(*) AS examined
FROM sends s JOIN placed p ON p.topic = s.topic AND p.value = s.value
WHERE s.tries = 1 AND NOT s.expect_loss
-- :findings
SELECT
  'violation' AS kind,
  k.topic, k.partition, k.offset, k.value,
  k.process || ' started it after offset ' || CAST(k.known AS STRING) || ' had been acknowledged' AS detail
FROM (
  SELECT
    e.*,
    max(e.acked) OVER (
      PARTITION BY e.topic, e.partition ORDER BY e.t_ns, e.is_ack ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW
    ) AS known
  FROM (
    SELECT
      s.topic, s.partition, s.acked_ns AS t_ns, 1 AS is_ack, s.offset AS acked,
      CAST(NULL AS BIGINT) AS offset, s.value, s.process
    FROM sends s
    WHERE s.binding AND s.offset IS NOT NULL
    UNION ALL
    SELECT
      p.topic, p.partition, s.started_ns AS t_ns, 0 AS is_ack, CAST(NULL AS BIGINT) AS acked,
      p.lowest AS offset, s.value, s.process
    FROM sends s
    JOIN placed p ON p.topic = s.topic AND p.value = s.value
    WHERE s.tries = 1 AND NOT s.expect_loss
  ) e
) k
WHERE k.is_ack = 0 AND k.offset <= k.known
