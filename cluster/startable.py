"""What can be started and stopped, and is a context that does both."""

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Startable(ABC):
    """Use it as a context, or `start` and `stop`."""

    @abstractmethod
    def start(self) -> None:
        """Start it, and return when it serves."""

    @abstractmethod
    def stop(self) -> None:
        """End it."""

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
