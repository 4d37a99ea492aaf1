"""One run of one fault: users at work, the fault, recovery, and then a check of every answer."""

import asyncio
import json
import random
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from simulation.histories import parallel_scene as parallel
from simulation.histories import scene
from simulation.histories.attempts import Ending, count_acknowledged
from simulation.histories.history import History
from simulation.histories.parallel_laws import ParallelEnding, TakeOvers, violations, with_more_attempts
from tests.faults.cluster import calls as judges
from tests.faults.cluster.calls import BACK_SECONDS, CallLog, Course
from tests.faults.cluster.clients import FrontClient, LibraryUser
from tests.faults.cluster.faults import Fault
from tests.faults.cluster.site import ClusterSite
from tests.faults.cluster.users import DEADLINE_SECONDS, Names, make_users, make_workers
from tests.faults.http_client import Traffic
from tests.faults.parallel.google import Streams

WARM_SECONDS = 8.0  # how long the users are at work before the fault: brokers and nodes that just started are slow
CALM_SECONDS = 3.0
GIVE_UP_SECONDS = 60.0


@dataclass
class Entry:
    """Effects of a fault in one run: a line of the ledger."""

    fault: str
    requests: int
    failed: int  # requests that were let down: no answer within ten seconds, or an error of the 500s
    in_flight: int  # of them, publishes that were on their way when the fault came
    longest: float  # seconds of the longest call; those of the library, which tries four times, are left out
    back: float
    """Seconds until recovery: since the fault began, or since it ended where nothing can work while it lasts."""
    worked: int  # messages of parallel subscriptions whose acknowledgement was answered
    streamed: int  # of them, those of Google's clients
    taken_over: int  # how often such a subscription went to another node
    sent_again: int  # messages stored twice because the official library sent them again after an answer did not come
    broken: list[str]

    def line(self) -> str:
        return json.dumps(asdict(self) | {"longest": round(self.longest, 2), "back": round(self.back, 2)})


class Run:
    def __init__(self, site: ClusterSite, fault: Fault, number: int, seed: int) -> None:
        self.names = Names(f"{fault.name}-{number}")
        self.history = History(self.names.subscriptions)
        self.course = Course(self.names.topics[0], f"{self.names.run}-")
        self.log = CallLog()
        self._site = site
        self._fault = fault
        self._chance = random.Random(seed)
        self._kinds = with_more_attempts(parallel.kinds_of(self.names.work))
        self._workers = make_workers(self.names, self.history, site.front, self.log, self._chance)
        self._traffic = Traffic()
        self._streams = Streams(self.names.google, self.history, self.course.moment, self._traffic, self._chance)
        self._admin = FrontClient(f"{self.names.run}-admin", site.front, self.log)
        library = self.names.library
        endpoint = site.haproxy.endpoint
        self._library = LibraryUser(endpoint, site.token, str(site.cluster.ca), library, library, self.log)

    async def go(self) -> Entry:
        """Run it; the caller repairs any part that is still broken."""
        with_library = {**self.history.subscriptions, self.names.library: self.names.library}
        await scene.prepare_topics(self._admin, with_library, {self.names.late: DEADLINE_SECONDS})
        await parallel.prepare(self._admin, parallel.kinds_of(self.names.work))
        try:
            await self._streams.start(self._admin, self._site.channel)
            await self._use_and_break()
            await parallel.drain(self._workers)
            await self._streams.work_to_the_end(self._admin)
        finally:
            await self._streams.stop()
        ending = await scene.ending(self._admin, with_library)
        left = [await parallel.ending(self._admin, kinds) for kinds in (self._kinds, self._streams.kinds)]
        for client in (self._admin, *(each.client for each in self._workers)):
            client.close()
        return await asyncio.to_thread(self._entry, ending, left)

    def keep(self, folder: Path) -> None:
        """Write attempts and answers to a file, to investigate a broken law."""
        with (folder / f"{self.names.run}.jsonl").open("w") as file:
            self.history.write(file)
        calls = "".join(f"{call}\n" for call in self.log.calls if call.is_affected(self.log.slow))
        (folder / f"{self.names.run}.calls").write_text(f"{self.course}\n{calls}")

    async def _use_and_break(self) -> None:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(2) as pool:
            async with asyncio.TaskGroup() as group:
                others = make_users(self.names, self.history, self._site.front, self.log, self._chance)
                for user in (*others, *self._workers):
                    group.create_task(user.run())
                threads = [loop.run_in_executor(pool, each) for each in (self._library.publish, self._library.consume)]
                try:
                    await asyncio.sleep(WARM_SECONDS)
                    self.log.learn_pace()
                    await self._fault.happens(self._site, self.course)
                    await self._quiet()
                finally:
                    self.log.stopping = True
                await asyncio.gather(*threads)

    async def _quiet(self) -> None:
        """Return when no call has failed or been slow for a while, or after a timeout."""
        give_up = time.monotonic() + GIVE_UP_SECONDS
        while time.monotonic() < give_up:
            await asyncio.sleep(CALM_SECONDS)
            if self.log.quiet_since(time.monotonic() - CALM_SECONDS):
                return

    def _entry(self, ending: Ending, left: Sequence[ParallelEnding]) -> Entry:
        self.log.calls = calls = judges.with_nodes(self.log.calls, self._site.haproxy.process.log.read_text())
        failed = judges.failed_requests(calls).values()
        back = judges.well_again(calls, self.course.until, CALM_SECONDS, self.log.slow) - self.course.until
        owners = sum(len(TakeOvers(each, self.history.attempts)) for each in self._kinds)
        return Entry(
            self._fault.name, requests=len({call.request for call in calls}), failed=len(failed),
            in_flight=sum(judges.was_in_flight(call, self.course) for call in failed),
            longest=max(call.seconds for call in calls if not call.what.startswith("library")), back=back,
            worked=count_acknowledged(self.history.attempts, *(each.name for each in self._kinds))
            + self._streams.acknowledged_count,
            streamed=self._streams.acknowledged_count, taken_over=owners + self._streams.taken_over,
            sent_again=self._library.count_repeats(ending.topics[self.names.library]),
            broken=[*self._violations(ending, left), *self._broken_promises(back)],
        )  # fmt: skip

    def _violations(self, ending: Ending, left: Sequence[ParallelEnding]) -> Iterator[str]:
        topics = {name: ending.topics[name] for name in set(self.names.subscriptions.values())}
        ours = Ending(topics, {name: ending.cursors[name] for name in self.names.subscriptions})
        resent = {call.request for call in self.log.calls if call.resent}
        attempts = list(judges.with_first_tries(self.history.attempts, resent))
        yield from History(self.history.subscriptions, attempts).violations(ours)
        for each in self._kinds:
            yield from violations(each, ending.topics[each.topic], attempts, left[0])
        yield from self._streams.violations(ending.topics[self.names.google], attempts, left[1])
        yield from self._traffic.violations()
        yield from judges.wrongly_refused(self.log.calls)
        yield from self._library.violations(ending.topics[self.names.library])
        yield from self.log.wrong

    def _broken_promises(self, back: float) -> Iterator[str]:
        yield from judges.find_broken_promises(self._fault.promise, self.log.calls, self.course)
        if back > BACK_SECONDS:
            yield f"promise: the service was back only after {back:.1f} s"
        yield from self._fault.check(self.log.calls, self.course)
