-- The lowest and the highest offset at which each value stands in a partition, by binding acknowledgements and reads.
SELECT p.topic, p.partition, p.value, min(p.offset) AS lowest, max(p.offset) AS highest
FROM (
  SELECT r.topic, r.partition, r.value, r.offset FROM reads r
  UNION ALL
  SELECT s.topic, s.partition, s.value, s.offset FROM sends s WHERE s.binding AND s.offset IS NOT NULL
) p
GROUP BY p.topic, p.partition, p.value
