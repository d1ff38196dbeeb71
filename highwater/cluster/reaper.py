"""Runs a command once its parent is gone: `python -I -m highwater.cluster.reaper
COMMAND...`.

The parent holds the other end of standard input; however the parent ends, this process reads the
end of input.  A parent that ends in order kills this process first.
"""

from __future__ import annotations

import subprocess
import sys

if __name__ == "__main__":
    sys.stdin.buffer.read()
    subprocess.run(sys.argv[1:], stdin=subprocess.DEVNULL, capture_output=True, check=False)
