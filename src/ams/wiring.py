"""Wiring: the one place that chooses engines, makes use cases of them, and starts and stops it all in order."""

import contextlib
from collections.abc import AsyncIterator
from dataclasses import dataclass

import structlog

from ams.access.admission import Admission
from ams.access.rates import Rates
from ams.access.role_table import RoleTable, role_table
from ams.clock import Clock, Milliseconds, SystemClock
from ams.counting import Counting
from ams.counts import Counts
from ams.cursors.base import Cursors
from ams.cursors.sqlite import SqliteCursors
from ams.delivering import Deliverer
from ams.doctor import Doctor
from ams.files import Disk, Files
from ams.folder import Folder
from ams.http.app import App
from ams.http.cors import CrossOrigin
from ams.http.fast import FastRoutes
from ams.http.gate import Gate
from ams.http.limits import Bodies
from ams.http.routes import rows
from ams.http.tracing import Traced
from ams.log.embedded import EmbeddedLog, LogOptions
from ams.members import Members
from ams.metrics import Metrics
from ams.names import Offset, TopicId, topic_id_text
from ams.projects import Projects
from ams.publishing import Publisher
from ams.push.endpoint import EndpointCheck
from ams.push.guard import Guard, networks, trust
from ams.pushing import Pushing
from ams.reading import RangeReader
from ams.registrations import Registrations
from ams.registry.database import sqlite_url
from ams.registry.registry import Registry
from ams.registry.rotation import settle
from ams.registry.secrets import key_file, parse_key
from ams.retention import Retention
from ams.schemas import Schemas
from ams.seeking import Seeker
from ams.service import About
from ams.settings import Settings
from ams.subscriptions import Subscriptions
from ams.topics import Topics
from ams.usage import Usage
from ams.users import Users, first_admin, push_worker
from ams.validators import Validators

logger = structlog.get_logger("ams")


@dataclass(frozen=True, slots=True)
class Service:
    """Engines and the application over them, ready to be served."""

    settings: Settings
    folder: Folder
    log: EmbeddedLog
    registry: Registry
    cursors: Cursors
    deliverer: Deliverer
    counting: Counting
    counts: Counts
    api: App
    app: CrossOrigin
    """The API as browsers may use it too."""


@contextlib.asynccontextmanager
async def service(
    settings: Settings, *, clock: Clock | None = None, files: Files | None = None
) -> AsyncIterator[Service]:
    """Open everything in the data folder, and close it in order at the end.

    Raises `Unusable` with one line when the folder or what is in it cannot be used.
    """
    clock, files = clock or SystemClock(), files or Disk()
    table = role_table(settings.roles_file)
    endpoints = _endpoint_check(settings)
    async with contextlib.AsyncExitStack() as stack:
        folder = Folder.take(settings.data)
        stack.callback(folder.release)
        log = await EmbeddedLog.open(folder.log, files=files, clock=clock, options=_log_options(settings, folder))
        stack.push_async_callback(log.close)
        registry = await Registry.open(
            sqlite_url(folder.registry),
            key=await _token_key(settings, folder),
            clock=clock,
            on_full=log.release_reserve,
        )
        stack.push_async_callback(registry.close)
        await _make_missing_logs(log, registry)
        cursors = await SqliteCursors.open(
            folder.cursors, ends=await _ends(log), clock=clock, on_full=log.release_reserve
        )
        stack.push_async_callback(cursors.close)
        made = _assemble(settings, table, clock, folder, log, registry, cursors, endpoints)
        await Projects(registry, log, cursors).sweep()
        await Retention(registry, log).settle()
        await Subscriptions(registry, log, cursors).give_cursors()
        await _first_start(registry, folder)
        await _push_worker(settings, registry)
        await made.counting.start()
        stack.push_async_callback(made.counting.close)
        yield made


