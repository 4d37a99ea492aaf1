"""The operations of clients on shared projects, with the checks of their answers.

Publishers, consumers, seekers and workers come from `simulation.histories.workload` and record their attempts in a
history. This module checks access, quotas and retention at each answer. `simulation.operations` checks resources of a
single client.
"""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from simulation import backups
from simulation.backups import Copy
from simulation.clients import FOREVER, SimClient, Traffic
from simulation.histories import parallel_scene as parallel
from simulation.histories.attempts import ACK, EXTEND, Attempt, Outcome, Publish
from simulation.histories.client import Tried
from simulation.histories.history import History
from simulation.histories.parallel_laws import Parallel
from simulation.histories.scene import prepare_topics
from simulation.histories.workload import Consumer, Publisher, Seeker, Worker
from simulation.node import Node
from simulation.operations import keys, lists, lives, logins, positions, pushing, ranges, schemas
from simulation.scenario import BY_PUSH, OF_BRIEF, OF_SCHEMAS, OPERATIONS, PROJECTS

T = TypeVar("T")
QUOTA_ROOM = 2  # quota beyond the permanent topics and subscriptions: concurrent creations may exceed it
BRIEF_SECONDS = 600  # retention of one topic
SETTLING_SECONDS = 20.0  # until an unanswered request has surely ended
OF_MESSAGES = (":publish", ":pull", ":acknowledge", ":seek")  # changes that need no invalidation of caches
PASSING_SECONDS = (30.0, 900.0)
PLAIN = parallel.KINDS[0]._replace(deadline=10)
KINDS = tuple(each._replace(deadline=10) for each in parallel.KINDS)
SIZES = ((1, 1), (1, 1), (1, 10))


@dataclass
class Stage:
    """One project."""

    project: str
    node: Node
    traffic: Traffic
    has_pauses: bool = False  # the machine pauses at times, so no deadline holds
    has_right_clock: bool = True
    uses: frozenset[str] = frozenset(OPERATIONS) - BY_PUSH  # possible operations; their resources are created
    spreading_seconds: float = 0.0  # until all nodes know of a change
    settling_seconds: float = SETTLING_SECONDS
    history: History = field(init=False)
    kinds: tuple[Parallel, ...] = field(init=False)
    quotas: dict[str, int] = field(default_factory=dict)
    brief: list[Publish] = field(default_factory=list)
    shadows: dict[tuple[type, str], Any] = field(default_factory=dict)
    guest: SimClient | None = None
    copy: Copy | None = None  # the newest backup

    def __post_init__(self) -> None:
        subscriptions = {"jobs-steady": "jobs", "jobs-sought": "jobs", "work-steady": parallel.TOPIC}
        self.history = History(subscriptions)
        first = f"{self.project}-c{PROJECTS.index(self.project)}"
        self.kinds = (*KINDS, PLAIN._replace(name="work-some", passes_over=first))

    async def prepare(self, admin: SimClient) -> None:
        """Create the permanent resources."""
        await admin.must("", {})
        await prepare_topics(admin, self.history.subscriptions)
        await parallel.prepare(admin, self.kinds)
        last = Actor(self, admin, random.Random(self.project), is_first=False)
        if self.uses & OF_BRIEF:
            await admin.must("/topics/brief", None, method="PUT")
            await admin.must("/topics/brief:modifyRetention", {"retentionSeconds": BRIEF_SECONDS})
        if "change access" in self.uses:
            await self._prepare_guest(admin)
        if "move" in self.uses:
            await positions.prepare(last)
        if self.uses & OF_SCHEMAS:
            await schemas.prepare(last)
        if self.uses & BY_PUSH:
            await pushing.prepare(last, PROJECTS.index(self.project))
        for kind in ("topics", "subscriptions"):
            shown = await admin.must(f"/{kind}", None, method="GET")
            self.quotas[kind] = len(shown[kind]) + QUOTA_ROOM
        await admin.must(":modifyQuotas", {"quotas": self.quotas})

    async def _prepare_guest(self, admin: SimClient) -> None:
        await admin.must("/topics/guarded", None, method="PUT")
        body = {"projects": [{"project": self.project, "roles": ["publisher"]}]}
        member = await admin.must(f"/members/guest-{self.project}", body)
        if member is None:  # created, but the answer was lost
            member = await admin.must(f"/members/guest-{self.project}", None, method="GET")
        self.guest = type(admin)(
            f"{self.project}-guest", self.node, self.traffic, self.project, random.Random(self.project), member["token"]
        )

    async def end(self, admin: SimClient) -> None:
        """Check the resources of single clients once faults have ended."""
        last = Actor(self, admin, random.Random(self.project), is_first=False)
        await last.look()
        if self.has_right_clock and self.uses & OF_BRIEF:
            await last.read_brief()
        if self.uses & OF_SCHEMAS:
            await schemas.read_all(last)
        await ranges.read(last)
        if "move" in self.uses:
            await positions.drain(last)
        if self.uses & BY_PUSH:
            await pushing.drain(last)

    def shadow(self, kind: type[T], of: str = "") -> T:
        """Return the expected state of resources of a kind, of one client or of the project."""
        return cast("T", self.shadows.setdefault((kind, of), kind()))

    def complain(self, said: str) -> None:
        """Record a violation."""
        self.traffic.violations.append(f"project {self.project}: {said}")

    def attempts(self, ends: list[float]) -> list[Attempt]:
        """Return the history's attempts. An unanswered one ends at the next crash."""

        def end_time(attempt: Attempt) -> float:
            if attempt.ended != FOREVER:
                return attempt.ended
            return next((end for end in ends if end >= attempt.started), FOREVER)

        return [dataclasses.replace(each, ended=end_time(each)) for each in self.history.attempts]


