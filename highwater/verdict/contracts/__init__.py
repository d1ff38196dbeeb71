"""Contracts: what a user's own topics promise, and whether their records keep it.

`model` reads a contract's file; `fields` finds key, number, time, ... in a record; the rules are
the SQL files of spark/contracts, on the tables of `tables`, run by `duck_engine` (records from
`reader`) and by `spark_contract`; `judge` gives the verdict.
"""
