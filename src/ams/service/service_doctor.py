"""Status, version and diagnosis of the service, with advice in plain English.

The doctor finds unreachable engines and token issuers, topics kept less safely than promised, inconsistencies between
engines, and lost messages. It repairs nothing: the operator decides.

No transaction spans registry, log and cursors. A log is made before its topic is registered, and dropped after it is
deleted; so is a cursor. An inconsistency may be a change under way, here or on another node. So it counts only if a
second look finds it too.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from operator import and_
from typing import NamedTuple, TypeVar

import ams
from ams.access.admission import Admission, is_good_for
from ams.access.permissions import ADMIN_VIEWER, SERVICE_ADMIN
from ams.cluster.lease_table import Holder
from ams.core.clock import Milliseconds, span_text
from ams.core.errors import NotAllowed, NotAuthenticated, RegistryUnavailable, TopicGone, Unavailable
from ams.core.names import SubscriptionId, TopicId, subscription_path, topic_path
from ams.core.telemetry import describe_runtime
from ams.service.issuers import Issuers
from ams.service.lookup import require_found
from ams.service.push.configurations import Pushing
from ams.service.retention import LossTotal
from ams.storage.cursors.base import Cursors, TopicOffset
from ams.storage.log.base import Bounds, Log
from ams.storage.registry.records import Principal
from ams.storage.registry.registry import Registry
from ams.wire.service import Finding, PushServer, Status, Version

T = TypeVar("T")
K = TypeVar("K", TopicId, SubscriptionId)
LONG_BACKUP_MS = 3_600_000
ENGINE_TIMEOUT_SECONDS = 6.0  # per query: the doctor must answer before its client gives up
MAX_NAMED = 20
_NO_KEYS = "its signed tokens are refused."
_OLD_KEYS = "those that are used are good for 24 hours since it last gave them."


class EngineIdentities(NamedTuple):
    """Identities that the engines hold; None where an engine did not answer."""

    topics: frozenset[TopicId] | None
    subscriptions: frozenset[SubscriptionId] | None
    cursors: Mapping[SubscriptionId, TopicOffset] | None
    logs: frozenset[TopicId] | None
    bounds: Mapping[TopicId, Bounds] | None  # read after the cursors: ends never go back, so what is past them is so


class Inconsistencies(NamedTuple):
    """Identities that one engine holds and another does not."""

    topics_without_log: frozenset[TopicId]
    logs_without_topic: frozenset[TopicId]
    subscriptions_without_cursor: frozenset[SubscriptionId]
    cursors_without_subscription: frozenset[SubscriptionId]
    past_the_end: frozenset[SubscriptionId]  # whose cursors are past their topics' ends: they miss the next messages


def inconsistencies(held: EngineIdentities) -> Inconsistencies:
    """Compare the engines; one that did not answer has no inconsistencies."""
    cursors = None if held.cursors is None else frozenset(held.cursors)
    places, bounds = held.cursors or {}, held.bounds or {}
    past = frozenset(each for each, at in places.items() if at.topic in bounds and at.offset > bounds[at.topic].end)
    return Inconsistencies(
        _missing_in(held.topics, held.logs),
        _missing_in(held.logs, held.topics),
        _missing_in(held.subscriptions, cursors),
        _missing_in(cursors, held.subscriptions),
        # A cursor without a subscription is reported once.
        past if held.subscriptions is None else past & held.subscriptions,
    )


def _missing_in(here: frozenset[T] | None, there: frozenset[T] | None) -> frozenset[T]:
    return frozenset() if here is None or there is None else here - there


@dataclass(frozen=True, slots=True)
class ServiceDoctor:
    """Diagnoses the whole service, with all projects."""

    registry: Registry
    log: Log
    cursors: Cursors
    losses: LossTotal
    removal: Callable[[str], str] | None = None  # makes the command that removes a log; None: one process cleans up
    again_after: float = 1.5  # seconds
    issuers: Issuers | None = None
    copied_for: Callable[[], Milliseconds | None] = lambda: None  # age of a backup under way, which blocks retention
    leap: Callable[[], Milliseconds] = lambda: Milliseconds(0)  # leap of the wall clock, which blocks retention
    not_base64: Callable[[], Mapping[TopicId, int]] = dict  # messages since the start whose data is not base64
    nodes: Callable[[], Awaitable[Sequence[Holder]]] | None = None

    async def look(self) -> Sequence[Finding]:
        """Return findings, wrong ones first. If there are inconsistencies it waits for a second look."""
        asking = _EngineQueries(self.registry, self.log)
        found = inconsistencies(await self._read_identities(asking))
        if any(found):
            await asyncio.sleep(self.again_after)
            found = Inconsistencies(*map(and_, found, inconsistencies(await self._read_identities(asking))))
        findings = [
            *await self._weak_topic_findings(asking),
            *await self._log_findings(asking, found),
            *await self._cursor_findings(asking, found),
            *await self._issuer_findings(asking),
            *await self._not_base64_findings(asking),
            *self._retention_findings(),
        ]
        return sorted([*self._engine_findings(asking.silent), *findings], key=lambda finding: not finding.wrong)

    async def nodes_alive(self) -> Sequence[Holder]:
        """Return the live nodes; empty for a single process, or if the registry does not answer."""
        if self.nodes is None:
            return ()
        return await _EngineQueries(self.registry, self.log).ask("registry", self.nodes()) or ()

    async def _read_identities(self, asking: "_EngineQueries") -> EngineIdentities:
        ask = asking.ask
        topics, subscriptions, cursors = await asyncio.gather(
            ask("registry", self.registry.topics.ids()),
            ask("registry", self.registry.subscriptions.ids(attached=True)),
            ask("cursors", self.cursors.places()),
        )
        logs, bounds = await asyncio.gather(ask("log", self.log.topics()), ask("log", self.log.all_bounds()))
        return EngineIdentities(topics, subscriptions, cursors, logs, bounds)

    def _engine_findings(self, silent: Collection[str]) -> Iterator[Finding]:
        reasons = {"registry": self.registry.away, "log": self.log.away, "cursors": None}
        for engine, reason in reasons.items():
            if reason:
                yield Finding(True, f"The {engine} cannot be reached: {reason}.")
            elif engine in silent:
                yield Finding(True, f"The {engine} did not answer: what depends on it was not looked at.")
        if self.log.refusal and not reasons["log"]:
            yield Finding(True, f"Publishing is refused: {self.log.refusal}.")

    def _retention_findings(self) -> Iterator[Finding]:
        since, leap, lost = self.copied_for(), self.leap(), self.losses.messages
        if since is not None:
            taken = f"A backup has been taken for {span_text(since)}"
            yield Finding(since >= LONG_BACKUP_MS, f"{taken}: until it is done or ended, retention removes nothing.")
        if leap:
            yield Finding(
                True,
                f"The time of day leapt ahead by {leap // 3_600_000} hours: retention removes nothing by it for a day."
                " Set the clock right; if it is right, restart the service.",
            )
        if lost:
            yield Finding(False, f"Messages that retention took before they were acknowledged, ever: {lost}.")

    async def _weak_topic_findings(self, asking: "_EngineQueries") -> Iterator[Finding]:
        weak_topics = await asking.ask("log", self.log.weak_topics()) or {}
        names = await asking.topics(weak_topics)
        texts = [f"{name} is kept less safely than promised, so it is closed to publishers: {weak_topics[topic]}."
                for topic, name in names.items()]  # fmt: skip
        return _limit_findings(texts, len(weak_topics), "topics kept less safely than promised")

    async def _issuer_findings(self, asking: "_EngineQueries") -> Iterator[Finding]:
        away = (await asking.ask("registry", self.issuers.away()) if self.issuers else None) or ()
        texts = [f"Issuer {each.issuer.name} did not give its keys the last time it was asked ({each.keys.failure}): "
                + (_NO_KEYS if each.keys.fetched_on is None else _OLD_KEYS) for each in away[:MAX_NAMED]]  # fmt: skip
        return _limit_findings(texts, len(away), "issuers that do not give their keys")

    async def _not_base64_findings(self, asking: "_EngineQueries") -> Iterator[Finding]:
        counts = self.not_base64()
        names = await asking.topics(counts)
        texts = [
            f"Publishers of {name} send data that is not base64, {counts[topic]} times since the service started:"
            " consumers get that text as it is."
            for topic, name in names.items()
        ]
        return _limit_findings(texts, len(counts), "topics with data that is not base64", wrong=False)

    async def _log_findings(self, asking: "_EngineQueries", found: Inconsistencies) -> Sequence[Finding]:
        gone, orphans = found.topics_without_log, found.logs_without_topic
        by_start = "the next start of the service makes an empty one"
        remedy = "delete the topic and make it again" if self.removal else by_start
        names = (await asking.topics(gone)).values()
        texts = [f"The log of {name} is gone with all its messages: {remedy}." for name in names]
        of_gone = _limit_findings(texts, len(gone), "topics whose logs are gone")
        if orphans and await asking.ask("registry", self.registry.topics.ids()) == frozenset():
            # Never advise to remove every message.
            text = f"No topic is registered, but the log holds {len(orphans)}: if the registry was lost, restore it."
            return [*of_gone, Finding(True, text)]
        logs = await asking.logs(orphans)

        def advise(log: str) -> str:
            if self.removal is None:
                return "the next start of the service removes it."
            # A command ends without a dot, so that it can be copied.
            return f"unless a topic is being made or a project deleted right now, remove it: {self.removal(log)}"

        texts = [f"The log {name} belongs to no topic: {advise(name)}" for name in logs]
        return [*of_gone, *_limit_findings(texts, len(orphans), "logs that belong to no topic")]

    async def _cursor_findings(self, asking: "_EngineQueries", found: Inconsistencies) -> Sequence[Finding]:
        bare, strays, past = found.subscriptions_without_cursor, found.cursors_without_subscription, found.past_the_end
        by_start = "the next start of the service puts it at the oldest message kept"
        remedy = "delete it and make it again" if self.removal else by_start
        lost = [f"The position of {name} is gone, so nothing can be pulled from it: {remedy}."
                for name in await asking.subscriptions(bare)]  # fmt: skip
        ahead = [f"{name} stands past the end of its topic and will miss what is published next: move it to the end."
                 for name in await asking.subscriptions(past)]  # fmt: skip
        kept = [f"The cursor {each} belongs to no subscription; it does no harm." for each in _first_few(strays)]
        return [
            *_limit_findings(lost, len(bare), "subscriptions whose positions are gone"),
            *_limit_findings(ahead, len(past), "subscriptions past the end of their topics"),
            *_limit_findings(kept, len(strays), "cursors that belong to no subscription", wrong=False),
        ]


class _EngineQueries:
    """Queries engines with a timeout, and remembers which did not answer."""

    def __init__(self, registry: Registry, log: Log) -> None:
        self._registry, self._log = registry, log
        self.silent: set[str] = set()

    async def ask(self, engine: str, answer: Awaitable[T]) -> T | None:
        try:
            async with asyncio.timeout(ENGINE_TIMEOUT_SECONDS):
                return await answer
        except (Unavailable, TimeoutError):
            self.silent.add(engine)
            return None

    async def topics(self, topics: Collection[TopicId]) -> Mapping[TopicId, str]:
        found = await self.ask("registry", self._registry.tallies.of(_first_few(topics))) if topics else None
        return {each.id: topic_path(each.project, each.name).removeprefix("/") for each in found or ()}

    async def subscriptions(self, subscriptions: Collection[SubscriptionId]) -> Sequence[str]:
        titles = self._registry.subscriptions.titles
        found = (await self.ask("registry", titles(_first_few(subscriptions))) if subscriptions else None) or {}
        return [subscription_path(title.project, title.name).removeprefix("/") for title in found.values()]

    async def logs(self, topics: Collection[TopicId]) -> Sequence[str]:
        """Return the names of a few of these topics in the log's engine."""
        names = []
        for topic in _first_few(topics):
            with contextlib.suppress(TopicGone):
                names.append(await self.ask("log", self._log.name_of(topic)))
        return [name for name in names if name]


