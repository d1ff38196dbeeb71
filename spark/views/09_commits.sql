-- One row for each acknowledged commit of a group's offset, and the time until which it surely counts.
-- until: when a member of aiokafka committed less after the coordinator had answered its OffsetFetch with an error and
-- no offset.  The member takes that for "nothing is committed" and begins again (docs/client-problems.md); its commits
-- from then on are the group's.
SELECT c.index AS place, c.group_id, c.topic, c.partition, c.offset, c.t_ns, min(b.t_ns) AS until
FROM history c
LEFT JOIN (
  SELECT d.group_id, d.topic, d.partition, d.offset, d.t_ns
  FROM history d
  JOIN (
    SELECT q.process, q.group_id, q.topic, q.partition, min(q.index) AS place
    FROM history q
    WHERE q.f = 'offset_fetch' AND q.type = 'fail' AND q.client = 'aiokafka'
    GROUP BY q.process, q.group_id, q.topic, q.partition
  ) r
    ON r.process = d.process AND r.group_id = d.group_id AND r.topic = d.topic AND r.partition = d.partition
  WHERE d.f = 'commit' AND d.type = 'invoke' AND d.client = 'aiokafka' AND d.index > r.place
) b
  ON b.group_id = c.group_id AND b.topic = c.topic AND b.partition = c.partition
  AND b.offset < c.offset AND b.t_ns > c.t_ns
WHERE c.f = 'commit' AND c.type = 'ok'
GROUP BY c.index, c.group_id, c.topic, c.partition, c.offset, c.t_ns
