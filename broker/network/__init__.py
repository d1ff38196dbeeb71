"""Sockets to handlers and back: acceptor, processors, request channel, handler pool; twice.

A `processor` owns its connections and handles bytes.  Between it and the handlers stand a bounded
request channel and a queue for each connection's answers.  The control plane has a second, complete
set (KIP-291).
"""