@dataclass
class Actor:
    """One client of one project, doing one operation."""

    stage: Stage
    client: SimClient
    chance: random.Random
    is_first: bool  # of the project's clients; only this one changes access

    async def perform(self, kind: str) -> None:
        """Do one operation."""
        await _OPERATIONS[kind](self)

    def shadow(self, kind: type[T]) -> T:
        """Return the expected state of this client's own resources of a kind."""
        return self.stage.shadow(kind, self.client.name)

    def stage_shadow(self, kind: type[T]) -> T:
        """Return the expected state of the project's resources of a kind; only its first client changes them."""
        return self.stage.shadow(kind)

    async def change(
        self, path: str, body: object, *, method: str = "POST", allowed: tuple[str, ...] = (), **headers: str
    ) -> tuple[Tried, int]:
        """Send a request, and wait until all nodes know of it. Without an answer, wait until it is surely over."""
        name = self.client.next_request()
        found, status = await self.client.ask(name, path, body, method=method, allowed=allowed, headers=headers)
        if found.facts["outcome"] is Outcome.UNKNOWN:
            await asyncio.sleep(self.stage.settling_seconds)
        elif method != "GET" and not path.endswith(OF_MESSAGES):
            await asyncio.sleep(self.stage.spreading_seconds)
        return found, status

    async def read_range(self, topic: str, first: int = 0) -> list[dict[str, Any]] | None:
        """Return the messages of a topic from an id on; None without an answer."""
        found, _ = await self.change(f"/topics/{topic}:read?from={first}", None, method="GET")
        if not found.is_done:
            return None
        return found.document if isinstance(found.document, list) else [found.document] if found.document else []

    async def publish(
        self, topic: str, sizes: tuple[tuple[int, int], ...] = SIZES, *, keyed: bool = False, ordered: bool = False
    ) -> Publish:
        """Publish once; with a key, retry until it is answered."""
        stage = self.stage
        one = Publisher(self.client, stage.history, self.chance, (topic,), sizes, 0.0, keyed=keyed, ordered=ordered)
        return await one.publish(topic, self.chance.randint(*self.chance.choice(sizes)))

    async def consume(self, *, wait: bool = False) -> None:
        """Pull from an ordered subscription, and acknowledge some."""
        name = self.chance.choice(tuple(self.stage.history.subscriptions))
        await Consumer(self.client, self.stage.history, self.chance, name).turn(wait=wait)

    async def work(self, *, wait: bool = False) -> None:
        """Pull from a parallel subscription, and settle some."""
        await self.worker(self.chance.choice(self.stage.kinds).name).turn(wait=wait)

    async def work_late(self) -> None:
        """Pull, let the leases expire and acknowledge late, perhaps after pulling the same messages again."""
        one = self.worker(self.chance.choice(self.stage.kinds).name)
        given = await one.pull(self.chance.randint(1, 10))
        if not given.messages:
            return
        await one.settle(EXTEND, given.messages, ackDeadlineSeconds=1)
        await asyncio.sleep(self.chance.uniform(0.9, 2.0))
        again = await one.pull(60) if self.chance.random() < 0.7 else None
        await one.settle(ACK, given.messages)
        if again is not None and again.messages:
            await one.settle(ACK, again.messages)

    def worker(self, subscription: str) -> Worker:
        """Return a worker for a subscription."""
        return Worker(self.client, self.stage.history, self.chance, subscription)

    async def work_by_google(self, *, streams: bool = False) -> None:
        """Work on a parallel subscription by Google's calls, single ones or a stream."""
        from simulation.google import GoogleClient, GoogleWorker  # loaded only where a world needs it

        kind = self.chance.choice(self.stage.kinds)
        calls = GoogleClient(self.client)
        one = GoogleWorker(self.client, self.stage.history, self.chance, kind.name, calls=calls, kind=kind)
        await (one.stream() if streams else one.turn(wait=self.chance.random() < 0.2))

    async def publish_by_google(self) -> None:
        """Publish by Google's call."""
        from simulation.google import GoogleClient, publish

        topic, size = self.chance.choice(("jobs", "work")), self.chance.randint(1, 10)
        calls, name = GoogleClient(self.client), self.client.next_request()
        await publish(calls, self.stage.history, topic, name, size, ordered=topic == "work")

    async def seek(self) -> None:
        """Move an ordered subscription."""
        await Seeker(self.client, self.stage.history, self.chance, "jobs-sought").turn()

    async def change_access(self) -> None:
        """Add the guest to an access list or remove it, and check that the next request sees the change."""
        guest = self.stage.guest
        assert guest is not None
        if not self.is_first:
            return await self.look()
        lets_in = self.chance.random() < 0.5
        change = {"add" if lets_in else "remove": [f"guest-{self.stage.project}"]}
        changed, _ = await self.client.ask(self.client.next_request(), "/topics/guarded:changeAcl", change)
        if not changed.is_done:
            return await asyncio.sleep(self.stage.settling_seconds)
        await asyncio.sleep(self.stage.spreading_seconds)
        body = {"messages": [{"data": "aGk="}]}
        found, status = await guest.ask(guest.next_request(), "/topics/guarded:publish", body, allowed=("403",))
        if (found.is_done and not lets_in) or (status == 403 and lets_in):
            self.stage.complain(f"access: {change} was answered, and then a publish of the guest {status}")
        return None

    async def publish_brief(self) -> None:
        """Publish to the topic with a short retention."""
        one = Publisher(self.client, History({}), self.chance, ("brief",), SIZES, 0.0)
        self.stage.brief.append(await one.publish("brief", self.chance.randint(1, 5)))

    async def read_brief(self) -> None:
        """Check that retention removed nothing of it too early."""
        world, stage = self.stage.node.world, self.stage
        began = world.now
        shown, _ = await self.client.ask(self.client.next_request(), "/topics/brief:offsets", None, method="GET")
        if not shown.is_done:
            return
        for each in stage.brief:
            is_young = each.outcome is Outcome.DONE and world.now - each.started < BRIEF_SECONDS - 1
            if (
                is_young
                and each.ended < began
                and not int(shown.document["min"]) <= each.ids[0] < int(shown.document["max"])
            ):
                stage.complain(
                    f"retention: {each.request}, answered as {each.ids[0]}, is gone already: {shown.document}"
                )

    async def look(self) -> None:
        """List the resources under a quota: within its limit, and of this project only."""
        for kind, most in self.stage.quotas.items():
            shown, _ = await self.client.ask(self.client.next_request(), f"/{kind}", None, method="GET")
            if not shown.is_done:
                return
            names = [each["name"] for each in shown.document[kind]]
            if len(names) > most:
                self.stage.complain(f"quota: there are {len(names)} {kind}, and the quota is {most}: {names}")
            if foreign := [each for each in names if not each.startswith(f"/projects/{self.stage.project}/")]:
                self.stage.complain(f"isolation: the list of {kind} has {foreign}")

    async def back_up(self) -> None:
        """Take a backup of the node."""
        self.stage.copy = await backups.take(self.stage.node) or self.stage.copy

    async def let_time_pass(self) -> None:
        """Do nothing for some minutes."""
        await asyncio.sleep(self.chance.uniform(*PASSING_SECONDS))


