"""The cluster shape for measuring: one Kafka broker, one PostgreSQL that syncs, and a node, on this machine."""

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
    def node(self) -> Iterator[Service]:
        """Run one node with a database and a Kafka prefix of its own."""
        name = f"bench_{secrets.token_hex(4)}"
        self.postgres.create_database(name)
        with self.bench.service(*_flags(self._settings(name))) as running:
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
    with bench.data_folder() as folder, broker(bench) as brokers, contextlib.ExitStack() as stack:
        try:
            postgres = stack.enter_context(Postgres(Path(folder) / "postgres"))
        except DidNotStart as error:
            raise Failed(str(error)) from error
        yield Parts(brokers, postgres, bench)


@contextlib.contextmanager
def broker(bench: Bench) -> Iterator[Brokers]:
    """Run a broker; raises `Failed` with the reason when this machine cannot."""
    with bench.data_folder() as folder, contextlib.ExitStack() as stack:
        try:
            brokers = stack.enter_context(Brokers(folder / "kafka", heap_mb=HEAP_MB))
        except (CannotFetch, DidNotStart) as error:
            raise Failed(str(error)) from error
        yield brokers
