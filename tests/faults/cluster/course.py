"""When a fault came, when the last part of it was broken, and when what was broken worked again."""

import time
from dataclasses import dataclass


@dataclass
class Course:
    """When a fault came and when it was over, and which topic it is about."""

    topic: str
    work: str = ""
    """What the names of all parallel subscriptions begin with."""
    began: float = 0.0
    struck: float = 0.0
    """When the last part was broken."""
    gone: float = 0.0
    """When a node that is killed was surely dead: it is stopped first, and what comes to it until then is on its way to
    it."""
    node: str = ""
    """Which node that is."""
    helped: float = float("inf")
    """When somebody began to put it right."""
    released: float = float("-inf")
    """When what was frozen or held up went on, and with it what was on its way through it."""
    ended: float | None = None
    """None: the cluster has to get over it without help."""

    def begin(self) -> None:
        """Note that it comes now."""
        self.began = self.struck = time.monotonic()

    def lose(self, node: str) -> None:
        """Note that this node is dead now."""
        self.node, self.gone = node, time.monotonic()

    def strike(self) -> None:
        """Note that another part is broken now."""
        self.struck = time.monotonic()

    def help(self) -> None:
        """Note that it is put right from now on."""
        self.helped = time.monotonic()

    def release(self) -> None:
        """Note that what was held up goes on from now on."""
        self.released = time.monotonic()

    def end(self) -> None:
        """Note that what was broken works again."""
        self.ended = time.monotonic()

    @property
    def until(self) -> float:
        """From when on the cluster has to get well."""
        return self.struck if self.ended is None else self.ended
