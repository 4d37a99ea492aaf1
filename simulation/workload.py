"""What clients do: the operations of a scenario, on the projects that they share, and what may be there after each.

Publishers, consumers, seekers and workers are those of `tests/faults/workload.py`, and note what they tried in a
history. What comes and goes (`Coming`), access lists, quotas and retention are judged here, at each answer. A request
that was not answered has happened or not: then both are possible, until an answer says which.
"""

import asyncio
import dataclasses
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from simulation.clients import FOREVER, SimClient, Traffic
from simulation.histories import parallel_scene as parallel
from simulation.histories.attempts import Attempt, Outcome, Publish
from simulation.histories.history import History
from simulation.histories.parallel_laws import Parallel
from simulation.histories.scene import prepare_topics
from simulation.histories.workload import Consumer, Publisher, Seeker, Worker
from simulation.node import Node

QUOTA = 6  # topics of a project, one more than are always there: two that are made at once would be too many
BRIEF_SECONDS = 600  # retention of one topic
SETTLING_SECONDS = 20.0  # until a request that was not answered has surely ended
PASSING_SECONDS = (30.0, 900.0)
KINDS = tuple(each._replace(deadline=10) for each in parallel.KINDS)
ONES = ((1, 1), (1, 1), (1, 10))


@dataclass(slots=True)
class Coming:
    """Something that comes and goes, by one client: whether it may be there, and whether it may not."""

    may_be_there: bool = False
    may_be_gone: bool = True

    def settle(self, outcome: Outcome, status: int, *, is_there: bool) -> str:
        """Take what a request to make or to remove it was answered; return what is wrong with that, or nothing."""
        if outcome is Outcome.UNKNOWN:
            self.may_be_there = self.may_be_gone = True
            return ""
        refused = {409: True, 404: False}
        if outcome is Outcome.REFUSED and status not in refused:
            return ""
        shown = is_there if outcome is Outcome.DONE else refused[status]
        was = not is_there if outcome is Outcome.DONE else shown
        wrong = not (self.may_be_there if was else self.may_be_gone)
        self.may_be_there, self.may_be_gone = shown, not shown
        return f"answered {status} though it was surely {'gone' if was else 'there'}" if wrong else ""


@dataclass
class Stage:
    """One project."""

    project: str
    node: Node
    traffic: Traffic
    has_pauses: bool = False  # whether the machine stops at times, so that nothing comes soon
    history: History = field(init=False)
    kinds: tuple[Parallel, ...] = KINDS
    brief: list[Publish] = field(default_factory=list)
    coming: dict[str, Coming] = field(default_factory=dict)
    guest: SimClient | None = None

    def __post_init__(self) -> None:
        subscriptions = {"jobs-steady": "jobs", "jobs-sought": "jobs", "work-steady": parallel.TOPIC}
        self.history = History(subscriptions)

    async def prepare(self, admin: SimClient) -> None:
        """Make what is always there."""
        await admin.must("", {})
        await prepare_topics(admin, self.history.subscriptions)
        await parallel.prepare(admin, self.kinds)
        for topic in ("brief", "guarded"):
            await admin.must(f"/topics/{topic}", None, method="PUT")
        await admin.must("/topics/brief:modifyRetention", {"retentionSeconds": BRIEF_SECONDS})
        body = {"projects": [{"project": self.project, "roles": ["publisher"]}]}
        member = await admin.must(f"/members/guest-{self.project}", body)
        if member is None:  # it was made, and the answer was lost
            member = await admin.must(f"/members/guest-{self.project}", None, method="GET")
        self.guest = SimClient(
            f"{self.project}-guest", self.node, self.traffic, self.project, random.Random(self.project), member["token"]
        )
        await admin.must(":modifyQuotas", {"quotas": {"topics": QUOTA}})

    def violated(self, said: str) -> None:
        """Note what broke a law."""
        self.traffic.violations.append(f"project {self.project}: {said}")

    def attempts(self, ends: list[float]) -> list[Attempt]:
        """Return the history's attempts; those without an answer can happen no longer after the next crash."""

        def ended(attempt: Attempt) -> float:
            if attempt.ended != FOREVER:
                return attempt.ended
            return next((end for end in ends if end >= attempt.started), FOREVER)

        return [dataclasses.replace(each, ended=ended(each)) for each in self.history.attempts]


