"""The checks by Spark: session, tables and views, steps, and the job for spark-submit."""
