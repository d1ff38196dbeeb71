"""Transactions: their producers and consumers, what those know, and the rules for them."""
