-- T5 exactly-once copy
-- required: no
-- source: KIP-98 and KIP-447: consume, transform, produce exactly once
-- needs: final read
--
-- A copier reads a topic and writes each value to another one, in transactions with its offsets.  The copies that
-- read_committed shows are the input: every acknowledged value once, none twice, and nothing else.  An input that
-- itself stands twice in its topic, which is C2's to judge, is copied twice by right.
-- :examined
SELECT count(*) AS examined
FROM reads r
JOIN sends s ON s.topic = r.topic AND s.value = r.value
WHERE r.committed AND r.witness = 'final' AND s.copy_of IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  i.topic, i.partition, i.offset, i.value,
  'has no copy that was committed' AS detail
FROM sends i
JOIN (
  SELECT DISTINCT o.topic FROM sends o JOIN (SELECT DISTINCT c.copy_of FROM sends c WHERE c.copy_of IS NOT NULL) k
    ON k.copy_of = o.value
) n ON n.topic = i.topic
LEFT JOIN (
  SELECT DISTINCT s.copy_of FROM sends s
  JOIN reads r ON r.topic = s.topic AND r.value = s.value
  WHERE s.copy_of IS NOT NULL AND r.committed AND r.witness = 'final'
) v ON v.copy_of = i.value
WHERE i.binding AND i.copy_of IS NULL AND v.copy_of IS NULL AND NOT i.deleted
UNION ALL
SELECT
  'violation' AS kind,
  d.topic, d.partition, d.offset, d.value,
  'is one of ' || CAST(d.copies AS STRING) || ' committed copies of ' || substr(d.copy_of, 1, 60) AS detail
FROM (
  SELECT u.*, count(*) OVER (PARTITION BY u.copy_of) AS copies
  FROM (
    SELECT DISTINCT r.topic, r.partition, r.offset, r.value, s.copy_of
    FROM reads r
    JOIN sends s ON s.topic = r.topic AND s.value = r.value
    WHERE s.copy_of IS NOT NULL AND r.committed AND r.witness = 'final'
  ) u
) d
LEFT JOIN (
  SELECT w.value, count(*) AS times
  FROM (SELECT DISTINCT r.topic, r.partition, r.offset, r.value FROM reads r WHERE r.committed AND r.witness = 'final') w
  GROUP BY w.value
) t ON t.value = d.copy_of
WHERE d.copies > 1 AND d.copies > coalesce(t.times, 1)
UNION ALL
SELECT
  'violation' AS kind,
  s.topic, s.partition, s.offset, s.value,
  'is a copy of ' || substr(s.copy_of, 1, 60) || ', which nobody sent' AS detail
FROM sends s
LEFT JOIN sends i ON i.value = s.copy_of
WHERE s.copy_of IS NOT NULL AND i.value IS NULL