@dataclass
class Actor:
    """One client of one project, doing one operation."""

    stage: Stage
    client: SimClient
    chance: random.Random
    is_first: bool  # of the project's clients; one alone changes access, so that it knows what is so

    async def perform(self, kind: str) -> None:
        """Do one operation."""
        await _OPERATIONS[kind](self)

    async def publish(
        self, topic: str, sizes: tuple[tuple[int, int], ...] = ONES, *, keyed: bool = False, ordered: bool = False
    ) -> None:
        """Publish once; with a key, until it is answered."""
        stage = self.stage
        one = Publisher(self.client, stage.history, self.chance, (topic,), sizes, 0.0, keyed=keyed, ordered=ordered)
        await one.publish(topic, self.chance.randint(*self.chance.choice(sizes)))

    async def consume(self, *, wait: bool = False) -> None:
        """Pull from an ordered subscription, and acknowledge some."""
        name = self.chance.choice(tuple(self.stage.history.subscriptions))
        await Consumer(self.client, self.stage.history, self.chance, name).turn(wait=wait)

    async def work(self, *, wait: bool = False) -> None:
        """Pull from a parallel subscription, and settle some."""
        await self.worker(self.chance.choice(self.stage.kinds).name).turn(wait=wait)

    def worker(self, subscription: str) -> Worker:
        """Return who works on a subscription."""
        return Worker(self.client, self.stage.history, self.chance, subscription)

    async def seek(self) -> None:
        """Move an ordered subscription."""
        await Seeker(self.client, self.stage.history, self.chance, "jobs-sought").turn()

    async def churn(self, kind: str) -> None:
        """Make or remove a topic, or a subscription, of this client's own."""
        name = f"{self.client.name}-own{self.chance.randrange(2)}"
        path = f"/{kind}/{name}"
        thing = self.stage.coming.setdefault(path, Coming())
        makes = self.chance.random() < (0.8 if thing.may_be_gone else 0.2)
        body = {"topic": f"{self.client.resource}/topics/jobs"} if kind == "subscriptions" and makes else None
        found, status = await self.client.ask(
            self.client.next_request(), path, body, method="PUT" if makes else "DELETE", allowed=("404", "409", "429")
        )
        if wrong := thing.settle(found.facts["outcome"], status, is_there=makes):
            self.stage.violated(f"what comes and goes: {'PUT' if makes else 'DELETE'} {path} was {wrong}")
        if found.facts["outcome"] is Outcome.UNKNOWN:
            await asyncio.sleep(SETTLING_SECONDS)
        elif makes and kind == "topics":
            await self.look()

    async def change_access(self) -> None:
        """Put the guest on a list or take it away, and see that the next request knows."""
        guest = self.stage.guest
        assert guest is not None
        if not self.is_first:
            return await self.look()
        lets_in = self.chance.random() < 0.5
        change = {"add" if lets_in else "remove": [f"guest-{self.stage.project}"]}
        changed, _ = await self.client.ask(self.client.next_request(), "/topics/guarded:changeAcl", change)
        if not changed.done:
            return await asyncio.sleep(SETTLING_SECONDS)
        body = {"messages": [{"data": "aGk="}]}
        found, status = await guest.ask(guest.next_request(), "/topics/guarded:publish", body, allowed=("403",))
        if (found.done and not lets_in) or (status == 403 and lets_in):
            self.stage.violated(f"access: {change} was answered, and then a publish of the guest {status}")
        return None

    async def publish_brief(self) -> None:
        """Publish to the topic whose messages are kept for a short time."""
        one = Publisher(self.client, History({}), self.chance, ("brief",), ONES, 0.0)
        self.stage.brief.append(await one.publish("brief", self.chance.randint(1, 5)))

    async def read_brief(self) -> None:
        """See that nothing of it has gone too early."""
        world, stage = self.stage.node.world, self.stage
        began = world.now
        shown, _ = await self.client.ask(self.client.next_request(), "/topics/brief:offsets", None, method="GET")
        if not shown.done:
            return
        for each in stage.brief:
            is_young = each.outcome is Outcome.DONE and world.now - each.started < BRIEF_SECONDS - 1
            if (
                is_young
                and each.ended < began
                and not int(shown.document["min"]) <= each.ids[0] < int(shown.document["max"])
            ):
                stage.violated(
                    f"retention: {each.request}, answered as {each.ids[0]}, is gone already: {shown.document}"
                )

    async def look(self) -> None:
        """List topics: no more than the quota, and none of another project."""
        shown, _ = await self.client.ask(self.client.next_request(), "/topics", None, method="GET")
        if not shown.done:
            return
        names = [each["name"] for each in shown.document["topics"]]
        if len(names) > QUOTA:
            self.stage.violated(f"quota: there are {len(names)} topics, and the quota is {QUOTA}: {names}")
        if foreign := [each for each in names if not each.startswith(f"/projects/{self.stage.project}/")]:
            self.stage.violated(f"isolation: the list of topics has {foreign}")

    async def let_time_pass(self) -> None:
        """Do nothing for some minutes."""
        await asyncio.sleep(self.chance.uniform(*PASSING_SECONDS))


_OPERATIONS: dict[str, Callable[[Actor], Awaitable[None]]] = {
    "publish": lambda actor: actor.publish("jobs"),
    "publish with a key": lambda actor: actor.publish(actor.chance.choice(("jobs", "work")), keyed=True, ordered=True),
    "publish many": lambda actor: actor.publish("jobs", ((50, 150),)),
    "publish ordered": lambda actor: actor.publish("work", ((1, 20),), ordered=True),
    "consume": Actor.consume,
    "wait and consume": lambda actor: actor.consume(wait=True),
    "seek": Actor.seek,
    "work": Actor.work,
    "wait and work": lambda actor: actor.work(wait=True),
    "churn a topic": lambda actor: actor.churn("topics"),
    "churn a subscription": lambda actor: actor.churn("subscriptions"),
    "change access": Actor.change_access,
    "publish brief": Actor.publish_brief,
    "read brief": Actor.read_brief,
    "look": Actor.look,
    "let time pass": Actor.let_time_pass,
}
