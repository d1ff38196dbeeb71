"""The common part of the workload's clients, each of which works in a thread of its own."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from highwater.chaos.workloads.pace import Pace
    from highwater.chaos.workloads.recorder import Recorder, Topic


class Client(ABC):
    """A client; `thread.start()` begins it, and it ends soon after `stopping` is set."""

    def __init__(self, recorder: Recorder, name: str) -> None:
        self.recorder = recorder
        self.name = name
        self.stopping = threading.Event()
        self.failure = ""
        """The error that ended the client early, in words; a run with such a client proves little.
        """
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        try:
            self.work()
        except Exception as error:
            self.failure = f"{type(error).__name__}: {error}"
            logging.getLogger(__name__).exception("%s was ended by an error", self.name)

    @abstractmethod
    def work(self) -> None:
        """Does the client's work, in its thread."""


class PacedProducer(Client):
    """Sends at a pace; when an error ends one instance of it, the next one begins."""

    def __init__(self, recorder: Recorder, topic: Topic, pace: Pace, name: str) -> None:
        super().__init__(recorder, name)
        self.topic = topic
        self.pace = pace

    def work(self) -> None:
        number = 0
        while not self.stopping.is_set():
            self.send_as(f"{self.name}-{number}")
            number += 1

    @abstractmethod
    def send_as(self, process: str) -> None:
        """Runs one instance, with this name in the history, until it is stopped or fails."""


class TopicsReader(Client):
    """Reads all partitions of its topics from the start."""

    def __init__(self, recorder: Recorder, topics: list[Topic], name: str) -> None:
        super().__init__(recorder, name)
        self.topics = topics
