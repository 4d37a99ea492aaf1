"""Google's Pub/Sub on the service's use cases. Imported only if it is on: it needs the extra `pubsub`."""

import contextlib
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path

import grpc

from ams.app.wiring.assembly import Service
from ams.core.errors import BadSettings
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.http.asgi import Application
from ams.http.audit import log_requests
from ams.http.tls import Certificate
from ams.outgoing.address_guard import Network, networks
from ams.pubsub import iam, publisher, schemas, subscriber
from ams.pubsub.calls import Calls, EmulatorDoor, Rpc, bind_rpcs
from ams.pubsub.forwarding import Relays
from ams.pubsub.requests import MOST_PAYLOAD, MOST_REQUEST
from ams.pubsub.rest import Rest, refusal_of
from ams.pubsub.server import answering
from ams.pubsub.streaming_pull import Streams
from ams.web.answers import Refusal
from ams.web.asgi_exchange import AsgiExchange
from ams.web.connection import Port
from ams.web.http2_relay import ALPN
from ams.web.listener import Listener, ListenerLimits
from ams.web.server import listen, url_of


@contextlib.asynccontextmanager
async def pubsub(
    settings: Settings, made: Service, certificate: Certificate | None, connections: int, supervisor: Supervisor,
    listeners: list[Listener],
) -> AsyncIterator[str]:  # fmt: skip
    """Answer Google's clients until the block ends; yields HOST:PORT, and adds the port's listener to `listeners`."""
    proxies = networks(settings.trusted_proxies, "trusted_proxies")
    relays = _relays(settings, made, certificate)
    calls = _calls(settings, made, certificate, relays, proxies)
    leases = subscriber.Leases(made.deliverer, made.working)
    streams = Streams(leases, calls, made.slots.streams)
    topics, subscriptions, snapshots = made.topics, made.subscriptions, made.snapshots
    services = {
        publisher.NAME: bind_rpcs(publisher.PublisherRpcs(
            topics, made.publisher, made.retention, subscriptions, snapshots, made.schemas,
            settings.google_message_bytes,
        )),
        subscriber.NAME: bind_rpcs(subscriber.SubscriberRpcs(
            made.registry, subscriptions, snapshots, made.seeker, made.push.pushing, leases, made.slots.waiting_pulls
        )),
        schemas.NAME: bind_rpcs(schemas.SchemaRpcs(made.schemas)),
        iam.NAME: bind_rpcs(iam.IamRpcs(made.registry, topics, subscriptions, snapshots, made.schemas)),
    }  # fmt: skip
    limits = ListenerLimits(connections=connections, unshared=proxies)
    context = certificate.context_for(ALPN) if certificate and not settings.pubsub_emulator else None
    port = _port(settings, made, calls, services, proxies)
    try:
        with contextlib.closing(listen(settings.host, settings.pubsub_port or 0, "pubsub_port")) as sock:
            async with answering(
                sock, made.folder.path, services, streams, calls, port, limits, supervisor, context
            ) as listener:
                listeners.append(listener)
                yield url_of("", sock).removeprefix("://")
    finally:
        if relays is not None:
            await relays.close()


def _port(
    settings: Settings, made: Service, calls: Calls, services: Mapping[str, Sequence[Rpc]], proxies: Sequence[Network]
) -> Port:
    is_open = settings.pubsub_emulator
    rest = Rest(calls, services, made.bodies, made.api.new_id, proxies=proxies, is_open=is_open)
    app: Application = log_requests(rest) if settings.log_level == "debug" else rest
    return Port(
        lambda connection, request: AsgiExchange(connection, app, request),
        lambda error: Refusal(*refusal_of(error)[:3]),  # its media type is that of all refusals
        max_header_bytes=settings.max_header_bytes, head_seconds=settings.request_seconds,
        body_seconds=settings.request_seconds, idle_seconds=settings.keep_alive_seconds,
    )  # fmt: skip


def _relays(settings: Settings, made: Service, certificate: Certificate | None) -> Relays | None:
    if not made.node:
        return None
    plain = certificate is None or settings.pubsub_emulator
    authorities = Path(settings.node_ca_file).read_bytes() if settings.node_ca_file else None
    credentials = None if plain else grpc.ssl_channel_credentials(authorities)
    return Relays(made.node, made.ownership.doubt, credentials)


def _calls(
    settings: Settings, made: Service, certificate: Certificate | None, relay: Relays | None, proxies: Sequence[Network]
) -> Calls:
    is_emulator = settings.pubsub_emulator
    is_plain = not is_emulator and certificate is None
    if is_plain and not proxies:
        raise BadSettings(
            "pubsub_port needs TLS (cert and key, or tls_self_signed), a proxy that does TLS (trusted_proxies), or"
            " pubsub_emulator"
        )
    door = EmulatorDoor(made.registry, made.projects) if is_emulator else made.gate
    return Calls(
        door, made.auditor, made.bodies, made.api.new_id, made.pubsub_calls, made.deliverer.unread,
        most=settings.max_connections, seconds=settings.request_seconds,
        most_payload=MOST_PAYLOAD if settings.google_message_bytes < MOST_PAYLOAD else MOST_REQUEST,
        proxies=proxies, only_proxies=is_plain, relay=relay,
    )  # fmt: skip
