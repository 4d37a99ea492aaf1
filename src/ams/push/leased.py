"""An upstream by a lease: when the lease is over, nothing is handed to workers or taken from them any more.

Who holds a lease stops before it ends (`ams.push.holding`). A process that stood still, as a frozen machine, wakes up
with workers that know nothing of it; what they would send or acknowledge may be another's by now.
"""

import asyncio
from collections.abc import Sequence

from ams.push.target import Target
from ams.push.upstream import Away, Pulled, Upstream, Verdict

OVER = "the lease of this process is over"


class Leased:
    """Keeps the promise of `ams.push.upstream.Upstream` until `ends`."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.ends: float | None = None
        """When the lease ends, by the loop's clock; None: there is none, and nobody else delivers."""

    async def pull(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[Pulled]:
        """Return messages that may be sent now."""
        found = await self._upstream.pull(target, max_messages=max_messages, max_bytes=max_bytes)
        self._require()
        return found

    async def acknowledge(self, target: Target, last: Pulled) -> None:
        """Acknowledge what is still this process's to deliver."""
        self._require()
        await self._upstream.acknowledge(target, last)

    async def dead_letter(self, target: Target, message: Pulled, verdict: Verdict) -> None:
        """Put aside what is still this process's to deliver."""
        self._require()
        await self._upstream.dead_letter(target, message, verdict)

    def forget(self, target: Target) -> None:
        """Forget what the upstream remembers."""
        self._upstream.forget(target)

    def patience(self, target: Target) -> float | None:
        """Return what the upstream says."""
        return self._upstream.patience(target)

    def _require(self) -> None:
        if self.ends is not None and asyncio.get_running_loop().time() >= self.ends:
            raise Away(OVER)
