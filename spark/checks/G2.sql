-- G2 resume point
-- required: no
-- source: Kafka's consumer: a member resumes at the committed position
--
-- A group's member was assigned a partition, and the first record that it then read is not the one at the committed
-- offset (or the next record, if that offset is a hole).  Where the client does not tell the committed offset at the
-- assignment, the last acknowledged commit before it stands in, and only a record below that is wrong: a later commit
-- may have succeeded without its answer.
--
-- A member of aiokafka that began at the partition's start is counted, not a violation, if the history has the answers
-- that it got since its assignment, and they explain it: an error in answer to some OffsetFetch, which this client does
-- not read (docs/client-problems.md), and no offset below the commit.  Without such answers it is a violation, as it is for any
-- other client.
-- :examined
SELECT count(*) AS examined
FROM history h WHERE h.f = 'assign' AND h.type = 'ok' AND h.group_id IS NOT NULL
-- :findings
SELECT
  CASE
    WHEN w.client = 'aiokafka' AND w.offset < w.resume AND w.offset = w.begins AND w.refused > 0 AND w.too_low = 0
      THEN 'counted'
    ELSE 'violation'
  END AS kind,
  w.topic, w.partition, w.offset, w.value,
  w.process || ' of group ' || w.group_id || ' was to resume at ' || CAST(w.resume AS STRING)
    || ', and read ' || CAST(w.offset AS STRING) || ' first' AS detail
FROM (
  SELECT
    g.client, g.process, g.group_id, g.topic, g.partition, g.resume, g.offset, g.value, b.begins,
    count(CASE WHEN q.type = 'fail' THEN 1 END) AS refused,
    count(CASE WHEN q.type = 'ok' AND q.offset < g.resume THEN 1 END) AS too_low
  FROM (
    SELECT
      f.client, f.process, f.group_id, f.topic, f.partition, f.place, f.told, f.resume, f.offset, f.value, f.read_at,
      count(r.offset) AS left_out
    FROM (
      SELECT
        a.client, a.process, a.group_id, a.topic, a.partition, a.place, a.told, p.offset, p.value, p.index AS read_at,
        greatest(coalesce(a.told, m.acked, 0), 0) AS resume,
        row_number() OVER (PARTITION BY a.process, a.topic, a.partition, a.place ORDER BY p.index) AS nth
      FROM (
        SELECT
          h.client, h.process, h.group_id, h.topic, h.partition, h.offset AS told, h.index AS place,
          lead(h.index) OVER (PARTITION BY h.process, h.topic, h.partition ORDER BY h.index) AS until
        FROM history h
        WHERE h.f = 'assign' AND h.type = 'ok' AND h.group_id IS NOT NULL
      ) a
      LEFT JOIN (
        SELECT h.index AS place, max(c.offset) AS acked
        FROM history h
        JOIN commits c
          ON c.group_id = h.group_id AND c.topic = h.topic AND c.partition = h.partition
        WHERE h.f = 'assign' AND h.type = 'ok' AND c.t_ns < h.t_ns AND (c.until IS NULL OR c.until >= h.t_ns)
        GROUP BY h.index
      ) m ON m.place = a.place
      JOIN history p
        ON p.process = a.process AND p.topic = a.topic AND p.partition = a.partition
      WHERE p.f = 'poll' AND p.type = 'ok' AND p.offset >= 0
        AND p.index > a.place AND (a.until IS NULL OR p.index < a.until)
    ) f
    LEFT JOIN places r
      ON r.topic = f.topic AND r.partition = f.partition AND r.offset >= f.resume AND r.offset < f.offset
    WHERE f.nth = 1
    GROUP BY
      f.client, f.process, f.group_id, f.topic, f.partition, f.place, f.told, f.resume, f.offset, f.value, f.read_at
  ) g
  LEFT JOIN (
    SELECT o.topic, o.partition, min(o.offset) AS begins FROM places o GROUP BY o.topic, o.partition
  ) b ON b.topic = g.topic AND b.partition = g.partition
  LEFT JOIN history q
    ON q.f = 'offset_fetch' AND q.process = g.process AND q.group_id = g.group_id AND q.topic = g.topic
    AND q.partition = g.partition AND q.index > g.place AND q.index < g.read_at
  WHERE g.offset < g.resume OR (g.told IS NOT NULL AND g.left_out > 0)
  GROUP BY
    g.client, g.process, g.group_id, g.topic, g.partition, g.place, g.resume, g.offset, g.value, b.begins
) w