def _first_few(found: Collection[K]) -> list[K]:
    return sorted(found)[:MAX_NAMED]


def _limit_findings(texts: Sequence[str], found: int, kind: str, *, wrong: bool = True) -> Iterator[Finding]:
    for text in texts:
        yield Finding(wrong, text)
    if found > MAX_NAMED:
        yield Finding(wrong, f"And {found - MAX_NAMED} more {kind}.")


@dataclass(frozen=True, slots=True)
class ServiceInfo:
    """Status and version of the service (contract 14.5 and 14.6)."""

    admission: Admission
    registry: Registry
    proxy_hostname: str
    pushing: Pushing
    push_server: str

    async def require_viewer(self, token: str | None) -> None:
        """Raise `NotAuthenticated` or `NotAllowed` unless the caller may see details (17.4, O6)."""
        principal = require_found(await self.admission.principal(token), NotAuthenticated)
        if not _may_view(principal, "ams:healthStatus"):
            raise NotAllowed

    async def status(self, *, details: bool) -> Status:
        """Return the status of the service, also without the registry (17.4, O9)."""
        try:
            await self.registry.users.exist()
            is_well = not self.pushing.enabled or await self.pushing.worker() is not None
        except RegistryUnavailable:
            is_well = False
        status = "ok" if is_well else "warning"
        if not self.pushing.enabled:
            return Status(status, push_functionality="disabled")
        return Status(status, [PushServer(self.push_server, await self.pushing.server.health(details=details))])

    async def version(self, token: str | None) -> Version:
        """Return what runs here; the release only for those who may view. An unknown token is no error."""
        principal = await self.admission.user_of(token)
        release = ams.__version__ if principal and _may_view(principal, "version:list") else ""
        return Version(**describe_runtime(), release=release, hostname=self.proxy_hostname)


def _may_view(principal: Principal, action: str) -> bool:
    is_good = principal.login is None or is_good_for(principal.login, action)
    return is_good and bool(principal.service_roles & {SERVICE_ADMIN, ADMIN_VIEWER})
