"""Compaction: which log, which of its records stay, and the segments that hold them."""
