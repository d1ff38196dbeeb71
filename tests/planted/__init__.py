"""Planted histories: small runs with one known fault each, to judge the checks by."""
