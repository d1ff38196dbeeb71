"""Users' own topics while they are written: the rules of a contract as plain state machines.

`topic_rules`, `pipeline_rules` and `sum_rules` are pure; `machine` routes rows to them and keeps
their state; `job` is the shell, on Spark's Structured Streaming.
"""
