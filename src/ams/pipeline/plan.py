"""What is to be run: a built-in job with its options, or what a definition file says."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ams.pipeline.running import Run


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """A run that can be started, after everything that can be checked was."""

    name: str
    summary: str
    run: "Callable[[Run], None]"
    rows: Mapping[str, Any] = field(default_factory=dict)
    """What decides which rows are kept: see `ams.pipeline.checkpoint.Identity`."""
    options: Mapping[str, Any] = field(default_factory=dict)
    """All else that can be said, as it is in effect."""
    lines: Sequence[str] = ()
    """What it will do, for `ams pipeline show`."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """What of Spark's settings it needs."""
