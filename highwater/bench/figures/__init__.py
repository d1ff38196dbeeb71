"""Figures and their display: memory, slow moments of the machine, medians, ratios, tables."""
