"""The properties of brokers on loopback: their listeners, and the settings that AMS needs."""

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from local_cluster.certificates import Authority
from local_cluster.deployed import kafka_properties
from local_cluster.ports import LOOPBACK

CLIENTS, CONTROLLERS = "CLIENTS", "CONTROLLERS"
MAX_REPLICAS = 3
"""Replicas of a message, if there are as many brokers."""
LOGIN = "listener.name.{}.scram-sha-512.sasl.jaas.config"

SMALL_PROPERTIES = {
    # One partition and little memory for features that AMS does not use, and no rebalance delay of groups.
    "log.cleaner.dedupe.buffer.size": "4194304",
    "group.initial.rebalance.delay.ms": "0",
}


class Login(NamedTuple):
    """A user of SASL/SCRAM."""

    user: str
    password: str


class Security(NamedTuple):
    """TLS with SASL/SCRAM on the clients' listener, TLS with certificates both ways between controllers.

    `login` is the only user: for clients, and between brokers.
    """

    authority: Authority
    login: Login


class Ports(NamedTuple):
    """Ports of one broker: for clients, for controllers, and for links.

    `ways` has for each way (its name) the port the broker listens on, and the port it advertises to clients: the
    link's.
    """

    clients: int
    controllers: int
    ways: Mapping[str, tuple[int, int]]


def properties(number: int, ports: Mapping[int, Ports], security: Security | None) -> dict[str, str]:
    """Return the properties of a broker except its folder: the deployed ones, with our addresses."""
    own = ports[number]
    listeners = {CLIENTS: own.clients, CONTROLLERS: own.controllers} | {
        way: port for way, (port, _) in own.ways.items()
    }
    advertised = {CLIENTS: own.clients} | {way: port for way, (_, port) in own.ways.items()}
    quorum = [f"{each}@{LOOPBACK}:{its.controllers}" for each, its in ports.items()]
    return {
        **_everywhere(),
        **SMALL_PROPERTIES,
        **({} if len(ports) >= MAX_REPLICAS else _single()),
        "node.id": str(number),
        "listeners": _addresses(listeners),
        "advertised.listeners": _addresses(advertised),
        "controller.quorum.voters": ",".join(quorum),
        **_protocols([CLIENTS, *own.ways], security),
    }


def _everywhere() -> dict[str, str]:
    """Return the deployed properties without those of TLS and logins."""
    ours = ("ssl.", "sasl.", "listener.name.", "listener.security.")
    return {name: value for name, value in kafka_properties().items() if not name.startswith(ours)}


def _single() -> dict[str, str]:
    """Return the properties for too few brokers for three replicas."""
    counts = (".replication.factor", ".isr", "min.insync.replicas")
    return {name: "1" for name in kafka_properties() if name.endswith(counts)}


def _addresses(ports: Mapping[str, int]) -> str:
    return ",".join(f"{listener}://{LOOPBACK}:{port}" for listener, port in ports.items())


def _protocols(clients: Sequence[str], security: Security | None) -> dict[str, str]:
    """Return the security protocol of each listener."""
    outside, inside = ("SASL_SSL", "SSL") if security else ("PLAINTEXT", "PLAINTEXT")
    spoken = [*(f"{listener}:{outside}" for listener in clients), f"{CONTROLLERS}:{inside}"]
    protocols = {"listener.security.protocol.map": ",".join(spoken)}
    return protocols | (_security_properties(clients, security) if security else {})


def _security_properties(clients: Sequence[str], security: Security) -> dict[str, str]:
    """Return the deployed properties of TLS and logins, with our files and password, for all listeners of clients."""
    names = ("ssl.", "sasl.", f"listener.name.{CONTROLLERS.lower()}.")
    deployed = {name: value for name, value in kafka_properties().items() if name.startswith(names)}
    login = kafka_properties()[LOGIN.format(CLIENTS.lower())]
    login = login.replace('"ams"', f'"{security.login.user}"').replace('"change-me"', f'"{security.login.password}"')
    return {
        **deployed,
        "ssl.keystore.location": str(security.authority.sign("kafka").both),
        "ssl.truststore.location": str(security.authority.ca),
        **{LOGIN.format(each.lower()): login for each in clients},
    }
