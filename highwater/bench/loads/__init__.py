"""The loads that the benchmarks put on a cluster."""
