"""How figures are taken and shown: memory, slow moments of the machine, medians, ratios, tables."""
