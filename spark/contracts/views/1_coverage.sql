-- How many records of each topic have each field.
SELECT r.topic, count(*) AS records, 'key' AS field, count(r.key) AS present FROM records r GROUP BY r.topic
UNION ALL
SELECT r.topic, count(*) AS records, 'id' AS field, count(r.id) AS present FROM records r GROUP BY r.topic
UNION ALL
SELECT r.topic, count(*) AS records, 'sequence' AS field, count(r.sequence) AS present FROM records r GROUP BY r.topic
UNION ALL
SELECT r.topic, count(*) AS records, 'time' AS field, count(r.time_ms) AS present FROM records r GROUP BY r.topic
UNION ALL
SELECT r.topic, count(*) AS records, 'amount' AS field, count(r.amount) AS present FROM records r GROUP BY r.topic
UNION ALL
SELECT r.topic, count(*) AS records, 'transaction' AS field, count(r.txn) AS present FROM records r GROUP BY r.topic
