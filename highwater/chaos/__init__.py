"""A run: a cluster under load, scheduled or random faults, witnesses, and the verdict.

`run` goes from an empty folder to the verdict; `highwater.verdict` judges it.
"""
