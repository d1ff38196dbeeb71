-- K8 repeated by the pipeline
-- required: yes
--
-- There are more outputs of an id than inputs. The later outputs are the offenders.
-- :examined
SELECT count(*) AS examined FROM outputs o WHERE o.at_most
-- :findings
SELECT
  'violation' AS kind,
  o.target AS topic, o.partition, o.offset, CAST(NULL AS STRING) AS value,
  'is output number ' || CAST(o.nth AS STRING) || ' of id ' || substr(o.id, 1, 60) || ', of which ' || o.source || ' has '
    || CAST(i.records AS STRING) AS detail
FROM outputs o
JOIN (SELECT x.pipeline, x.id, count(*) AS records FROM inputs x GROUP BY x.pipeline, x.id) i
  ON i.pipeline = o.pipeline AND i.id = o.id
WHERE o.at_most AND o.nth > i.records
