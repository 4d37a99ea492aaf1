"""Wiring: the only package that chooses engines, builds use cases on them, and starts and stops everything in order.

- engines: opens the stores
- identity: trusted issuers, their clients, and logins by their tokens
- pubsub: the port of Google's Pub/Sub API
- push: endpoint checks, delivery, and push in the API
- assembly: builds the service, and its links to other nodes

This module has the start, and the repairs that it makes.
"""

import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import Any

import structlog

from ams.access.permissions import read_permissions
from ams.app.wiring.assembly import Service, client_of
from ams.app.wiring.engines import Engines, ReportWait, open_engines, retry_until_available
from ams.app.wiring.identity import trusted_by
from ams.app.wiring.push import reach_of
from ams.core.clock import Clock, SystemClock
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.service.projects import Projects
from ams.service.push.configurations import Pushing
from ams.service.retention import Retention
from ams.service.subscriptions import Subscriptions
from ams.service.users import create_first_admin, push_worker
from ams.storage.files import Disk

logger = structlog.get_logger("ams")


@contextlib.asynccontextmanager
async def service(
    settings: Settings, supervisor: Supervisor, *, clock: Clock | None = None, files: Disk | None = None,
    tell: ReportWait = lambda _: None,
) -> AsyncIterator[Service]:  # fmt: skip
    """Open everything, and close it in order at the end. Raises `Unusable` with one line.

    A start waits for dependencies on other machines; `tell` is called with the one it waits for.
    """
    permissions, reach, trusted = read_permissions(settings.roles_file), reach_of(settings), trusted_by(settings)
    to_nodes = client_of(settings)
    async with open_engines(settings, clock or SystemClock(), files or Disk(), tell, supervisor) as engines:
        await _settle(engines, partial(put_in_order, settings, engines), tell)
        made = Service(settings, engines, permissions, reach, trusted, to_nodes)
        for attempt in (made.counting.catch_up, made.losses.look, made.stored.measure):
            await _settle(engines, attempt, tell)
        async with contextlib.AsyncExitStack() as stack:
            works: list[Any] = [  # each with `start` and `close`
                made.trail, made.token_uses.rounds, made.counting.rounds, made.losses.rounds,
                made.working, made.expiry.rounds, made.watched.rounds, made.stored.rounds, made.history,
                made.retention.rounds,
            ]  # fmt: skip
            if settings.metrics_labels:
                works.append(made.quota_use.rounds)
                made.quota_use.rounds.soon()
            for work in works:
                await work.start(supervisor)
                stack.push_async_callback(work.close)
            await stack.enter_async_context(made.push.running(supervisor))
            await stack.enter_async_context(made.identity.running())
            if made.forwarder is not None:
                stack.push_async_callback(made.forwarder.close)
            stack.push_async_callback(made.workers.close)
            yield made


async def _settle(engines: Engines, attempt: Callable[[], Awaitable[None]], tell: ReportWait) -> None:
    if engines.embedded:
        await attempt()
    else:
        await retry_until_available("PostgreSQL or Kafka", attempt, tell)


async def put_in_order(settings: Settings, engines: Engines) -> None:
    """Bring engines in step with the registry, and create the administrator and, for push, the worker.

    Only a service that is alone removes leftovers: another node may just be creating them. There `ams doctor` lists
    them.
    """
    registry, log, cursors = engines.registry, engines.log, engines.cursors
    projects = Projects(registry, log, cursors)
    await projects.require_registry()
    if engines.embedded:
        await projects.sweep()
        await Subscriptions(registry, log, cursors, Pushing(registry)).give_cursors()
    await Retention(registry, log).settle()
    folder = engines.folder
    if await create_first_admin(registry, folder.keep_admin_token, folder.forget_admin_token):
        logger.info("first_start", user="admin", token_file=folder.admin_token)
    if settings.push_enabled:
        await push_worker(registry, settings.push_worker_token)
        if not await Pushing(registry, True, settings.push_worker_token).place_worker():
            logger.warning("push.no_worker", setting="push_worker_token")
