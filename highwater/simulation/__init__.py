"""A cluster of production brokers in one process, in virtual time, broken and checked by a seed."""
