"""Benchmarks: Highwater and Apache Kafka in turn, by the same client, on the same machine.

The ratios count: absolute figures differ from machine to machine, and from minute to minute on one
that does other work too.  Hence both clusters run at the same time, and the load alternates between
them, round after round; what disturbs a round disturbs both.
"""
