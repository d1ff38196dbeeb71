"""The log directories of one broker: their files, and which of them each partition is in."""
