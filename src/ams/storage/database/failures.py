"""What a database's errors mean: to a client that met a rule, and to the one who reads the log."""

from typing import Any

import structlog
from sqlalchemy.exc import DBAPIError

from ams.core.errors import AlreadyExists, AmsError, NotFound, RegistryUnavailable
from ams.storage.database.schema import Schema

logger = structlog.get_logger("ams.registry")


def driver_error(error: BaseException | None) -> Any:
    """Return what the driver raised."""
    return error.orig if isinstance(error, DBAPIError) else error


def reason(error: BaseException | None) -> str:
    """Return what the driver said, in one line and without any values."""
    lines = str(driver_error(error)).strip().splitlines()
    return lines[0] if lines else type(driver_error(error)).__name__


def unavailable(error: BaseException) -> RegistryUnavailable:
    """Say in the log why the database could not do its work, and return what the caller is told."""
    logger.error("registry.failed", reason=reason(error))
    failure = RegistryUnavailable()
    failure.__cause__ = error
    return failure


def broken_rule(error: BaseException, schema: Schema, *, foreign: bool, constraint: str) -> AmsError:
    """Say what a row means to a client that was refused by a constraint of this name, or for what it refers to."""
    if foreign:
        return NotFound(schema.absent)
    taken = schema.taken.get(constraint)
    return AlreadyExists(taken) if taken else unavailable(error)
