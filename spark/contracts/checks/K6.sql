-- K6 equal sums
-- required: yes
--
-- The amounts of a topic, or those of a key in it, do not have the same sum as in the first topic of the list, or not
-- the total that the contract names. The last record of the key is named.
-- :examined
SELECT count(*) AS examined FROM sums s JOIN records r ON r.topic = s.topic WHERE r.amount IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  g.topic,
  CAST((g.last - g.last % 1099511627776) / 1099511627776 AS INT) AS partition,
  g.last % 1099511627776 AS offset,
  CAST(NULL AS STRING) AS value,
  'the amounts' || CASE WHEN g.per_key THEN ' of key ' || g.key ELSE '' END || ' up to here sum to '
    || regexp_replace(CAST(g.amount AS STRING), '[.]?0+$', '') || ', and not to '
    || regexp_replace(CAST(g.wanted AS STRING), '[.]?0+$', '')
    || CASE WHEN g.total IS NULL THEN ' as in ' || g.first_topic ELSE '' END AS detail
FROM (
  SELECT
    w.number, w.topic, w.place, w.per_key, w.total, w.key, h.last,
    coalesce(h.amount, CAST(0 AS DECIMAL(38, 9))) AS amount,
    coalesce(
      w.total,
      max(CASE WHEN w.place = 1 THEN h.amount END) OVER (PARTITION BY w.number, w.key),
      CAST(0 AS DECIMAL(38, 9))
    ) AS wanted,
    max(CASE WHEN w.place = 1 THEN w.topic END) OVER (PARTITION BY w.number, w.key) AS first_topic
  FROM (
    SELECT s.number, s.topic, s.place, s.per_key, s.total, k.key
    FROM sums s
    JOIN (
      SELECT DISTINCT x.number, CASE WHEN x.per_key THEN r.key ELSE '' END AS key
      FROM sums x
      JOIN records r ON r.topic = x.topic
      WHERE r.amount IS NOT NULL
    ) k ON k.number = s.number AND k.key IS NOT NULL
  ) w
  LEFT JOIN (
    SELECT
      x.number, x.topic, CASE WHEN x.per_key THEN r.key ELSE '' END AS key,
      CAST(sum(r.amount) AS DECIMAL(38, 9)) AS amount,
      max(CAST(r.partition AS BIGINT) * 1099511627776 + r.offset) AS last
    FROM sums x
    JOIN records r ON r.topic = x.topic
    WHERE r.amount IS NOT NULL
    GROUP BY x.number, x.topic, CASE WHEN x.per_key THEN r.key ELSE '' END
  ) h ON h.number = w.number AND h.topic = w.topic AND h.key = w.key
) g
WHERE g.amount <> g.wanted
