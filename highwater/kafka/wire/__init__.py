"""Bytes to messages and back.

kafka-python's codecs stand behind one door (`messages`, `codec`).  Produce, Fetch and record
batches are by hand, because their payload is never copied.
"""
