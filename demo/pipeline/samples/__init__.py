"""Made-up messages in the shape of real ones: seeded, with late, doubled and broken ones among them.

Each module is one world: `TOPICS`, the names of its topics, and `messages(seed, day, ...)`, which yields `Sample`s in
the order they are published in and depends on nothing but its arguments.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Sample:
    """A message to publish."""

    topic: str
    data: bytes
    attributes: Mapping[str, str] = field(default_factory=dict)
