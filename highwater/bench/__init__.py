"""Benchmarks: Highwater and Apache Kafka in turn, by the same client, on the same machine.

What counts are the ratios: absolute figures differ from machine to machine, and from minute to
minute on one that does other work too.  Hence both clusters run at the same time, and the load goes
to one and then to the other, round after round; what disturbs a round disturbs both.
"""
