"""Nodes that share an installation: who works on which parallel subscription, and how they ask each other."""

from dataclasses import dataclass
from urllib.parse import urlsplit

from ams.app.wiring.engines import Engines
from ams.core.names import new_uuid
from ams.core.settings import Settings
from ams.http.forwarding import Forwarder
from ams.outgoing.client import HttpClient
from ams.outgoing.guard import EVERYWHERE, Guard, trust
from ams.service.delivering import UnreadAnswers
from ams.service.parallel.ownership import Alone, Ownership, Shared
from ams.storage.registry.owners import Node

CONNECT_SECONDS = 1.0  # to another node; one that takes longer is as good as gone
ANSWER_SECONDS = 6.0  # for an answer of another node, beside the wait of a pull: clients give up at ten
MESSAGE_BYTES = 2048  # of a message in an answer, beside its content: id, time, the id to acknowledge it by


@dataclass(frozen=True, slots=True)
class Nodes:
    """This node and the others."""

    ownership: Ownership
    forwarder: Forwarder | None  # None where there are no others
    name: str = ""  # of this node, where there are others


def client_of(settings: Settings) -> HttpClient:
    """Return what other nodes are asked by; raise `BadSettings`."""
    tls = trust(settings.node_ca_file, "node_ca_file") if settings.node_ca_file else None
    content = settings.max_pull_bytes + settings.max_message_bytes
    return HttpClient(
        Guard(EVERYWHERE),
        tls,
        seconds=settings.pull_wait + ANSWER_SECONDS,
        connect_seconds=CONNECT_SECONDS,
        most_bytes=content + settings.max_pull_messages * MESSAGE_BYTES,
        at_once=settings.max_connections,
    )


def nodes_of(settings: Settings, engines: Engines, client: HttpClient, unread: UnreadAnswers) -> Nodes:
    """Return how this node stands to others; one with a log or a registry of its own has none."""
    if engines.embedded or settings.registry == "sqlite":
        return Nodes(Alone(), None)
    node = Node(new_uuid(), settings.node_url, _pubsub_of(settings))
    ownership = Shared(engines.registry.owners, node)
    return Nodes(ownership, Forwarder(client, node.name, ownership.doubt, unread), node.name)


def _pubsub_of(settings: Settings) -> str:
    """Return HOST:PORT of this node's Google Pub/Sub, which is on the host of `node_url`; empty when it is unknown."""
    host = urlsplit(settings.node_url).netloc.rpartition("@")[2]
    if not host or not settings.pubsub_port:
        return ""
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    return f"{name}:{settings.pubsub_port}"
