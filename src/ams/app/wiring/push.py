"""Push, assembled: endpoint checks, delivery, and push in the API."""

import contextlib
import random
import socket
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, NamedTuple

import structlog

from ams.app.wiring.engines import Engines
from ams.cluster.lease_table import OtherHolders, StoredLeases
from ams.cluster.leases import MemoryLeases
from ams.core.errors import Unusable
from ams.core.names import new_uuid
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.core.urls import is_loopback
from ams.outgoing.address_guard import Guard, networks, trust
from ams.push.endpoints import EndpointCheck
from ams.push.report import DeliveryTally
from ams.push.sender import HttpSender
from ams.push.workers import Workers
from ams.service.dead_letters import DeadLetters
from ams.service.delivery import Deliverer
from ams.service.parallel.assembly import ParallelSubscriptions
from ams.service.push.assignment import Assignment
from ams.service.push.configurations import Leaseholders, Pushing, no_push_server
from ams.service.push.identity import PushIdentity
from ams.service.push.runner import EngineHandOuts, EnginesUpstream, Moves, PushRunner

if TYPE_CHECKING:
    from ams.push.rpc.client import DrivenPushServer


logger = structlog.get_logger("ams.push")


class Reach(NamedTuple):
    """Parts of push created before anything is opened, so that bad settings stop a start at once."""

    endpoints: EndpointCheck
    sender: HttpSender
    driven: "DrivenPushServer | None"  # the remote push server; None without push_server_host


class Push:
    """Parts of push; it is disabled without `reach`."""

    def __init__(
        self, settings: Settings, engines: Engines, deliverer: Deliverer, working: ParallelSubscriptions,
        dead_letters: DeadLetters, reach: Reach | None,
    ) -> None:  # fmt: skip
        registry, cursors, issuer = engines.registry, engines.cursors, issuer_of(settings)
        is_alone = settings.registry == "sqlite"
        if settings.pubsub_port is not None and not is_alone and not settings.proxy_hostname:
            remedy = "set proxy_hostname, or each node is an issuer of its own"
            logger.warning("push.issuer", issuer=issuer, remedy=remedy)
        self.reach, self.identity = reach, PushIdentity(registry.signing_keys, issuer, engines.clock)
        tally, workers = DeliveryTally(settings.metrics_labels), None
        if reach is not None and reach.driven is None and settings.push_inside:
            upstream = EnginesUpstream(deliverer, dead_letters, EngineHandOuts(registry, working))
            workers = Workers(upstream, reach.sender, engines.clock, random.random, tally=tally)
        own = new_uuid()
        alone = MemoryLeases(engines.clock, own, OtherHolders(registry))
        leases = alone if is_alone else StoredLeases(registry)
        state_of = workers.state_of if workers else None
        self.assignment = Assignment(registry, leases, state_of, registry.push_secrets.all_valid, self.identity.tokens)
        moves = None if is_alone else Moves(cursors, deliverer)
        # Workers of this process; None if others deliver.
        self.runner = PushRunner(self.assignment, workers, tally, moves, own) if workers else None
        self.pushing = Pushing(registry, worker_token=settings.push_worker_token)
        if reach is not None:
            settle = self.runner.settle if self.runner else no_push_server
            server = reach.driven or Leaseholders(self.assignment, settle)
            self.pushing = Pushing(
                registry, True, settings.push_worker_token, reach.endpoints, server, self.assignment, not reach.driven,
                settings.pubsub_emulator,
            )  # fmt: skip

    @contextlib.asynccontextmanager
    async def running(self, supervisor: Supervisor) -> AsyncIterator[None]:
        """Deliver, or drive the remote push server, until the block ends."""
        async with contextlib.AsyncExitStack() as stack:
            if self.reach is not None:
                stack.push_async_callback(self.reach.sender.close)
                if self.reach.driven is not None:
                    stack.push_async_callback(self.reach.driven.close)
                    await self.reach.driven.start(self.assignment.targets, supervisor)
            if self.runner is not None:
                stack.push_async_callback(self.runner.close)
                await self.runner.start(supervisor)
            yield


def reach_of(settings: Settings) -> Reach | None:
    """Return how to reach endpoints; None while push is disabled. Raises `Unusable`."""
    guard = Guard(networks(settings.push_allow, "push_allow"))
    if not settings.push_enabled:
        return None
    trusted = trust(settings.push_ca_file, "push_ca_file")
    sender = HttpSender(guard, trusted, local_http=settings.pubsub_emulator)
    driven = None
    if settings.push_server_host:
        try:
            # Local import: only a push server needs gRPC.
            from ams.push.rpc.client import DrivenPushServer
        except ImportError:
            raise Unusable("push_server_host needs a library that is missing: install argo-messaging[push]") from None
        driven = DrivenPushServer(settings)
    return Reach(EndpointCheck(guard, trusted), sender, driven)


def issuer_of(settings: Settings) -> str:
    """Return the service's URL for receivers of deliveries. `settings.port` is the actual port."""
    if settings.proxy_hostname:
        return f"https://{settings.proxy_hostname}"
    scheme, host = "https" if settings.cert or settings.tls_self_signed else "http", settings.host
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - not bound
        host = socket.gethostname()
    elif settings.tls_self_signed and is_loopback(host):
        host = "localhost"  # named in a self-made certificate
    shown = f"[{host}]" if ":" in host else host
    is_usual = settings.port == (443 if scheme == "https" else 80)
    return f"{scheme}://{shown}" + ("" if is_usual else f":{settings.port}")
