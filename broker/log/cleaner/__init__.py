"""Compaction: the choice of a log, of the records that stay, and the segments that hold them."""
