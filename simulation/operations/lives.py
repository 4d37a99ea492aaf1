"""Topics and subscriptions that a client creates, deletes and creates again: nothing of an earlier life comes back."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from simulation.histories.attempts import Outcome, Publish
from simulation.histories.payload import message, name_of
from simulation.operations.shadow import Coming, Possible

if TYPE_CHECKING:
    from simulation.workload import Actor

SHARED_TOPIC = "jobs"  # a permanent topic that others publish to


@dataclass
class OwnTopic:
    """A topic of one client."""

    coming: Coming = field(default_factory=Coming)
    life: int = 0  # increased when the topic may have been deleted
    published: set[str] = field(default_factory=set)  # in the current life; perhaps not stored
    old: set[str] = field(default_factory=set)  # of earlier lives

    def end(self) -> None:
        """Note that the published messages are gone."""
        self.old |= self.published
        self.published = set()


@dataclass
class OwnSubscription:
    """A subscription of one client, to its own topic or to the shared one."""

    coming: Coming = field(default_factory=Coming)
    attached: Possible[bool] = field(default_factory=lambda: Possible(True))
    topic: str = SHARED_TOPIC
    life: int = 0  # of the topic
    least: int = 0  # first id that it may get from the shared topic
    old: frozenset[str] = frozenset()  # messages of its own topic from before its creation
    done: set[str] = field(default_factory=set)  # acknowledged messages


@dataclass
class Lives:
    """Resources that a client has created."""

    topics: dict[str, OwnTopic] = field(default_factory=dict)
    subscriptions: dict[str, OwnSubscription] = field(default_factory=dict)


async def churn_topic(actor: "Actor") -> None:
    """Create, use or delete a topic."""
    name = f"{actor.client.name}-own{actor.chance.randrange(2)}"
    own = actor.shadow(Lives).topics.setdefault(name, OwnTopic())
    if not own.coming.may_be_gone and actor.chance.random() < 0.5:
        return await _publish(actor, name, own)
    makes = actor.chance.random() < (0.8 if own.coming.may_be_gone else 0.2)
    method = "PUT" if makes else "DELETE"
    found, status = await actor.change(f"/topics/{name}", None, method=method, allowed=("404", "409", "429"))
    outcome = found.facts["outcome"]
    if wrong := own.coming.settle(outcome, status, is_there=makes):
        actor.stage.complain(f"what comes and goes: {method} /topics/{name} was {wrong}")
    if outcome is Outcome.DONE:
        own.end()
    if outcome is not Outcome.REFUSED and not makes:
        own.life += 1
    if outcome is Outcome.DONE and makes:
        await actor.look()
        await _publish(actor, name, own)
    return None


async def _publish(actor: "Actor", name: str, own: OwnTopic) -> None:
    request = actor.client.next_request()
    names = [f"{request}/{place}" for place in range(actor.chance.randint(1, 5))]
    body = {"messages": [message(each) for each in names]}
    found, status = await actor.change(f"/topics/{name}:publish", body, allowed=("404",))
    if found.facts["outcome"] is not Outcome.REFUSED:
        own.published.update(names)
    if status in (200, 404) and not own.coming.see(is_there=status == 200):
        actor.stage.complain(f"what comes and goes: a publish to {name} was answered {status}")


async def churn_subscription(actor: "Actor") -> None:
    """Create, detach or delete a subscription."""
    lives = actor.shadow(Lives)
    name = f"{actor.client.name}-own{actor.chance.randrange(2)}"
    own = lives.subscriptions.setdefault(name, OwnSubscription())
    if not own.coming.may_be_gone and actor.chance.random() < 0.2:
        return await _detach(actor, name, own)
    makes = actor.chance.random() < (0.8 if own.coming.may_be_gone else 0.2)
    if not makes:
        found, status = await actor.change(f"/subscriptions/{name}", None, method="DELETE", allowed=("404",))
        return _settle(actor, name, own, found.facts["outcome"], status, is_there=False)
    topics = [SHARED_TOPIC, *(each for each, topic in lives.topics.items() if topic.coming.may_be_there)]
    made = _draw_subscription(actor, actor.chance.choice(topics))
    kind = actor.chance.choice(("ordered", "parallel"))
    body = {"topic": f"{actor.client.resource}/topics/{made.topic}", "type": kind}
    found, status = await actor.change(f"/subscriptions/{name}", body, method="PUT", allowed=("404", "409", "429"))
    outcome = found.facts["outcome"]
    if status == 404:
        topic = lives.topics.get(made.topic)
        if topic is None or not topic.coming.see(is_there=False):
            actor.stage.complain(f"what comes and goes: {name} was refused, as topic {made.topic} is not there")
        return None
    if outcome is Outcome.DONE or (outcome is Outcome.UNKNOWN and not own.coming.may_be_there):
        made.coming = own.coming
        lives.subscriptions[name] = own = made
    elif outcome is Outcome.UNKNOWN:  # either of the two may exist: no checks
        own.old, own.least, own.topic, own.attached = frozenset(), 0, "", Possible(True, False)
        own.done.clear()
    return _settle(actor, name, own, outcome, status, is_there=True)


def _draw_subscription(actor: "Actor", topic: str) -> OwnSubscription:
    """Return the expected state of a new subscription: it begins at the end of its topic."""
    if topic != SHARED_TOPIC:
        own = actor.shadow(Lives).topics[topic]
        return OwnSubscription(topic=topic, life=own.life, old=frozenset(own.published | own.old))
    stored = [each for each in actor.stage.history.attempts if isinstance(each, Publish) and each.topic == SHARED_TOPIC]
    return OwnSubscription(least=max((each.ids[-1] + 1 for each in stored if each.ids), default=0))


def _settle(actor: "Actor", name: str, own: OwnSubscription, outcome: Outcome, status: int, *, is_there: bool) -> None:
    if wrong := own.coming.settle(outcome, status, is_there=is_there):
        method = "PUT" if is_there else "DELETE"
        actor.stage.complain(f"what comes and goes: {method} /subscriptions/{name} was {wrong}")


async def _detach(actor: "Actor", name: str, own: OwnSubscription) -> None:
    found, status = await actor.change(f"/subscriptions/{name}:detach", None, allowed=("404", "409"))
    own.attached.change(found.facts["outcome"], False)
    if status == 404 and not own.coming.see(is_there=False):
        actor.stage.complain(f"what comes and goes: {name} cannot be detached, as it is not there")


async def use(actor: "Actor") -> None:
    """Pull from one of this client's subscriptions, and acknowledge the messages."""
    lives = actor.shadow(Lives)
    if not lives.subscriptions:
        return
    name = actor.chance.choice(list(lives.subscriptions))
    own = lives.subscriptions[name]
    body = {"maxMessages": "50", "returnImmediately": "true"}
    found, status = await actor.change(f"/subscriptions/{name}:pull", body, allowed=("404", "409"))
    if status in (200, 404, 409) and not own.coming.see(is_there=status != 404):
        actor.stage.complain(f"what comes and goes: a pull of {name} was answered {status}")
    if status == 409:
        _judge_refusal(actor, name, own, found.refusal)
    if not found.is_done:
        return
    if not own.attached.see(True):
        actor.stage.complain(f"detached: {name} was detached, and gives messages")
    received = found.document["receivedMessages"]
    _judge(actor, name, own, {each["message"]["messageId"]: _name(each) for each in received})
    if received:
        ids = [each["ackId"] for each in received]
        settled, _ = await actor.change(f"/subscriptions/{name}:acknowledge", {"ackIds": ids}, allowed=("408", "409"))
        if settled.is_done:
            own.done.update(_name(each) for each in received)


