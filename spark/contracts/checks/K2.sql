-- K2 gap
-- required: yes
--
-- Between two numbers that follow each other (of a key, a partition, or the topic) one is missing. Offsets do not
-- count: compaction and the markers of transactions take some. In a compacted topic a missing number is counted, and
-- no violation, unless its neighbours stand side by side.
-- :examined
SELECT count(*) AS examined FROM numbered n WHERE n.no_gap
-- :findings
SELECT
  CASE
    WHEN g.compacted AND NOT (g.next_partition = g.partition AND g.next_offset = g.offset + 1) THEN 'counted'
    ELSE 'violation'
  END AS kind,
  g.topic, g.partition, g.offset, CAST(NULL AS STRING) AS value,
  'has number ' || CAST(g.sequence AS STRING) || g.whose || ', and the next one is ' || CAST(g.next_sequence AS STRING)
    || ' (' || g.topic || '-' || CAST(g.next_partition AS STRING) || ' offset ' || CAST(g.next_offset AS STRING) || ')'
    AS detail
FROM (
  SELECT
    n.topic, n.partition, n.offset, n.sequence, n.whose, n.compacted,
    lead(n.sequence) OVER (PARTITION BY n.topic, n.scope ORDER BY n.sequence) AS next_sequence,
    lead(n.partition) OVER (PARTITION BY n.topic, n.scope ORDER BY n.sequence) AS next_partition,
    lead(n.offset) OVER (PARTITION BY n.topic, n.scope ORDER BY n.sequence) AS next_offset
  FROM numbered n
  WHERE n.no_gap AND n.nth = 1
) g
WHERE g.next_sequence - 1 > g.sequence
