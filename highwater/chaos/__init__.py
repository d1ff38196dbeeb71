"""A run: a cluster under load, faults on schedule or by chance, witnesses, and the verdict.

`run` goes from an empty folder to the verdict; what judges it is in `highwater.verdict`.
"""