_OPERATIONS: dict[str, Callable[[Actor], Awaitable[object]]] = {
    "publish": lambda actor: actor.publish("jobs"),
    "publish with a key": lambda actor: actor.publish(actor.chance.choice(("jobs", "work")), keyed=True, ordered=True),
    "publish many": lambda actor: actor.publish("jobs", ((50, 150),)),
    "publish ordered": lambda actor: actor.publish("work", ((1, 20),), ordered=True),
    "consume": Actor.consume,
    "wait and consume": lambda actor: actor.consume(wait=True),
    "seek": Actor.seek,
    "work": Actor.work,
    "wait and work": lambda actor: actor.work(wait=True),
    "publish again": keys.publish_again,
    "read a range": ranges.read,
    "churn a topic": lives.churn_topic,
    "churn a subscription": lives.churn_subscription,
    "use what is new": lives.use,
    "move": positions.move,
    "change a schema": schemas.change,
    "publish checked": schemas.publish,
    "change a list": lists.change,
    "change a login": logins.change,
    "change access": Actor.change_access,
    "publish brief": Actor.publish_brief,
    "read brief": Actor.read_brief,
    "look": Actor.look,
    "let time pass": Actor.let_time_pass,
    "work late": Actor.work_late,
    "back up": Actor.back_up,
    "publish to push": pushing.publish,
    "work by Google": Actor.work_by_google,
    "stream by Google": lambda actor: actor.work_by_google(streams=True),
    "publish by Google": Actor.publish_by_google,
}
