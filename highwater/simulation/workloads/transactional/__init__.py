"""Transactions: their producers and consumers, what those know, and what they are held to."""