def _assemble(
    settings: Settings,
    table: RoleTable,
    clock: Clock,
    folder: Folder,
    log: EmbeddedLog,
    registry: Registry,
    cursors: Cursors,
    endpoints: EndpointCheck | None,
) -> Service:
    counts = Counts(clock)
    counting = Counting(registry, log, counts, by_topic=settings.metrics_labels)
    admission = Admission(
        registry,
        service_token=settings.service_token,
        per_resource_auth=settings.per_resource_auth,
        permissions=table.permissions,
    )
    gate = Gate(admission, settings.auth_option, _rates(settings, clock))
    bodies = Bodies(settings.max_body_bytes, settings.max_buffered_bytes, settings.request_seconds)
    validators = Validators(registry)
    publisher = Publisher(registry, log, settings.max_message_bytes, validators, counts)
    deliverer = Deliverer(
        registry, log, cursors, settings.max_pull_messages, settings.max_pull_bytes, settings.pull_wait,
        push_enabled=settings.push_enabled, counts=counts,
    )  # fmt: skip
    pushing = Pushing(registry, settings.push_enabled, settings.push_worker_token, endpoints)
    routes = rows(
        projects=Projects(registry, log, cursors),
        members=Members(registry),
        topics=Topics(registry, log, counting),
        subscriptions=Subscriptions(registry, log, cursors, pushing),
        schemas=Schemas(registry, log, validators),
        users=Users(registry, table.roles),
        registrations=Registrations(registry),
        seeker=Seeker(registry, log, cursors),
        pushing=pushing,
        about=About(admission, registry, settings.proxy_hostname, pushing, _push_server(settings)),
        reader=RangeReader(registry, log, settings.max_read_messages),
        retention=Retention(registry, log),
        doctor=Doctor(registry, log, cursors, Milliseconds(round(settings.retention * 1000)), clock),
        metrics=Metrics(registry, counting, cursors, clock),
        usage=Usage(registry, counting, admission, clock),
    )
    fast = FastRoutes(gate, bodies, publisher, deliverer, lenient=settings.lenient_data)
    api = App(gate, bodies, fast, routes)
    opened = CrossOrigin(Traced(api) if settings.log_level == "debug" else api)
    return Service(settings, folder, log, registry, cursors, deliverer, counting, counts, api, opened)


def _rates(settings: Settings, clock: Clock) -> Rates | None:
    users, projects = settings.user_requests_per_second, settings.project_requests_per_second
    return Rates.of(users=users, projects=projects, clock=clock)


def _endpoint_check(settings: Settings) -> EndpointCheck | None:
    """Return what asks push endpoints for their hash, None while push is disabled. Raises `Unusable`."""
    guard = Guard(networks(settings.push_allow))
    return EndpointCheck(guard, trust(settings.push_ca_file)) if settings.push_enabled else None


def _push_server(settings: Settings) -> str:
    """Return what `/status` calls the push server (contract 14.5)."""
    return f"{settings.push_server_host}:{settings.push_server_port}" if settings.push_server_host else "internal"


async def _push_worker(settings: Settings, registry: Registry) -> None:
    """See that somebody can deliver, and that the worker finds all it has to."""
    if not settings.push_enabled:
        return
    if settings.push_worker_token:
        await push_worker(registry, settings.push_worker_token)
    if not await Pushing(registry, True, settings.push_worker_token).place_worker():
        logger.warning("push.no_worker", setting="push_worker_token")


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


async def _make_missing_logs(log: EmbeddedLog, registry: Registry) -> None:
    """Give topics that lost their log an empty one; only a log folder that was lost or set aside leaves them behind."""
    for topic in await registry.topics.ids() - await log.topics():
        await log.create(topic)
        logger.warning("topic.log_lost", topic=topic_id_text(topic))


async def _ends(log: EmbeddedLog) -> dict[TopicId, Offset]:
    return {topic: (await log.bounds(topic)).end for topic in await log.topics()}


async def _token_key(settings: Settings, folder: Folder) -> bytes:
    if settings.token_key:
        return parse_key(settings.token_key)
    is_new = not Disk().exists(folder.registry)
    if not is_new:
        await settle(sqlite_url(folder.registry), folder.token_key)
    return key_file(folder.token_key, create=is_new)


async def _first_start(registry: Registry, folder: Folder) -> None:
    """Make the first administrator, its token in a file only the owner can read."""
    if await first_admin(registry, folder.keep_admin_token):
        logger.info("first_start", user="admin", token_file=folder.admin_token)
