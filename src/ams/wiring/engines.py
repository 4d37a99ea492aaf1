"""The engines: what is kept in the data folder, opened in order and closed in the opposite one."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from ams.clock import Clock, Milliseconds
from ams.cursors.base import Cursors
from ams.cursors.sqlite import SqliteCursors
from ams.files import Files
from ams.folder import Folder
from ams.log.base import Log
from ams.log.embedded import EmbeddedLog, LogOptions
from ams.names import Offset, TopicId, topic_id_text
from ams.registry.database import sqlite_url
from ams.registry.registry import Registry
from ams.registry.rotation import settle
from ams.registry.secrets import key_file, parse_key
from ams.settings import Settings
from ams.wiring.patience import Tell

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
async def open_engines(settings: Settings, clock: Clock, files: Files, tell: Tell) -> AsyncIterator[Engines]:
    """Open everything in the data folder; raise `Unusable` with one line when something cannot be used."""
    async with contextlib.AsyncExitStack() as stack:
        folder = Folder.take(settings.data)
        stack.callback(folder.release)
        log = await EmbeddedLog.open(folder.log, files=files, clock=clock, options=_log_options(settings, folder))
        stack.push_async_callback(log.close)
        key = await _token_key(settings, folder, files)
        registry = await Registry.open(sqlite_url(folder.registry), key, clock=clock, on_full=log.release_reserve)
        stack.push_async_callback(registry.close)
        await _make_missing_logs(log, registry)
        ends = await _ends(log)
        cursors = await SqliteCursors.open(folder.cursors, ends=ends, clock=clock, on_full=log.release_reserve)
        stack.push_async_callback(cursors.close)
        yield Engines(clock, folder, log, registry, cursors, log)


def _log_options(settings: Settings, folder: Folder) -> LogOptions:
    return LogOptions(
        retention=Milliseconds(round(settings.retention * 1000)),
        idempotency_window=Milliseconds(round(settings.idempotency_window * 1000)) or None,
        max_bytes=settings.max_data_bytes or None,
        data_folder=folder.path,
        min_free_bytes=settings.min_free_bytes,
        reserve_bytes=settings.reserve_bytes,
        segment_bytes=settings.segment_bytes,
        sync="interval" if settings.sync == "interval" else "always",
        sync_interval_ms=round(settings.sync_interval * 1000),
    )


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
    is_new = not files.exists(folder.registry)
    if not is_new:
        await settle(sqlite_url(folder.registry), folder.token_key, files)
    return key_file(folder.token_key, create=is_new, files=files)
