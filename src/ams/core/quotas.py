"""Quotas of projects for shared resources.

A quota has a default in the settings, and an administrator may set a value for a project. 0 means no limit; for stored
bytes, connections, waiting pulls and streams it means a fair share (`ams.core.fair_share`).
"""

import re
from collections.abc import Mapping
from types import MappingProxyType

from ams.core.errors import InvalidInput, QuotaExceeded, refuse_if

STORED_BYTES, PUBLISH_BYTES, REQUESTS = "storedBytes", "publishBytesPerSecond", "requestsPerSecond"
TOPICS, SUBSCRIPTIONS, MEMBERS = "topics", "subscriptions", "members"
SCHEMAS, SCHEMA_BYTES = "schemas", "schemaBytes"
CONNECTIONS, WAITING_PULLS, STREAMS = "connections", "waitingPulls", "streams"

_IN_ORDER = (
    STORED_BYTES, PUBLISH_BYTES, REQUESTS, TOPICS, SUBSCRIPTIONS, SCHEMAS, SCHEMA_BYTES, MEMBERS, CONNECTIONS,
    WAITING_PULLS, STREAMS,
)  # fmt: skip
_CAPITAL = re.compile("(?=[A-Z])")
QUOTAS: Mapping[str, str] = MappingProxyType({name: f"project_{_CAPITAL.sub('_', name).lower()}" for name in _IN_ORDER})
"""Setting with the default of each quota, such as `project_stored_bytes`, in display order."""
REGISTRY_QUOTAS = (TOPICS, SUBSCRIPTIONS, SCHEMAS, SCHEMA_BYTES, MEMBERS)  # quotas of what the registry stores
REVISION_BYTES = 256  # overhead per revision in `schemaBytes`: the space of a row
MAX_LIMIT = 2**53  # largest integer that every JSON parser reads exactly

Limits = Mapping[str, int]  # limits by the name of their quota
NO_LIMITS: Limits = {}


class Quotas:
    """Limits of projects: the defaults, overridden by a project's own values."""

    def __init__(self, defaults: Limits = NO_LIMITS) -> None:
        self.defaults: Limits = MappingProxyType(dict.fromkeys(QUOTAS, 0) | dict(defaults))

    def limit(self, own: Limits, name: str) -> int:
        """Return the limit of a quota for a project with these own values; 0: no limit."""
        value = own.get(name)
        return self.defaults[name] if value is None else value

    def check(self, own: Limits, name: str, used: int) -> None:
        """Raise `QuotaExceeded` if `used` is over the limit."""
        limit = self.limit(own, name)
        if limit and used > limit:
            raise quota_exceeded(name, f"its limit is {limit}")


def quota_exceeded(name: str, why: str) -> QuotaExceeded:
    """Return the error for a request over a quota."""
    return QuotaExceeded(f"Quota {name} of the project is exceeded: {why}")


def changed_limits(own: Limits, changes: Mapping[str, int | None]) -> Limits:
    """Return a project's own values after changes; None resets to the default. Raises `InvalidInput`."""
    for name, value in changes.items():
        refuse_if(name not in QUOTAS, f"There is no quota {name[:64]!r}: there are {', '.join(QUOTAS)}")
        if value is not None and not 0 <= value <= MAX_LIMIT:
            raise InvalidInput(f"The quota {name} is a whole number from 0 to {MAX_LIMIT}")
    after = {**own, **changes}
    return {name: value for name in QUOTAS if (value := after.get(name)) is not None}
