"""Planted histories: small runs with one known fault each, by which the checks are judged."""
