"""Compaction: chooses a log and the records that stay, and writes the segments that hold them."""
