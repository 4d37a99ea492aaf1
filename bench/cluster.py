"""The cluster shape to be measured: one broker, one PostgreSQL with its syncs, and nodes, all beside the bench."""

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from bench.processes import Failed, Service
from bench.run import Bench
from cluster.jars import CannotFetch
from cluster.kafka import Brokers
from cluster.postgres import Postgres
from cluster.processes import DidNotStart

HEAP_MB = 512


@dataclass(frozen=True)
class Parts:
    """A broker and a PostgreSQL server, and where nodes find them."""

    brokers: Brokers
    postgres: Postgres
    bench: Bench

    @contextlib.contextmanager
    def service(self, *flags: str) -> Iterator[Service]:
        """Run one node that has the parts for itself."""
        with self.nodes(1, *flags) as [node]:
            yield node

    @contextlib.contextmanager
    def nodes(self, count: int, *flags: str) -> Iterator[list[Service]]:
        """Run nodes of one installation, with a database and a Kafka prefix of its own."""
        name = f"bench_{secrets.token_hex(4)}"
        self.postgres.create_database(name)
        chosen = [*_flags(self._settings(name)), *flags]
        with contextlib.ExitStack() as stack:
            first = stack.enter_context(self._node(chosen))
            yield [first, *(stack.enter_context(self._node(chosen, first.token)) for _ in range(count - 1))]

    @contextlib.contextmanager
    def _node(self, flags: list[str], token: str | None = None) -> Iterator[Service]:
        with self.bench.data_folder() as data, Service(data, *flags, token=token) as running:
            yield running

    def _settings(self, name: str) -> Mapping[str, object]:
        return {
            "log": "kafka",
            "kafka_servers": self.brokers.servers,
            "kafka_prefix": name,
            "kafka_replication": 1,
            "kafka_min_isr": 1,
            "registry": self.postgres.address(name),
            "registry_password": self.postgres.password,
            "token_key": secrets.token_hex(32),
        }


def _flags(settings: Mapping[str, object]) -> Iterator[str]:
    for name, value in settings.items():
        yield f"--{name.replace('_', '-')}"
        yield str(value)


@contextlib.contextmanager
def parts(bench: Bench) -> Iterator[Parts]:
    """Run a broker and a PostgreSQL; raises `Failed` with the reason when this machine cannot."""
    with bench.data_folder() as folder, contextlib.ExitStack() as stack:
        try:
            brokers = stack.enter_context(_brokers(folder))
            postgres = stack.enter_context(Postgres(Path(folder) / "postgres"))
        except (CannotFetch, DidNotStart) as error:
            raise Failed(str(error)) from error
        yield Parts(brokers, postgres, bench)


@contextlib.contextmanager
def broker(bench: Bench) -> Iterator[str]:
    """Run a broker alone; yield its address. Raises `Failed` with the reason when this machine cannot."""
    with bench.data_folder() as folder, contextlib.ExitStack() as stack:
        try:
            brokers = stack.enter_context(_brokers(folder))
        except (CannotFetch, DidNotStart) as error:
            raise Failed(str(error)) from error
        yield brokers.servers


def _brokers(folder: Path) -> Brokers:
    return Brokers(folder / "kafka", heap_mb=HEAP_MB)
