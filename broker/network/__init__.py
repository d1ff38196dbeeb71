"""Sockets to handlers and back: acceptor, processors, request channel, handler pool; twice.

A `processor` owns its connections and speaks bytes.  Between it and the handlers stand a bounded
request channel and a queue for each connection's answers.  The control plane has all of it a second
time (KIP-291).
"""
