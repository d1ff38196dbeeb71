"""One partition's records on disk: segments, indexes, epochs, producers, recovery, retention.

`log` has a single writer, which never awaits.  `log_manager` holds the logs of all directories and
does slow work in the background; `cleaner/` compacts.  Nothing here knows about replicas or
clients.
"""
