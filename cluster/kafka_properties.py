"""The properties of brokers on loopback: who listens where and how, and what makes them fit for AMS."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cluster.certificates import Authority
from cluster.ports import LOOPBACK

CLIENTS, CONTROLLERS = "CLIENTS", "CONTROLLERS"
LARGEST_REQUEST = 17 * 2**20
"""Bytes; above the largest message batch AMS sends (16 MiB)."""

COMMON = {
    "process.roles": "broker,controller",
    "controller.listener.names": CONTROLLERS,
    "inter.broker.listener.name": CLIENTS,
    "auto.create.topics.enable": "false",
    "unclean.leader.election.enable": "false",
    "socket.request.max.bytes": str(2 * LARGEST_REQUEST),
    "message.max.bytes": str(LARGEST_REQUEST),
    "replica.fetch.max.bytes": str(LARGEST_REQUEST),
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "4194304",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "share.coordinator.state.topic.num.partitions": "1",
    # A broker that dies is noticed and its topics are led by another within 3 to 5 s; clients give up at 10.
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
    "replica.lag.time.max.ms": "3000",
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
}


class Login(NamedTuple):
    """A user of SASL/SCRAM."""

    user: str
    password: str


class Security(NamedTuple):
    """TLS with SASL/SCRAM on the clients' listener, TLS with certificates both ways between controllers.

    `login` is who may come in: clients, and the brokers among themselves.
    """

    authority: Authority
    login: Login


def _copies(brokers: int) -> dict[str, str]:
    """Return how often everything is kept: three times, two of them before an answer; once on a single broker."""
    replication, enough = (3, 2) if brokers >= 3 else (1, 1)
    return {
        "default.replication.factor": str(replication),
        "min.insync.replicas": str(enough),
        "offsets.topic.replication.factor": str(replication),
        "transaction.state.log.replication.factor": str(replication),
        "transaction.state.log.min.isr": str(enough),
        "share.coordinator.state.topic.replication.factor": str(replication),
        "share.coordinator.state.topic.min.isr": str(enough),
    }


class Ports(NamedTuple):
    """Where one broker listens: for clients, for controllers, and for those who come through a link.

    `ways` has for each way (its name) the port the broker listens on, and the port clients are told: the link's.
    """

    clients: int
    controllers: int
    ways: Mapping[str, tuple[int, int]]


def properties(number: int, ports: Mapping[int, Ports], security: Security | None) -> dict[str, str]:
    """Return the properties of one of several brokers, without its folder."""
    own = ports[number]
    listeners = {CLIENTS: own.clients, CONTROLLERS: own.controllers} | {
        way: port for way, (port, _) in own.ways.items()
    }
    advertised = {CLIENTS: own.clients} | {way: port for way, (_, port) in own.ways.items()}
    quorum = [f"{each}@{LOOPBACK}:{its.controllers}" for each, its in ports.items()]
    return {
        "node.id": str(number),
        "listeners": _addresses(listeners),
        "advertised.listeners": _addresses(advertised),
        "controller.quorum.voters": ",".join(quorum),
        **COMMON,
        **_copies(len(ports)),
        **_protocols([CLIENTS, *own.ways], security),
    }


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{listener}://{LOOPBACK}:{port}" for listener, port in ports.items())


def _protocols(clients: Sequence[str], security: Security | None) -> dict[str, str]:
    """Return how each listener is spoken to."""
    outside, inside = ("SASL_SSL", "SSL") if security else ("PLAINTEXT", "PLAINTEXT")
    spoken = [*(f"{listener}:{outside}" for listener in clients), f"{CONTROLLERS}:{inside}"]
    protocols = {"listener.security.protocol.map": ",".join(spoken)}
    return protocols | (_secured(clients, security) if security else {})


def _secured(clients: Sequence[str], security: Security) -> dict[str, str]:
    user, password = security.login
    scram = "org.apache.kafka.common.security.scram.ScramLoginModule"
    login = f'{scram} required username="{user}" password="{password}";'
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(security.authority.sign("kafka").both),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(security.authority.ca),
        f"listener.name.{CONTROLLERS.lower()}.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
        **{f"listener.name.{each.lower()}.scram-sha-512.sasl.jaas.config": login for each in clients},
    }
