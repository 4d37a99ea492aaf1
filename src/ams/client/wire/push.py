"""Calls and answers of push delivery: how one goes, and leases for processes that deliver."""

from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from ams.client.wire.call import Call, json_body, reader, subscriptions_path
from ams.client.wire.values import CamelObject, Object

MAX_STATES = 100
"""States that one heartbeat may tell."""


class PushAttempt(Object, frozen=True, kw_only=True, omit_defaults=True):
    """One request to the endpoint; status 0: there was no answer."""

    time: str
    messages: int
    milliseconds: int
    bytes: int
    status: int = 0
    error: str = ""


class PushError(Object, frozen=True, kw_only=True, omit_defaults=True):
    """What went wrong: `consume`, `send` or `acknowledge`; the details are not told to everybody."""

    time: str
    what: str
    detail: str = ""
    status: int = 0


class PushStatus(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """How a delivery goes; times are UTC. Without a worker that tells, the counters are None."""

    push_status: str
    state: str
    """active, retrying, stopped, unverified, inactive or unknown."""
    backlog: int | None = None
    circuit: str = ""
    batch: int | None = None
    last_success: str = ""
    last_error: PushError | None = None
    error: PushError | None = None
    """What is wrong now."""
    next_attempt: str = ""
    delivered: int | None = None
    """Messages; the next three are of requests, and of messages."""
    deliveries: int | None = None
    failed: int | None = None
    dead: int | None = None
    undecodable: int | None = None
    late: int | None = None
    attempts: list[PushAttempt]
    """Oldest first."""


class PushTarget(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """A subscription to deliver; `push_config` is whole, `secrets` are the newest first."""

    id: str
    name: str
    topic: str
    topic_id: str
    revision: int = 0
    """Raised by each modification of the configuration."""
    ack_deadline_seconds: int
    push_config: dict[str, Any]
    secrets: list[str]


class PushLease(CamelObject, frozen=True, kw_only=True, omit_defaults=True):
    """What to deliver until so many seconds after it was asked for; `targets` None: those told before."""

    lease_seconds: float
    beat_seconds: float
    version: str
    targets: list[PushTarget] | None = None


_lease = reader(PushLease)
_status = reader(PushStatus)


def get_push_status(project: str, subscription: str) -> Call[PushStatus]:
    """Ask how the delivery of a subscription goes; `Conflict` for one that is pulled from."""
    return Call("GET", subscriptions_path(project, subscription, "pushStatus"), _status)


def lease_push(
    holder: str,
    held: Sequence[str],
    *,
    states: Mapping[str, object] | None = None,
    leaving: bool = False,
    version: str = "",
) -> Call[PushLease]:
    """Say that a process delivers these subscriptions, by their ids, and ask which it shall deliver from now on.

    `holder` is a name of its own (at most 64 letters, digits, `.`, `_`, `:` and `-`), another one at each start;
    `states` are how deliveries go, of which the first `MAX_STATES` are told; `version` is that of the targets it has.
    """
    told = dict(islice((states or {}).items(), MAX_STATES))
    body = {"holder": holder, "held": list(held), "states": told, "leaving": leaving, "version": version}
    return Call("POST", "/v1/push:lease", _lease, json_body(body))