def _name(received: dict[str, dict[str, str]]) -> str:
    body = received["message"]
    return name_of(body.get("attributes", {}), body["data"])  # type: ignore[arg-type]


def _judge(actor: "Actor", name: str, own: OwnSubscription, given: dict[str, str]) -> None:
    topic = actor.shadow(Lives).topics.get(own.topic)
    old = own.old | (topic.old if topic is not None else set())
    for id_, each in given.items():
        if each in old or int(id_) < own.least:
            actor.stage.complain(f"an earlier life: {name} gives {each} as {id_}, which is older than it or its topic")
        if each in own.done:
            actor.stage.complain(f"came back: {name} gives {each} as {id_}, which was acknowledged")


def _judge_refusal(actor: "Actor", name: str, own: OwnSubscription, refusal: str) -> None:
    """Check the reason why a subscription refused a pull."""
    topic = actor.shadow(Lives).topics.get(own.topic)
    if refusal == "Subscription is detached":
        if not own.attached.see(False):
            actor.stage.complain(f"detached: {name} was never detached, and is refused as if it were")
    elif own.topic == SHARED_TOPIC or (topic is not None and topic.life == own.life and not topic.coming.may_be_gone):
        actor.stage.complain(f"what comes and goes: a pull of {name} was refused, though all is there: {refusal}")
