"""The kafka-python of Highwater's own processes.

The wheel carries one (`highwater/_vendor/python`), so that an installation fits beside any version
that its user has.  It comes first on the path of each process that decodes with it
(`highwater.kafka.wire`), or runs its clients (`kafka_python`).  A user's own process must not
import it: `highwater.pytest_plugin` and `highwater.agent.client` do without a Kafka library.
A clone carries none, and uses the locked one of its environment.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

PLACE = Path(__file__).parents[1] / "_vendor" / "python"


def use_private_copy() -> None:
    """Puts the copy first on the path; ImportError where another one is loaded already."""
    place = str(PLACE)
    if place in sys.path or not PLACE.is_dir():
        return
    if "kafka" in sys.modules:
        raise ImportError(
            f"this process has imported another kafka-python ({sys.modules['kafka']}) than"
            f" Highwater's own in {place}: run Highwater in a process of its own"
        )
    sys.path.insert(0, place)


def kafka_python() -> Any:
    """The package `kafka`, with its clients."""
    use_private_copy()
    import kafka.errors

    return kafka
