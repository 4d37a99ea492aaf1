"""Wiring: the one room that chooses engines, makes use cases of them, and starts and stops it all in order.

`engines` opens what is kept, `starting` puts it in order, `assembly` builds the service over it.
"""

import contextlib
from collections.abc import AsyncIterator

from ams.access.role_table import role_table
from ams.audit.logins import FailedLogins
from ams.audit.trail import FileTrail
from ams.clock import Clock, SystemClock
from ams.counting import Counting
from ams.files import Disk, Files
from ams.losses import LossTotal
from ams.settings import Settings
from ams.token_uses import TokenUses
from ams.wiring.assembly import Service, assemble
from ams.wiring.engines import open_engines
from ams.wiring.identity import trusted_by
from ams.wiring.patience import Tell
from ams.wiring.push import reach_of
from ams.wiring.starting import put_in_order

__all__ = ["Service", "service"]


def _nobody(_: str) -> None:
    return None


@contextlib.asynccontextmanager
async def service(
    settings: Settings, *, clock: Clock | None = None, files: Files | None = None, tell: Tell = _nobody
) -> AsyncIterator[Service]:
    """Open everything, and close it in order at the end.

    What is on other machines and does not answer is waited for; `tell` is told what for. Raises `Unusable` with one
    line when a setting, the folder or what is in it cannot be used.
    """
    roles, reach, trusted = role_table(settings.roles_file), reach_of(settings), trusted_by(settings)
    async with open_engines(settings, clock or SystemClock(), files or Disk(), tell) as engines:
        await put_in_order(settings, engines)
        made = assemble(settings, engines, roles, reach, trusted)
        async with (
            _in_background(made.trail),
            _in_background(made.failed_logins),
            _in_background(made.token_uses),
            _in_background(made.counting),
            _in_background(made.losses),
            made.push.running(),
            made.identity.running(),
        ):
            try:
                yield made
            finally:
                await made.validators.close()


@contextlib.asynccontextmanager
async def _in_background(work: Counting | FailedLogins | FileTrail | LossTotal | TokenUses) -> AsyncIterator[None]:
    await work.start()
    try:
        yield
    finally:
        await work.close()
