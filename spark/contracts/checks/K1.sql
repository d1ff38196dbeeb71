-- K1 unlike the contract
-- required: yes
--
-- A record has no value at the place that the contract names, or one that is not of its kind. A tombstone needs
-- no fields of a value. A place that no record of a topic has makes the verdict void instead.
-- :examined
SELECT count(*) AS examined FROM records r
-- :findings
SELECT
  'violation' AS kind,
  r.topic, r.partition, r.offset, CAST(NULL AS STRING) AS value,
  r.wrong AS detail
FROM records r
JOIN coverage c ON c.topic = r.topic AND c.field = r.wrong_field
WHERE c.present > 0
