"""`highwater bench` and its commands, one file each."""
