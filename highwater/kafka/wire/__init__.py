"""Bytes to messages and back.

kafka-python's codecs stand behind one door (`messages`, `codec`), and are the wheel's own copy
where there is one.  Produce, Fetch and record batches are parsed by hand, because their payload is
never copied.
"""

from highwater.kafka.private_copy import use_private_copy

use_private_copy()
