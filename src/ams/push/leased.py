"""Leased: an upstream as long as this process holds its lease; after that it hands out nothing and takes nothing."""

import asyncio
from collections.abc import Callable, Sequence

from ams.core.clock import Milliseconds
from ams.push.upstream import Away, HandOut, HandOuts, Pulled, Target, Upstream, Verdict

OVER = "the lease of this process is over"


class Leased:
    """Keeps the promise of `ams.push.upstream.Upstream` until `ends`."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self.ends: float | None = None
        """When the lease ends, by the loop's clock; None: there is none, and no other process delivers."""

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

    @property
    def hand_outs(self) -> HandOuts | None:
        """Return those of the upstream, as long as the lease goes on."""
        found = self._upstream.hand_outs
        return GuardedHandOuts(found, self._require) if found is not None else None

    def _require(self) -> None:
        if self.ends is not None and asyncio.get_running_loop().time() >= self.ends:
            raise Away(OVER)


class GuardedHandOuts:
    """Keeps the promise of `HandOuts` as long as this process may deliver."""

    def __init__(self, hand_outs: HandOuts, require: Callable[[], None]) -> None:
        self._hand_outs = hand_outs
        self._require = require

    async def lease(self, target: Target, *, max_messages: int, max_bytes: int) -> Sequence[HandOut]:
        """Lease messages that may be sent now."""
        self._require()
        return await self._hand_outs.lease(target, max_messages=max_messages, max_bytes=max_bytes)

    async def wait(self, target: Target) -> None:
        """Wait for something to lease."""
        await self._hand_outs.wait(target)

    async def extend(self, target: Target, hand_out: HandOut, seconds: int) -> None:
        """Extend what may still be sent: nothing may be sent that was not extended just before."""
        self._require()
        await self._hand_outs.extend(target, hand_out, seconds)
        self._require()

    async def acknowledge(self, target: Target, hand_out: HandOut) -> None:
        """Acknowledge what is still this process's to deliver."""
        self._require()
        await self._hand_outs.acknowledge(target, hand_out)

    async def fail(self, target: Target, hand_out: HandOut, wait: Milliseconds, verdict: Verdict) -> None:
        """Let fail what is still this process's to deliver."""
        self._require()
        await self._hand_outs.fail(target, hand_out, wait, verdict)

    def release(self, target: Target, hand_out: HandOut) -> None:
        """Let others have them."""
        self._hand_outs.release(target, hand_out)
