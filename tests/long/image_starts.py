"""Starts containers of highwater/cluster one after another; none may fail.

usage: python -m tests.long.image_starts [COUNT]
"""

from __future__ import annotations

import statistics
import sys
import time

from tests.cluster_image import build, compressed_mb, container, unpacked_mb


def once() -> tuple[float, float]:
    """Seconds from `docker run` until the control API answers, and from the POST until the cluster
    serves."""
    began = time.monotonic()
    with container() as started:
        answers = time.monotonic()
        started.start_cluster()
        serves = time.monotonic()
        started.control.create_topic("orders", partitions=3)
    return answers - began, serves - answers


def main(count: int) -> None:
    build()
    first, second = zip(*(once() for _ in range(count)), strict=True)
    print(
        f"{count} starts, one after another, and none failed: the control API answers after a "
        f"median {statistics.median(first):.1f} s, worst {max(first):.1f} s; from its POST on the "
        f"cluster serves after a median {statistics.median(second):.1f} s, worst "
        f"{max(second):.1f} s; the image has {unpacked_mb():.0f} MB, "
        f"{compressed_mb():.0f} MB compressed"
    )


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 50)
