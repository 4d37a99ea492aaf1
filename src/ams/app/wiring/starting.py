"""What a start sees to before anybody is served: what a crash or a new setting left undone, and the first users."""

import structlog

from ams.app.wiring.engines import Engines
from ams.core.settings import Settings
from ams.service.projects import Projects
from ams.service.push.pushing import Pushing
from ams.service.retention import Retention
from ams.service.subscriptions import Subscriptions
from ams.service.users import first_admin, push_worker
from ams.storage.folder import Folder
from ams.storage.registry.registry import Registry

logger = structlog.get_logger("ams")


async def put_in_order(settings: Settings, engines: Engines) -> None:
    """Bring engines in step with the registry, and see that there is an administrator and, for push, a worker.

    What looks left over is touched only by a service that is alone: where there are others, one of them may just be
    making it. There `ams doctor` names it.
    """
    registry, log, cursors = engines.registry, engines.log, engines.cursors
    projects = Projects(registry, log, cursors)
    await projects.require_registry()
    if engines.embedded:
        await projects.sweep()
        await Subscriptions(registry, log, cursors).give_cursors()
    await Retention(registry, log).settle()
    await _first_start(registry, engines.folder)
    await _push_worker(settings, registry)


async def _first_start(registry: Registry, folder: Folder) -> None:
    """Make the first administrator, its token in a file only the owner can read."""
    if await first_admin(registry, folder.keep_admin_token, folder.forget_admin_token):
        logger.info("first_start", user="admin", token_file=folder.admin_token)


async def _push_worker(settings: Settings, registry: Registry) -> None:
    """See that somebody can deliver, and that the worker finds all it has to."""
    if not settings.push_enabled:
        return
    await push_worker(registry, settings.push_worker_token)
    if not await Pushing(registry, True, settings.push_worker_token).place_worker():
        logger.warning("push.no_worker", setting="push_worker_token")
