"""Wiring: the one package that chooses engines, makes use cases of them, and starts and stops it all in order.

`engines` opens what is kept, `starting` puts it in order, `assembly` builds the service over it.
"""

import contextlib
from collections.abc import AsyncIterator

from ams.access.permissions import role_table
from ams.app.wiring.assembly import Service, assemble
from ams.app.wiring.engines import open_engines
from ams.app.wiring.identity import trusted_by
from ams.app.wiring.patience import Tell
from ams.app.wiring.push import reach_of
from ams.app.wiring.starting import put_in_order
from ams.core.clock import Clock, SystemClock
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.service.counting import Counting
from ams.service.retention import LossTotal
from ams.service.tokens import TokenUses
from ams.storage.audit.logins import FailedLogins
from ams.storage.audit.trail import FileTrail
from ams.storage.files import Disk, Files

__all__ = ["Service", "service"]


def _nobody(_: str) -> None:
    return None


@contextlib.asynccontextmanager
async def service(
    settings: Settings,
    *,
    clock: Clock | None = None,
    files: Files | None = None,
    tell: Tell = _nobody,
    supervisor: Supervisor | None = None,
) -> AsyncIterator[Service]:
    """Open everything, and close it in order at the end.

    What is on other machines and does not answer is waited for; `tell` is called with what for. The `supervisor`
    watches what runs in the background. Raises `Unusable` with one
    line when a setting, the folder or what is in it cannot be used.
    """
    watched = supervisor or Supervisor()
    roles, reach, trusted = role_table(settings.roles_file), reach_of(settings), trusted_by(settings)
    async with open_engines(settings, clock or SystemClock(), files or Disk(), tell, watched) as engines:
        await put_in_order(settings, engines)
        made = assemble(settings, engines, roles, reach, trusted)
        async with (
            _in_background(made.trail, watched),
            _in_background(made.failed_logins, watched),
            _in_background(made.token_uses, watched),
            _in_background(made.counting, watched),
            _in_background(made.losses, watched),
            made.push.running(watched),
            made.identity.running(),
        ):
            try:
                yield made
            finally:
                await made.validators.close()


@contextlib.asynccontextmanager
async def _in_background(
    work: Counting | FailedLogins | FileTrail | LossTotal | TokenUses, supervisor: Supervisor
) -> AsyncIterator[None]:
    await work.start(supervisor)
    try:
        yield
    finally:
        await work.close()
