"""What a job is."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Generic, TypeVar

import msgspec

from ams.pipeline.running import Run

O = TypeVar("O", bound=msgspec.Struct)  # noqa: E741  # O for options


@dataclass(frozen=True, slots=True)
class Job(Generic[O]):
    """A job by name: what it is for, what can be said to it, and the lines that read, compute and write.

    `run` may be killed at any moment and started again with the same folder: whatever it writes is either known by the
    id of its batch or an absolute replacement of what stood there.
    """

    name: str
    summary: str
    """One line for `ams pipeline list`."""
    options: type[O]
    """A frozen Struct of keyword fields with defaults, each with a docstring that the reference repeats."""
    run: Callable[[Run, O], None]
    harmless: frozenset[str] = frozenset()
    """Options that may be others at each run: they decide nothing of what tables and results hold."""
