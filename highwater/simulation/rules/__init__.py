"""The rules of a simulated cluster, checked from outside after every step.

`rule_list` names the rules; docs/rules.md explains them.
"""
