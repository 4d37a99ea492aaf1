"""The service itself: its status and version, what is wrong with it, and what to do about it, in plain English.

The doctor finds engines that cannot be reached, topics kept less safely than promised, inconsistencies between engines,
issuers of tokens that are away, and lost messages. It repairs nothing: the operator decides.

No transaction spans registry, log and cursors: a log is made before its topic is registered and dropped after it is
forgotten, and so is a cursor. So an inconsistency may be a change that is under way, here or on another node; it counts
only when a second look finds it too (`Inconsistencies.both`).
"""

import asyncio
import contextlib
import platform
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

import ams
from ams.access.admission import Admission, is_good_for
from ams.access.permissions import ADMIN_VIEWER, SERVICE_ADMIN
from ams.cluster.lease_table import Holder
from ams.core.clock import Milliseconds, span_text
from ams.core.errors import NotAllowed, NotAuthenticated, RegistryUnavailable, TopicGone, Unavailable
from ams.core.names import SubscriptionId, TopicId, subscription_path, topic_path
from ams.service.issuers import Issuers, ListedIssuer
from ams.service.push.pushing import Pushing
from ams.service.retention import LossTotal
from ams.storage.cursors.base import Cursors, TopicOffset
from ams.storage.log.base import Bounds, Log
from ams.storage.registry.records import Principal
from ams.storage.registry.registry import Registry
from ams.wire.service import Finding, PushServer, Status, Version

T = TypeVar("T")
K = TypeVar("K", TopicId, SubscriptionId)

AGAIN_SECONDS = 1.5
LONG_BACKUP_MS = Milliseconds(3_600_000)
PATIENCE_SECONDS = 6.0  # an engine may take so long for an answer: the doctor must answer before the client gives up
MAX_NAMED = 20


class Held(NamedTuple):
    """Identities that the engines hold; None where an engine did not answer."""

    topics: frozenset[TopicId] | None
    subscriptions: frozenset[SubscriptionId] | None
    cursors: Mapping[SubscriptionId, TopicOffset] | None
    logs: frozenset[TopicId] | None
    bounds: Mapping[TopicId, Bounds] | None
    """Asked for after the cursors: an end never goes back, so a cursor beyond it here is really beyond it."""


class Inconsistencies(NamedTuple):
    """Identities that one engine holds and another does not."""

    topics_without_log: frozenset[TopicId]
    logs_without_topic: frozenset[TopicId]
    subscriptions_without_cursor: frozenset[SubscriptionId]
    cursors_without_subscription: frozenset[SubscriptionId]
    past_the_end: frozenset[SubscriptionId]
    """Subscriptions whose cursors are beyond the ends of their topics: what is published next will not reach them."""

    def both(self, other: "Inconsistencies") -> "Inconsistencies":
        """Return what the other look found too."""
        return Inconsistencies(
            self.topics_without_log & other.topics_without_log,
            self.logs_without_topic & other.logs_without_topic,
            self.subscriptions_without_cursor & other.subscriptions_without_cursor,
            self.cursors_without_subscription & other.cursors_without_subscription,
            self.past_the_end & other.past_the_end,
        )


def inconsistencies(held: Held) -> Inconsistencies:
    """Compare the engines; one that did not answer has no inconsistencies."""
    cursors = None if held.cursors is None else frozenset(held.cursors)
    bounds = held.bounds or {}
    past = frozenset(
        subscription
        for subscription, place in (held.cursors or {}).items()
        if place.topic in bounds and place.offset > bounds[place.topic].end
    )
    return Inconsistencies(
        _without(held.topics, held.logs),
        _without(held.logs, held.topics),
        _without(held.subscriptions, cursors),
        _without(cursors, held.subscriptions),
        # A cursor without a subscription is reported once.
        past if held.subscriptions is None else past & held.subscriptions,
    )


def _without(here: frozenset[T] | None, there: frozenset[T] | None) -> frozenset[T]:
    return frozenset() if here is None or there is None else here - there


