"""Contracts: what a user's own topics promise, and whether their records keep it.

`contract_model` reads a contract's file; `fields` finds key, number, time, ... in a record.  The
rules are the SQL files of spark/contracts, on the tables of `tables`; `duck_engine` (with records
from `reader`) and `spark_contract` run them, and `judge` gives the verdict.
"""
