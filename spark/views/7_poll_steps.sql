-- Each record that a consumer read beside the one it read before in that partition, with no assign between.
-- An assign line without a topic counts for all of the consumer's partitions.
SELECT steps.*, coalesce(t.unclean, false) AS unclean
FROM (
  SELECT
    p.process, p.topic, p.partition, p.offset, p.value, p.place,
    lag(p.offset) OVER (PARTITION BY p.process, p.topic, p.partition, p.run_of_all, p.run_of_one ORDER BY p.place) AS before_offset,
    lag(p.value) OVER (PARTITION BY p.process, p.topic, p.partition, p.run_of_all, p.run_of_one ORDER BY p.place) AS before_value
  FROM (
    SELECT
      a.*,
      sum(a.assign_one) OVER (PARTITION BY a.process, a.topic, a.partition ORDER BY a.place) AS run_of_one
    FROM (
      SELECT
        h.process, h.topic, h.partition, h.offset, h.value, h.f, h.index AS place,
        CASE WHEN h.f = 'assign' THEN 1 ELSE 0 END AS assign_one,
        sum(CASE WHEN h.f = 'assign' AND h.topic IS NULL THEN 1 ELSE 0 END) OVER (PARTITION BY h.process ORDER BY h.index) AS run_of_all
      FROM history h
      WHERE h.f = 'assign' OR (h.f = 'poll' AND h.type = 'ok' AND h.offset >= 0)
    ) a
    WHERE a.topic IS NOT NULL
  ) p
  WHERE p.f = 'poll'
) steps
LEFT JOIN topic_rules t ON t.topic = steps.topic
WHERE steps.before_offset IS NOT NULL