class Remedies(NamedTuple):
    """Advice about inconsistencies."""

    topic_without_log: str
    log_without_topic: Callable[[str], str]
    """Given what the log is called where it is kept; ends its sentence itself, as a command is copied without a dot."""
    subscription_without_cursor: str


ALONE = Remedies(
    "the next start of the service makes an empty one",
    lambda _: "the next start of the service removes it.",
    "the next start of the service puts it at the oldest message kept",
)
"""Where one process owns everything, its start puts in order what is left over."""


def shared(removal: Callable[[str], str]) -> Remedies:
    """Return the advice where several nodes share the engines; `removal` writes the command that removes a log."""
    return Remedies(
        "delete the topic and make it again",
        lambda log: f"unless a topic is being made or a project deleted right now, remove it: {removal(log)}",
        "delete it and make it again",
    )


@dataclass(frozen=True, slots=True)
class ServiceDoctor:
    """Looks at the whole service, all projects of it."""

    registry: Registry
    log: Log
    cursors: Cursors
    losses: LossTotal
    remedies: Remedies = ALONE
    away: Mapping[str, Callable[[], str | None]] = field(default_factory=dict)
    """Why the `registry` or the `cursors` cannot be asked now, as `Log.away` says it of the log."""
    again_after: float = AGAIN_SECONDS
    issuers: Issuers | None = None
    copied_for: Callable[[], Milliseconds | None] = lambda: None
    """For how long a backup under way has kept retention waiting; None without one."""
    leap: Callable[[], Milliseconds] = lambda: Milliseconds(0)
    """How far the time of day leapt ahead, so that retention waits."""
    not_base64: Callable[[], Mapping[TopicId, int]] = dict
    """How many messages were published since the start, by topic, whose data is other text than base64."""
    nodes: Callable[[], Awaitable[Sequence[Holder]]] | None = None

    async def look(self) -> Sequence[Finding]:
        """Return findings, what is wrong first; inconsistencies are looked at twice, otherwise this answers at once."""
        asking = _EngineQueries(self.registry, self.log)
        found = inconsistencies(await self._held(asking))
        if any(found):
            await asyncio.sleep(self.again_after)
            found = found.both(inconsistencies(await self._held(asking)))
        findings = [
            *await self._of_weak_topics(asking),
            *await self._of_logs(asking, found),
            *await self._of_cursors(asking, found),
            *await self._of_issuers(asking),
            *await self._of_texts(asking),
            *self._of_retention(),
        ]
        return sorted([*self._of_engines(asking.silent), *findings], key=lambda finding: not finding.wrong)

    async def nodes_alive(self) -> Sequence[Holder]:
        """Return the nodes that live; none where one process is alone, or the registry does not answer."""
        if self.nodes is None:
            return ()
        return await _EngineQueries(self.registry, self.log).ask("registry", self.nodes()) or ()

    async def _held(self, asking: "_EngineQueries") -> Held:
        topics, subscriptions, cursors = await asyncio.gather(
            asking.ask("registry", self.registry.topics.ids()),
            asking.ask("registry", self.registry.subscriptions.attached_ids()),
            asking.ask("cursors", self.cursors.places()),
        )
        logs, bounds = await asyncio.gather(
            asking.ask("log", self.log.topics()), asking.ask("log", self.log.all_bounds())
        )
        return Held(topics, subscriptions, cursors, logs, bounds)

    def _of_engines(self, silent: Collection[str]) -> Iterator[Finding]:
        reasons = {engine: why() for engine, why in self.away.items()} | {"log": self.log.away}
        for engine in ("registry", "log", "cursors"):
            if reasons.get(engine):
                yield Finding(True, f"The {engine} cannot be reached: {reasons[engine]}.")
            elif engine in silent:
                yield Finding(True, f"The {engine} did not answer: what depends on it was not looked at.")
        if self.log.refusal and not reasons["log"]:
            yield Finding(True, f"Publishing is refused: {self.log.refusal}.")

    def _of_retention(self) -> Iterator[Finding]:
        since, leap, lost = self.copied_for(), self.leap(), self.losses.messages
        if since is not None:
            text = (
                f"A backup has been taken for {span_text(since)}: until it is done or ended, retention removes nothing."
            )
            yield Finding(since >= LONG_BACKUP_MS, text)
        if leap:
            yield Finding(
                True,
                f"The time of day leapt ahead by {leap // 3_600_000} hours: retention removes nothing by it for a day."
                " Set the clock right; if it is right, restart the service.",
            )
        if lost:
            yield Finding(False, f"Messages that retention took before they were acknowledged, ever: {lost}.")

    async def _of_weak_topics(self, asking: "_EngineQueries") -> Iterator[Finding]:
        weak = await asking.ask("log", self.log.weak()) or {}
        names = await asking.topics(weak)
        texts = [f"{name} is kept less safely than promised, so it is closed to publishers: {weak[topic]}."
                for topic, name in names.items()]  # fmt: skip
        return _listed(texts, len(weak), "topics kept less safely than promised")

    async def _of_issuers(self, asking: "_EngineQueries") -> Iterator[Finding]:
        away = (await asking.ask("registry", self.issuers.away()) if self.issuers else None) or ()
        return _listed(
            [_of_issuer(each) for each in away[:MAX_NAMED]], len(away), "issuers that do not give their keys"
        )

    async def _of_texts(self, asking: "_EngineQueries") -> Iterator[Finding]:
        counts = self.not_base64()
        names = await asking.topics(counts)
        texts = [
            f"Publishers of {name} send data that is not base64, {counts[topic]} times since the service started:"
            " consumers get that text as it is."
            for topic, name in names.items()
        ]
        return _listed(texts, len(counts), "topics with data that is not base64", wrong=False)

    async def _of_logs(self, asking: "_EngineQueries", found: Inconsistencies) -> Sequence[Finding]:
        gone, orphans, remedies = found.topics_without_log, found.logs_without_topic, self.remedies
        names = (await asking.topics(gone)).values()
        texts = [f"The log of {name} is gone with all its messages: {remedies.topic_without_log}." for name in names]
        of_gone = _listed(texts, len(gone), "topics whose logs are gone")
        if orphans and await asking.ask("registry", self.registry.topics.ids()) == frozenset():
            # Never advise to remove every message.
            text = f"No topic is registered, but the log holds {len(orphans)}: if the registry was lost, restore it."
            return [*of_gone, Finding(True, text)]
        logs = await asking.logs(orphans)
        texts = [f"The log {name} belongs to no topic: {remedies.log_without_topic(name)}" for name in logs]
        return [*of_gone, *_listed(texts, len(orphans), "logs that belong to no topic")]

    async def _of_cursors(self, asking: "_EngineQueries", found: Inconsistencies) -> Sequence[Finding]:
        bare, strays, past = found.subscriptions_without_cursor, found.cursors_without_subscription, found.past_the_end
        remedy = self.remedies.subscription_without_cursor
        lost = [f"The position of {name} is gone, so nothing can be pulled from it: {remedy}."
                for name in await asking.subscriptions(bare)]  # fmt: skip
        ahead = [f"{name} stands past the end of its topic and will miss what is published next: move it to the end."
                 for name in await asking.subscriptions(past)]  # fmt: skip
        kept = [f"The cursor {each} belongs to no subscription; it does no harm." for each in _few(strays)]
        return [
            *_listed(lost, len(bare), "subscriptions whose positions are gone"),
            *_listed(ahead, len(past), "subscriptions past the end of their topics"),
            *_listed(kept, len(strays), "cursors that belong to no subscription", wrong=False),
        ]


