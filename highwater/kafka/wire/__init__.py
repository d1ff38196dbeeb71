"""Bytes to messages and back.

kafka-python's codecs stand behind one door (`messages`, `codec`).  Produce, Fetch and record
batches are parsed by hand, because their payload is never copied.
"""
