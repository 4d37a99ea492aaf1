"""Quotas: how much one project may take of what all projects share.

A quota has a default in the settings and, if an administrator says so, a value of the project's own. 0 is no limit; of
stored bytes, connections, waiting pulls and streams it is a fair share: as much as the project leaves free
(`ams.core.fair_share`).
"""

from collections.abc import Mapping
from types import MappingProxyType

from ams.core.errors import InvalidInput, QuotaExceeded

STORED_BYTES = "storedBytes"
PUBLISH_BYTES = "publishBytesPerSecond"
REQUESTS = "requestsPerSecond"
TOPICS = "topics"
SUBSCRIPTIONS = "subscriptions"
SCHEMAS = "schemas"
SCHEMA_BYTES = "schemaBytes"
MEMBERS = "members"
CONNECTIONS = "connections"
WAITING_PULLS = "waitingPulls"
STREAMS = "streams"

QUOTAS: Mapping[str, str] = MappingProxyType(
    {
        STORED_BYTES: "project_stored_bytes",
        PUBLISH_BYTES: "project_publish_bytes_per_second",
        REQUESTS: "project_requests_per_second",
        TOPICS: "project_topics",
        SUBSCRIPTIONS: "project_subscriptions",
        SCHEMAS: "project_schemas",
        SCHEMA_BYTES: "project_schema_bytes",
        MEMBERS: "project_members",
        CONNECTIONS: "project_connections",
        WAITING_PULLS: "project_waiting_pulls",
        STREAMS: "project_streams",
    }
)
"""All quotas by name, in the order in which they are shown, and the setting with the default of each."""
COUNTED = (TOPICS, SUBSCRIPTIONS, SCHEMAS, SCHEMA_BYTES, MEMBERS)  # quotas of what the registry stores
REVISION_BYTES = 256  # of `schemaBytes` for each revision beside what it says: a row takes space, however short it is
MAX_LIMIT = 2**53  # largest limit: every JSON reader takes it for a whole number

Limits = Mapping[str, int]  # limits by the name of their quota
NO_LIMITS: Limits = {}


class Quotas:
    """The limits of every project: the defaults, and how a project's own values replace them."""

    def __init__(self, defaults: Limits = NO_LIMITS) -> None:
        self.defaults: Limits = MappingProxyType(dict.fromkeys(QUOTAS, 0) | dict(defaults))

    def limit(self, own: Limits, name: str) -> int:
        """Return the limit of a quota for a project with these own values; 0: none."""
        value = own.get(name)
        return self.defaults[name] if value is None else value

    def check(self, own: Limits, name: str, used: int) -> None:
        """Raise `QuotaExceeded` when a project may not use so much."""
        limit = self.limit(own, name)
        if limit and used > limit:
            raise exceeded(name, f"its limit is {limit}")


def exceeded(name: str, why: str) -> QuotaExceeded:
    """Return the error for a project that would have more of something than it may."""
    return QuotaExceeded(f"Quota {name} of the project is exceeded: {why}")


def changed_limits(own: Limits, changes: Mapping[str, int | None]) -> Limits:
    """Return a project's own values after changes, None for the default again. Raises `InvalidInput`."""
    for name, value in changes.items():
        if name not in QUOTAS:
            raise InvalidInput(f"There is no quota {name[:64]!r}: there are {', '.join(QUOTAS)}")
        if value is not None and not 0 <= value <= MAX_LIMIT:
            raise InvalidInput(f"The quota {name} is a whole number from 0 to {MAX_LIMIT}")
    after = {**own, **changes}
    return {name: value for name in QUOTAS if (value := after.get(name)) is not None}
