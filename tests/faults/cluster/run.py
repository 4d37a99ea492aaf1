"""One run of one fault: users at work, the fault, quiet again, and then everything they were told is checked."""

import asyncio
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.faults import scene
from tests.faults.attempts import Ending
from tests.faults.cluster.calls import Call, CallLog, failed_requests, well_again
from tests.faults.cluster.client import FrontClient
from tests.faults.cluster.faults import Course, Fault, Promise
from tests.faults.cluster.ledger import Entry
from tests.faults.cluster.library import LibraryUser
from tests.faults.cluster.site import Site
from tests.faults.cluster.users import DEADLINE_SECONDS, Names, users
from tests.faults.history import History

CALM_SECONDS = 3.0
"""Before the fault, and after the last call that felt it."""
BACK_SECONDS = 15.0
"""The longest that the cluster may need to get well by itself."""
GIVE_UP_SECONDS = 60.0
"""After that nobody waits for it to get well any more."""
MOMENT = 0.05
"""Seconds between what we see and what clients feel."""


class Run:
    """One fault at a site that is whole; topics and subscriptions are the run's own."""

    def __init__(self, site: Site, fault: Fault, number: int, seed: int) -> None:
        self.names = Names(f"{fault.name}-{number}")
        self.history = History(self.names.subscriptions)
        self.course = Course(self.names.topics[0])
        self.log = CallLog()
        self._site = site
        self._fault = fault
        self._seed = seed
        self._admin = FrontClient(f"{self.names.run}-admin", site.front, self.log)
        library = self.names.library
        endpoint = site.haproxy.endpoint
        self._library = LibraryUser(endpoint, site.token, str(site.cluster.ca), library, library, self.log)

    async def go(self) -> Entry:
        """Do it; what was broken and is not repaired in it stays so."""
        with_library = {**self.history.subscriptions, self.names.library: self.names.library}
        await scene.prepare_topics(self._admin, with_library, {self.names.late: DEADLINE_SECONDS})
        await self._use_and_break()
        ending = await scene.ending(self._admin, with_library)
        self._admin.close()
        return await asyncio.to_thread(self._entry, ending)

    def keep(self, folder: Path) -> None:
        """Write down what was tried and answered, for who looks into a broken law."""
        with (folder / f"{self.names.run}.jsonl").open("w") as file:
            self.history.write(file)
        calls = "".join(f"{call}\n" for call in self.log.calls if call.felt)
        (folder / f"{self.names.run}.calls").write_text(f"{self.course}\n{calls}")

    async def _use_and_break(self) -> None:
        chance = random.Random(self._seed)
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2) as pool:
            async with asyncio.TaskGroup() as group:
                for user in users(self.names, self.history, self._site.front, self.log, chance):
                    group.create_task(user.run())
                threads = [loop.run_in_executor(pool, each) for each in (self._library.publish, self._library.consume)]
                try:
                    await asyncio.sleep(CALM_SECONDS)
                    await self._fault.happens(self._site, self.course)
                    await self._quiet()
                finally:
                    self.log.stopping = True
                await asyncio.gather(*threads)

    async def _quiet(self) -> None:
        """Return when nobody was let down or kept waiting for a while, or when that takes too long."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < give_up:
            await asyncio.sleep(CALM_SECONDS)
            if self.log.quiet_since(time.monotonic() - CALM_SECONDS):
                return

    def _entry(self, ending: Ending) -> Entry:
        calls = self.log.calls
        failed = failed_requests(calls)
        on_the_way = [call for call in failed.values() if self._was_in_flight(call)]
        entry = Entry(
            self._fault.name,
            requests=len({call.request for call in calls}),
            failed=len(failed),
            in_flight=len(on_the_way),
            longest=max(call.seconds for call in calls if not call.what.startswith("library")),
            back=well_again(calls, self.course.until, CALM_SECONDS) - self.course.until,
            sent_again=self._library.repeated(ending.topics[self.names.library]),
        )
        for violation in self._violations(ending):
            entry.charge(violation)
        entry.broken += self._broken_promises(list(failed.values()), on_the_way, entry.back)
        return entry

    def _was_in_flight(self, call: Call) -> bool:
        return call.what == "publish" and call.started < self.course.began + MOMENT and call.ended > self.course.began

    def _violations(self, ending: Ending) -> Iterator[str]:
        """Yield the broken laws."""
        ours = Ending({name: ending.topics[name] for name in self.names.topics}, {
            name: ending.cursors[name] for name in self.names.subscriptions
        })  # fmt: skip
        yield from self.history.violations(ours)
        yield from self._library.violations(ending.topics[self.names.library])
        yield from self.log.wrong

    def _broken_promises(self, failed: Sequence[Call], in_flight: Sequence[Call], back: float) -> Iterator[str]:
        early = [call for call in failed if call.ended < self.course.began]
        excused = {
            Promise.NONE: [],
            Promise.IN_FLIGHT: in_flight,
            Promise.SOME: [call for call in failed if call not in early],
        }[self._fault.promise]
        for call in failed:
            if call not in excused:
                after = call.ended - self.course.began
                yield (
                    f"promise: {call.what} {call.request} failed {after:.1f} s after the fault came:"
                    f" {call.status} {call.text} ({call.seconds:.1f} s)"
                )
        if back > BACK_SECONDS:
            yield f"promise: the service was back only after {back:.1f} s"
        yield from self._fault.check(self.log.calls, self.course)
