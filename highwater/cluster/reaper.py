"""Runs a command once its parent is gone: `python -I -m highwater.cluster.reaper
COMMAND...`.

The parent holds the other end of standard input; whatever way it ends, this reads the end of it.  A
parent that ended in order has killed this process first.
"""

from __future__ import annotations

import subprocess
import sys

if __name__ == "__main__":
    sys.stdin.buffer.read()
    subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True, check=False)