class _EngineQueries:
    """Queries engines, also for names, and remembers which did not answer."""

    def __init__(self, registry: Registry, log: Log) -> None:
        self._registry, self._log = registry, log
        self.silent: set[str] = set()

    async def ask(self, engine: str, answer: Awaitable[T]) -> T | None:
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                return await answer
        except (Unavailable, TimeoutError):
            self.silent.add(engine)
            return None

    async def topics(self, topics: Collection[TopicId]) -> Mapping[TopicId, str]:
        found = await self.ask("registry", self._registry.tallies.of(_few(topics))) if topics else None
        return {each.id: topic_path(each.project, each.name).removeprefix("/") for each in found or ()}

    async def subscriptions(self, subscriptions: Collection[SubscriptionId]) -> Sequence[str]:
        titles = self._registry.subscriptions.titles
        found = (await self.ask("registry", titles(_few(subscriptions))) if subscriptions else None) or {}
        return [subscription_path(title.project, title.name).removeprefix("/") for title in found.values()]

    async def logs(self, topics: Collection[TopicId]) -> Sequence[str]:
        """Return the names of a few of these topics where the log keeps them."""
        names = []
        for topic in _few(topics):
            with contextlib.suppress(TopicGone):
                names.append(await self.ask("log", self._log.name_of(topic)))
        return [name for name in names if name]


