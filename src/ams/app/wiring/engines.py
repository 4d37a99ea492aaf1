"""The engines: what is kept in the data folder, opened in order and closed in the opposite one."""

import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from functools import partial

import structlog

from ams.app.wiring.options import kafka_options, log_options
from ams.app.wiring.patience import Tell, patiently
from ams.core.clock import Clock
from ams.core.errors import Unusable
from ams.core.names import Offset, TopicId, topic_id_text
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.storage.cursors.base import Cursors
from ams.storage.cursors.sqlite import SqliteCursors
from ams.storage.database.database import sqlite_url
from ams.storage.files import Files
from ams.storage.folder import Folder
from ams.storage.log.base import Log
from ams.storage.log.embedded import EmbeddedLog
from ams.storage.registry.registry import Registry
from ams.storage.registry.rotation import settle
from ams.storage.secrets import key_file, parse_key

logger = structlog.get_logger("ams")


@dataclass(frozen=True, slots=True)
class Engines:
    """What keeps things, and the clock it goes by."""

    clock: Clock
    folder: Folder
    log: Log
    registry: Registry
    cursors: Cursors
    embedded: EmbeddedLog | None
    """The log, when it is in the data folder: then this process is the only one, and may put things in order."""


@contextlib.asynccontextmanager
async def open_engines(
    settings: Settings, clock: Clock, files: Files, tell: Tell, supervisor: Supervisor | None = None
) -> AsyncIterator[Engines]:
    """Open what keeps things; raise `Unusable` with one line when something cannot be used.

    What is on other machines and does not answer is waited for; `tell` is called with what for.
    """
    supervisor = supervisor or Supervisor()
    async with contextlib.AsyncExitStack() as stack:
        folder = Folder.take(settings.data)
        stack.callback(folder.release)
        embedded = await _embedded_log(settings, folder, clock, files, supervisor, stack)
        # The disk that fills is the data folder's, and the log has a reserve there for whoever else writes to it.
        on_full = embedded.release_reserve if embedded else _no_room
        registry = await _registry(settings, folder, clock, files, on_full, tell, stack)
        if embedded:
            await _make_missing_logs(embedded, registry)
        log = embedded or await _kafka_log(settings, registry, tell, supervisor, stack)
        cursors = await _cursors(settings, folder, clock, on_full, log, registry, tell, supervisor, stack)
        yield Engines(clock, folder, log, registry, cursors, embedded)


def _no_room() -> bool:
    return False


async def _embedded_log(
    settings: Settings,
    folder: Folder,
    clock: Clock,
    files: Files,
    supervisor: Supervisor,
    stack: contextlib.AsyncExitStack,
) -> EmbeddedLog | None:
    if settings.log != "embedded":
        return None
    options = log_options(settings, folder.path)
    log = await EmbeddedLog.open(folder.log, files=files, clock=clock, options=options, supervisor=supervisor)
    stack.push_async_callback(log.close)
    return log


async def _registry(
    settings: Settings,
    folder: Folder,
    clock: Clock,
    files: Files,
    on_full: Callable[[], bool],
    tell: Tell,
    stack: contextlib.AsyncExitStack,
) -> Registry:
    key = await _token_key(settings, folder, files)
    url = sqlite_url(folder.registry) if settings.registry == "sqlite" else settings.registry

    async def attempt() -> Registry:
        return await Registry.open(url, key, password=settings.registry_password, clock=clock, on_full=on_full)

    registry = await patiently("PostgreSQL", attempt, tell)
    stack.push_async_callback(registry.close)
    return registry


async def _kafka_log(
    settings: Settings, registry: Registry, tell: Tell, supervisor: Supervisor, stack: contextlib.AsyncExitStack
) -> Log:
    try:
        # Here, not above: without Kafka nobody needs its library.
        from ams.storage.log.kafka.log import KafkaLog
    except ImportError:
        raise Unusable("log = kafka needs a library that is missing: install argo-messaging[kafka]") from None
    log = await KafkaLog.open(kafka_options(settings), registry.idempotency, supervisor=supervisor)
    stack.push_async_callback(log.close)
    await patiently("Kafka", log.topics, tell)
    return log


async def _cursors(
    settings: Settings,
    folder: Folder,
    clock: Clock,
    on_full: Callable[[], bool],
    log: Log,
    registry: Registry,
    tell: Tell,
    supervisor: Supervisor,
    stack: contextlib.AsyncExitStack,
) -> Cursors:
    if settings.registry == "sqlite":
        ends = await patiently("Kafka", partial(_ends, log), tell)
        sqlite = await SqliteCursors.open(
            folder.cursors, ends=ends, clock=clock, on_full=on_full, supervisor=supervisor
        )
        stack.push_async_callback(sqlite.close)
        return sqlite
    # Here, not above: without PostgreSQL nobody needs its driver.
    from ams.storage.cursors.postgresql import PostgresCursors

    attempt = partial(
        PostgresCursors.open, settings.registry, password=settings.registry_password, clock=clock,
        exists=registry.topics.exists,
    )  # fmt: skip
    cursors = await patiently("PostgreSQL", attempt, tell)
    stack.push_async_callback(cursors.close)
    return cursors


async def _make_missing_logs(log: Log, registry: Registry) -> None:
    """Give topics that lost their log an empty one; only a log folder that was lost or set aside leaves them behind."""
    for topic in await registry.topics.ids() - await log.topics():
        await log.create(topic)
        logger.warning("topic.log_lost", topic=topic_id_text(topic))


async def _ends(log: Log) -> dict[TopicId, Offset]:
    return {topic: bounds.end for topic, bounds in (await log.all_bounds()).items()}


async def _token_key(settings: Settings, folder: Folder, files: Files) -> bytes:
    if settings.token_key:
        return parse_key(settings.token_key)
    if settings.registry != "sqlite":
        return key_file(folder.token_key, create=True, files=files)
    is_new = not files.exists(folder.registry)
    if not is_new:
        await settle(sqlite_url(folder.registry), folder.token_key, files)
    return key_file(folder.token_key, create=is_new, files=files)
