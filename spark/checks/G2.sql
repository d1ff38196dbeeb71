-- G2 resume point
-- required: no
--
-- A group's member was assigned a partition, and the first record that it then read is not the one at the committed
-- offset (the next there is, where that one is a hole).  Where the client does not tell the committed offset at the
-- assignment, the last acknowledged commit before it stands in, and only a record below that is wrong: a later commit
-- may have succeeded without its answer.
-- :examined
SELECT count(*) AS examined
FROM history h WHERE h.f = 'assign' AND h.type = 'ok' AND h.group_id IS NOT NULL
-- :findings
SELECT
  'violation' AS kind,
  w.topic, w.partition, w.offset, w.value,
  w.process || ' of group ' || w.group_id || ' was to resume at ' || CAST(w.resume AS STRING)
    || ', and read ' || CAST(w.offset AS STRING) || ' first' AS detail
FROM (
  SELECT
    f.process, f.group_id, f.topic, f.partition, f.place, f.told, f.resume, f.offset, f.value,
    count(r.offset) AS left_out
  FROM (
    SELECT
      a.process, a.group_id, a.topic, a.partition, a.place, a.told, p.offset, p.value,
      greatest(coalesce(a.told, m.acked, 0), 0) AS resume,
      row_number() OVER (PARTITION BY a.process, a.topic, a.partition, a.place ORDER BY p.index) AS nth
    FROM (
      SELECT
        h.process, h.group_id, h.topic, h.partition, h.offset AS told, h.index AS place,
        lead(h.index) OVER (PARTITION BY h.process, h.topic, h.partition ORDER BY h.index) AS until
      FROM history h
      WHERE h.f = 'assign' AND h.type = 'ok' AND h.group_id IS NOT NULL
    ) a
    LEFT JOIN (
      SELECT h.index AS place, max(c.offset) AS acked
      FROM history h
      JOIN history c
        ON c.group_id = h.group_id AND c.topic = h.topic AND c.partition = h.partition
      WHERE h.f = 'assign' AND h.type = 'ok' AND c.f = 'commit' AND c.type = 'ok' AND c.t_ns < h.t_ns
      GROUP BY h.index
    ) m ON m.place = a.place
    JOIN history p
      ON p.process = a.process AND p.topic = a.topic AND p.partition = a.partition
    WHERE p.f = 'poll' AND p.type = 'ok' AND p.offset >= 0
      AND p.index > a.place AND (a.until IS NULL OR p.index < a.until)
  ) f
  LEFT JOIN reads r
    ON r.topic = f.topic AND r.partition = f.partition AND r.offset >= f.resume AND r.offset < f.offset
  WHERE f.nth = 1
  GROUP BY f.process, f.group_id, f.topic, f.partition, f.place, f.told, f.resume, f.offset, f.value
) w
WHERE w.offset < w.resume OR (w.told IS NOT NULL AND w.left_out > 0)
