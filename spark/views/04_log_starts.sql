-- The highest log start offset in an answer, where a client asked for it: older records may be gone by right.
SELECT h.topic, h.partition, max(h.offset) AS log_start
FROM history h
WHERE h.f = 'list_offsets' AND h.type = 'ok' AND h.which = 'earliest' AND h.offset > 0
GROUP BY h.topic, h.partition
