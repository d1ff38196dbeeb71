-- The promises of each topic.
-- expect_loss: acknowledged records may be lost there (acks=1), and a run that was arranged so must see it.
-- unclean: unclean elections were allowed, so even records that were read may vanish.
SELECT
  t.topic,
  max(t.expect_loss) = 1 AS expect_loss,
  max(t.unclean) = 1 AS unclean
FROM (
  SELECT
    n.topic AS topic,
    CASE WHEN n.expect_loss THEN 1 ELSE 0 END AS expect_loss,
    CASE WHEN n.unclean THEN 1 ELSE 0 END AS unclean
  FROM topics n
  UNION ALL
  SELECT DISTINCT
    h.topic AS topic,
    CASE WHEN h.expect_loss THEN 1 ELSE 0 END AS expect_loss,
    0 AS unclean
  FROM history h
  WHERE h.topic IS NOT NULL
) t
GROUP BY t.topic
