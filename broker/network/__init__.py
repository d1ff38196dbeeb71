"""The way from sockets to handlers and back: acceptor, processors, request channel, handler pool.

A `processor` owns its connections and handles bytes.  Between it and the handlers are a bounded
request channel and the processor's response queue.  The control plane has a second, complete set
(KIP-291).
"""
