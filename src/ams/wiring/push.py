"""Push, assembled: who checks endpoints, who delivers, and what the API is told of it."""

from dataclasses import dataclass

from ams.counts import Counts
from ams.dead_letters import DeadLetters
from ams.delivering import Deliverer
from ams.leasing import Leasing
from ams.push.endpoint import EndpointCheck
from ams.push.guard import Guard, networks, trust
from ams.push.memory_leases import MemoryLeases
from ams.push.sender import HttpSender
from ams.push.workers import Workers
from ams.pushers import Engines as EnginesAsUpstream
from ams.pushers import Moves, Pushers
from ams.pushing import Leaseholders, NoPushServer, Pushing, PushServer
from ams.settings import Settings
from ams.wiring.engines import Engines


@dataclass(frozen=True, slots=True)
class Reach:
    """How endpoints of others are reached, made before anything is opened: bad settings stop a start at once."""

    endpoints: EndpointCheck
    sender: HttpSender


@dataclass(frozen=True, slots=True)
class Push:
    """What push is made of."""

    pushing: Pushing
    leasing: Leasing
    dead_letters: DeadLetters
    pushers: Pushers | None
    """The workers of this process; None where others deliver, or nobody."""


def reach_of(settings: Settings) -> Reach | None:
    """Return how endpoints are reached, None while push is disabled. Raises `BadSettings`."""
    guard = Guard(networks(settings.push_allow))
    if not settings.push_enabled:
        return None
    trusted = trust(settings.push_ca_file)
    return Reach(EndpointCheck(guard, trusted), HttpSender(guard, trusted))


def push_of(settings: Settings, engines: Engines, deliverer: Deliverer, counts: Counts, reach: Reach | None) -> Push:
    """Assemble push; without a reach it is disabled."""
    registry = engines.registry
    leases = MemoryLeases(engines.clock) if settings.registry == "sqlite" else registry.push_leases
    dead_letters = DeadLetters(registry, engines.log, engines.cursors, counts)
    delivers_here = reach is not None and settings.push_inside and not settings.push_server_host
    workers = None
    if reach is not None and delivers_here:
        upstream = EnginesAsUpstream(registry, engines.log, engines.cursors, deliverer, dead_letters)
        workers = Workers(upstream, reach.sender)
    leasing = Leasing(registry, leases, workers.state_of if workers else None)
    moves = Moves(engines.cursors, deliverer) if settings.registry != "sqlite" else None
    pushers = Pushers(leasing, workers, moves) if workers else None
    return Push(_pushing(settings, engines, leasing, pushers, reach), leasing, dead_letters, pushers)


def _pushing(
    settings: Settings, engines: Engines, leasing: Leasing, pushers: Pushers | None, reach: Reach | None
) -> Pushing:
    server: PushServer = NoPushServer()
    if reach is not None:
        server = Leaseholders(leasing, pushers.settle if pushers else _nothing)
    return Pushing(
        engines.registry,
        settings.push_enabled,
        settings.push_worker_token,
        reach.endpoints if reach else None,
        server,
        leasing if reach else None,
    )


async def _nothing() -> None:
    """Let nobody know: workers elsewhere ask by themselves."""
