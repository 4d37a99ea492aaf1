"""The engines: stores in the data folder or elsewhere, opened in order and closed in reverse."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Protocol, TypeVar

import structlog

from ams.core.backoff import Backoff, Pauses
from ams.core.clock import Clock, Milliseconds
from ams.core.errors import Unavailable, Unusable
from ams.core.names import topic_id_text
from ams.core.quotas import QUOTAS, Quotas
from ams.core.retention_clock import RetentionClock
from ams.core.settings import Seconds, Settings
from ams.core.supervisor import Supervisor, Ticker
from ams.storage.cursors.acks import CursorStore
from ams.storage.cursors.embedded import EmbeddedCursors
from ams.storage.database.database import sqlite_url
from ams.storage.files import Disk
from ams.storage.folder import Folder
from ams.storage.free_space import FreeSpace
from ams.storage.log.base import Log
from ams.storage.log.embedded import EmbeddedLog, LogOptions
from ams.storage.registry.history import FileHistory, HistoryStore, SharedHistory
from ams.storage.registry.registry import Registry
from ams.storage.registry.signing_keys import settle
from ams.storage.secrets import key_file, parse_key

if TYPE_CHECKING:
    from ams.storage.log.kafka.options import KafkaOptions

T = TypeVar("T")
ReportWait = Callable[[str], None]  # called with the dependency a start waits for; empty: none any more
SPACE_SECONDS = 10.0  # between two attempts to recreate a used reserve
BACKOFF = Backoff(0.25, 5.0)  # seconds between two attempts to reach another machine
logger = structlog.get_logger("ams")


class _Closing(Protocol):
    async def close(self) -> None: ...


E = TypeVar("E", bound=_Closing)


@dataclass(frozen=True, slots=True)
class Engines:
    """All stores, and their clocks."""

    clock: Clock
    retention_clock: RetentionClock  # the clock for expiry of old data
    folder: Folder
    space: FreeSpace  # free space on the folder's disk
    log: Log
    registry: Registry
    cursors: CursorStore
    history: HistoryStore
    embedded: EmbeddedLog | None  # the log, if it is in the data folder: then this process is the only one


@contextlib.asynccontextmanager
async def open_engines(
    settings: Settings, clock: Clock, files: Disk, tell: ReportWait, supervisor: Supervisor
) -> AsyncIterator[Engines]:
    """Open the stores, and wait for those that do not answer: `tell` is called with each. Raises `Unusable`."""
    async with contextlib.AsyncExitStack() as stack:
        yield await _Opening(settings, clock, RetentionClock(clock), files, tell, supervisor, stack).engines()


@dataclass(frozen=True, slots=True)
class _Opening:
    settings: Settings
    clock: Clock
    retention_clock: RetentionClock
    files: Disk
    tell: ReportWait
    supervisor: Supervisor
    stack: contextlib.AsyncExitStack

    def _keep(self, engine: E) -> E:
        self.stack.push_async_callback(engine.close)
        return engine

    async def engines(self) -> Engines:
        folder = Folder.take(self.settings.data)
        self.stack.callback(folder.release)
        embedded = at_cursors = None
        if self.settings.log == "embedded":
            embedded = at_cursors = await self._embedded_log(folder, folder.log)
        elif self.settings.registry == "sqlite":  # the cursors are here too, in a log without messages
            at_cursors = await self._embedded_log(folder, folder.cursors)
        # The data folder's disk is the one that fills; a log there has the reserve of all its writers.
        space = at_cursors.space if at_cursors else await self._space(folder)
        registry = await self._registry(folder, space)
        if embedded:  # topics without a log mean that the log's folder was lost or moved away
            for topic in await registry.topics.ids() - await embedded.topics():
                await embedded.create(topic)
                logger.warning("topic.log_lost", topic=topic_id_text(topic))
        log = embedded or await self._kafka_log(registry)
        cursors = await self._cursors(at_cursors, log, registry)
        is_here = self.settings.registry == "sqlite"
        history = FileHistory(folder.history, space) if is_here else SharedHistory(registry.shared.database)
        return Engines(
            self.clock, self.retention_clock, folder, space, log, registry, cursors, self._keep(history), embedded
        )

    async def _embedded_log(self, folder: Folder, path: str) -> EmbeddedLog:
        return self._keep(await EmbeddedLog.open(
            path, files=self.files, clock=self.clock, options=log_options(self.settings, folder.path),
            supervisor=self.supervisor, retention_clock=self.retention_clock,
        ))  # fmt: skip

    async def _space(self, folder: Folder) -> FreeSpace:
        """Return the free space of a data folder without a log; its reserve is recreated when possible."""
        settings = self.settings
        space = FreeSpace(self.files, folder.path, settings.min_free_bytes, folder.reserve, settings.reserve_bytes)
        await asyncio.to_thread(space.keep_reserve)
        looks = self._keep(Ticker("free space", SPACE_SECONDS, lambda: asyncio.to_thread(space.keep_reserve)))
        await looks.start(self.supervisor)
        return space

    async def _registry(self, folder: Folder, space: FreeSpace) -> Registry:
        key, is_here = await self._token_key(folder), self.settings.registry == "sqlite"
        url = sqlite_url(folder.registry) if is_here else self.settings.registry
        quotas = Quotas({name: getattr(self.settings, setting) for name, setting in QUOTAS.items()})
        attempt = partial(
            Registry.open, url, key, password=self.settings.registry_password, clock=self.clock, space=space,
            quotas=quotas, retention_clock=self.retention_clock,
        )  # fmt: skip
        return self._keep(await retry_until_available("PostgreSQL", attempt, self.tell))

    async def _token_key(self, folder: Folder) -> bytes:
        if self.settings.token_key:
            return parse_key(self.settings.token_key)
        if self.settings.registry != "sqlite":
            return key_file(folder.token_key, create=True, files=self.files)
        if is_there := self.files.exists(folder.registry):
            await settle(sqlite_url(folder.registry), folder.token_key, self.files)
        return key_file(folder.token_key, create=not is_there, files=self.files)

    async def _kafka_log(self, registry: Registry) -> Log:
        try:
            # Local import: only Kafka needs its library.
            from ams.storage.log.kafka.log import KafkaLog
        except ImportError:
            raise Unusable("log = kafka needs a library that is missing: install argo-messaging[kafka]") from None
        options, clock = kafka_options(self.settings), self.retention_clock
        log = self._keep(await KafkaLog.open(options, registry.idempotency, self.supervisor, clock))
        await retry_until_available("Kafka", log.topics, self.tell)
        return log

    async def _cursors(self, kept_in: EmbeddedLog | None, log: Log, registry: Registry) -> CursorStore:
        if kept_in is not None and self.settings.registry == "sqlite":
            bounds = await retry_until_available("Kafka", log.all_bounds, self.tell)
            ends = {topic: each.end for topic, each in bounds.items()}
            return self._keep(await EmbeddedCursors.open(kept_in.journal, ends, self.clock, self.supervisor))
        # Local import: only PostgreSQL needs its driver.
        from ams.storage.cursors.postgresql import PostgresCursors
        from ams.storage.cursors.postgresql_rows import DatabaseTime

        attempt = partial(
            PostgresCursors.open, self.settings.registry, password=self.settings.registry_password,
            time=DatabaseTime(self.clock), exists=registry.topics.exists,
        )  # fmt: skip
        return self._keep(await retry_until_available("PostgreSQL", attempt, self.tell))


async def retry_until_available(what: str, attempt: Callable[[], Awaitable[T]], tell: ReportWait) -> T:
    """Return the result of `attempt`; retry while it raises `Unavailable`. Each reason is logged once."""
    pauses, last = Pauses(BACKOFF), ""
    said: set[str] = set()
    while True:
        try:
            opened = await attempt()
            break
        except Unavailable as error:
            reason = str(error.__cause__ or error)
        if reason != last:
            tell(f"{what}: {reason}")
            last = reason
        if reason not in said:
            logger.warning("start.waiting", what=what, reason=reason)
            said.add(reason)
        await asyncio.sleep(pauses.next())
    if said:
        logger.info("start.going_on", what=what)
        tell("")
    return opened


def log_options(settings: Settings, folder: str) -> LogOptions:
    """Return the options of the embedded log; `folder` is the data folder, whose disk it watches."""
    return LogOptions(
        retention=_milliseconds(settings.retention),
        idempotency_window=_milliseconds(settings.idempotency_window) or None,
        max_bytes=settings.max_data_bytes or None, segment_bytes=settings.segment_bytes, data_folder=folder,
        min_free_bytes=settings.min_free_bytes, reserve_bytes=settings.reserve_bytes,
        sync="interval" if settings.sync == "interval" else "always",
        sync_interval_ms=_milliseconds(settings.sync_interval),
    )  # fmt: skip


def kafka_options(settings: Settings) -> "KafkaOptions":
    """Return the options of the log on Kafka."""
    from ams.storage.log.kafka.options import KafkaOptions

    return KafkaOptions(
        servers=settings.kafka_servers, prefix=settings.kafka_prefix, replication=settings.kafka_replication,
        min_isr=settings.kafka_min_isr, tls=settings.kafka_tls, ca_file=settings.kafka_ca_file,
        sasl=settings.kafka_sasl, user=settings.kafka_user, password=settings.kafka_password,
        retention=_milliseconds(settings.retention),
        idempotency_window=_milliseconds(settings.idempotency_window) or None,
    )  # fmt: skip


def _milliseconds(seconds: Seconds) -> Milliseconds:
    return Milliseconds(round(seconds * 1000))
