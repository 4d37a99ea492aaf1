"""A whole cluster on one machine: brokers, PostgreSQL with standbys, nodes, haproxy, and a table of what runs where."""

import secrets
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from local_cluster.caretaker import Part
from local_cluster.certificates import Authority
from local_cluster.haproxy import Backend, Haproxy
from local_cluster.kafka import Brokers, Login, Security
from local_cluster.link import Link
from local_cluster.node import PROGRAM, Node
from local_cluster.ports import LOOPBACK
from local_cluster.postgres import Postgres
from local_cluster.processes import Startable

COPIES, ENOUGH = 3, 2
"""Replicas of each message, and how many must have it before the answer, if there are as many brokers."""


class Cluster(Startable):
    """Three of everything, all logs in `folder`, started by `start` or as a context.

    The nodes in `linked` (`node1` and so on) go a way of their own to each broker and each PostgreSQL server, which can
    be cut (`kafka_links`, `database_links`). `more` are settings of all nodes beside those that make the cluster.
    `secure` is with TLS to the nodes, and with TLS and passwords to brokers and PostgreSQL; not to haproxy alone.
    `program` is the module that the nodes run; `quick` are the brokers (see `Brokers`).
    """

    def __init__(
        self,
        folder: Path,
        *,
        nodes: int = 3,
        brokers: int = 3,
        standbys: int = 2,
        linked: Sequence[str] = (),
        more: Mapping[str, str] | None = None,
        secure: bool = False,
        quick: bool = False,
        program: str = PROGRAM,
    ) -> None:
        self.folder = folder.absolute()
        names = [f"node{number}" for number in range(1, nodes + 1)]
        self.authority = Authority(self.folder / "certificates")
        self.security = Security(self.authority, Login("ams", secrets.token_urlsafe(12))) if secure else None
        self.brokers = Brokers(self.folder, brokers, quick=quick, ways=linked, security=self.security)
        self.postgres = Postgres(self.folder, standbys, authority=self.authority if secure else None)
        self._database_links = {name: self._links_to_postgres() for name in linked}
        self._more = dict(more or {})
        self._token_key = secrets.token_hex(32)
        self.nodes = {name: Node(name, self.folder, self.settings(name), program=program) for name in names}
        backends = [Backend(name, node.port, node.ops_port, node.pubsub_port) for name, node in self.nodes.items()]
        nodes_ca = self.authority.ca if secure else None
        self.haproxy = Haproxy(self.folder, backends, self.authority.sign("haproxy").both, nodes_ca)

    def settings(self, node: str) -> dict[str, str]:
        """Return the settings that make a node part of this cluster."""
        links = self._database_links.get(node, [])
        copies = min(COPIES, len(self.brokers.numbers))
        return {
            "log": "kafka",
            "kafka_servers": self.brokers.servers_by(node) if links else self.brokers.servers,
            "kafka_replication": str(copies),
            "kafka_min_isr": str(min(ENOUGH, copies)),
            **self._kafka_login(),
            **self._node_certificate(node),
            "registry": self.postgres.address(ports=[link.port for link in links] or None),
            "registry_password": self.postgres.password,
            "token_key": self._token_key,
            **self._more,
        }

    def _kafka_login(self) -> dict[str, str]:
        if self.security is None:
            return {}
        user, password = self.security.login
        return {"kafka_tls": "true", "kafka_ca_file": str(self.ca), "kafka_user": user, "kafka_password": password}

    def _node_certificate(self, node: str) -> dict[str, str]:
        if self.security is None:
            return {}
        signed = self.authority.sign(node)
        return {"cert": str(signed.certificate), "key": str(signed.key), "node_ca_file": str(self.ca)}

    @property
    def ca(self) -> Path:
        """Return the certificate that clients of haproxy must trust."""
        return self.authority.ca

    @property
    def token_file(self) -> Path:
        """Return the file of the administrator's token, on the node that made it. Raises `FileNotFoundError`."""
        for node in self.nodes.values():
            if node.token_file.exists():
                return node.token_file
        raise FileNotFoundError("no node has made an administrator")

    def kafka_links(self, node: str) -> Sequence[Link]:
        """Return the links from a node to the brokers."""
        return self.brokers.links(node)

    def database_links(self, node: str) -> Sequence[Link]:
        """Return the links from a node to the servers of PostgreSQL."""
        return self._database_links[node]

    def parts(self) -> Iterator[Part]:
        """Yield every process."""
        for number in self.brokers.numbers:
            process = self.brokers.process(number)
            yield Part(process.name, f"{LOOPBACK}:{self.brokers.port(number)}", process)
        for number in self.postgres.numbers:
            process = self.postgres.process(number)
            yield Part(process.name, f"{LOOPBACK}:{self.postgres.port(number)}", process)
        for node in self.nodes.values():
            yield Part(node.name, f"{LOOPBACK}:{node.port}", node.process)
        yield Part("haproxy", self.haproxy.endpoint, self.haproxy.process)

    def start(self) -> None:
        """Start everything and return when haproxy has nodes. Raises `DidNotStart`, with nothing left running."""
        try:
            for link in self._all_database_links():
                link.start()
            with ThreadPoolExecutor(2) as threads:
                starts = [threads.submit(self.brokers.start), threads.submit(self.postgres.start)]
            for start in starts:
                start.result()
            for node in self.nodes.values():
                node.launch()
            for node in self.nodes.values():
                node.wait_ready()
            self.haproxy.start()
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Stop haproxy, the nodes in order, then brokers and PostgreSQL."""
        self.haproxy.stop()
        for node in self.nodes.values():
            node.kill()
        self.postgres.stop()
        self.brokers.stop()
        for link in self._all_database_links():
            link.stop()

    def in_use(self) -> bool:
        """Return whether haproxy sends requests to every node."""
        return set(self.haproxy.states().values()) == {"UP"}

    def heal(self, name: str, say: Callable[[str], None]) -> None:
        """Restart a dead part; a standby first takes over from a dead primary."""
        kind, _, number = name.partition(" ")
        if kind == "broker":
            self.brokers.restart(int(number))
        elif kind == "postgres":
            self._heal_postgres(int(number), say)
        elif kind == "haproxy":
            self.haproxy.start()
        else:
            self.nodes[name].start()

    def _heal_postgres(self, number: int, say: Callable[[str], None]) -> None:
        if number != self.postgres.primary:
            return self.postgres.restart(number)
        say(f"postgres {self.postgres.promote()} takes writes now")
        return self.postgres.rejoin(number)

    def _links_to_postgres(self) -> list[Link]:
        return [Link(self.postgres.port(number)) for number in self.postgres.numbers]

    def _all_database_links(self) -> Iterator[Link]:
        for links in self._database_links.values():
            yield from links


def table(parts: Iterator[Part]) -> str:
    """Return a table of the parts and their addresses."""
    rows = [("part", "address", "pid", "log")]
    rows += [(part.name, part.address, str(part.process.pid), str(part.process.log)) for part in parts]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )
