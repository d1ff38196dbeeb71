"""Rules that are checked while a run goes on: those of spark/watch.py.

`topic_watch` and `transaction_watch` are the machines: one for each topic, and one for all
transactions.  They are pure: lines of the history and records of the topics in, alarms out.
`dispatch` says which line goes to which of them, `machines` keeps their state, and `pieces` and
`job` are the shell, on Spark.
"""