def _of_issuer(found: ListedIssuer) -> str:
    name, keys = found.issuer.name, found.keys
    text = f"Issuer {name} did not give its keys the last time it was asked ({keys.failure}): "
    if keys.fetched_on is None:
        return f"{text}its signed tokens are refused."
    return f"{text}those that are used are good for 24 hours since it last gave them."


def _few(found: Collection[K]) -> list[K]:
    return sorted(found)[:MAX_NAMED]


def _listed(texts: Sequence[str], found: int, kind: str, *, wrong: bool = True) -> Iterator[Finding]:
    for text in texts:
        yield Finding(wrong, text)
    if found > MAX_NAMED:
        yield Finding(wrong, f"And {found - MAX_NAMED} more {kind}.")


@dataclass(frozen=True, slots=True)
class About:
    """The service about itself: status and version (contract 14.5 and 14.6)."""

    admission: Admission
    registry: Registry
    proxy_hostname: str
    pushing: Pushing
    push_server: str

    async def require_viewer(self, token: str | None) -> None:
        """Let in who may see details: raise `NotAuthenticated` or `NotAllowed` (17.4, O6)."""
        principal = await self.admission.principal(token)
        if principal is None:
            raise NotAuthenticated
        if not _may_view(principal, "ams:healthStatus"):
            raise NotAllowed

    async def status(self, *, details: bool) -> Status:
        """Return how the service is; a registry that cannot answer is reported here too (17.4, O9)."""
        try:
            await self.registry.users.exist()
            is_well = not self.pushing.enabled or await self.pushing.worker() is not None
        except RegistryUnavailable:
            is_well = False
        status = "ok" if is_well else "warning"
        if not self.pushing.enabled:
            return Status(status, push_functionality="disabled")
        health = await self.pushing.server.health(details=details)
        return Status(status, [PushServer(self.push_server, health)])

    async def version(self, token: str | None) -> Version:
        """Return what runs here; the release only for those who may view. An unknown token is no error."""
        principal = await self.admission.user_of(token)
        try:
            distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
        except OSError:
            distribution = ""
        return Version(
            build_time=ams.__released__,
            golang=f"Python {platform.python_version()}",
            compiler=platform.python_implementation(),
            os=platform.system().lower(),
            architecture=platform.machine(),
            release=ams.__version__ if principal and _may_view(principal, "version:list") else "",
            distro=distribution,
            hostname=self.proxy_hostname,
        )


def _may_view(principal: Principal, action: str) -> bool:
    is_good = principal.login is None or is_good_for(principal.login, action)
    return is_good and bool(principal.service_roles & {SERVICE_ADMIN, ADMIN_VIEWER})
