-- What stands in the topics at the end, by the full reads together.
SELECT DISTINCT r.topic, r.partition, r.offset, r.key, r.value
FROM reads r
WHERE r.witness IN ('final', 'spark')
