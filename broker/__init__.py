"""One broker, from the socket to the log.  `server` puts it together; `services` holds what its
parts share.
"""
