"""One broker: from the socket to the log.  `server` puts it together; `services` is what its rooms
share.
"""
