import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ams.http.lane import LaneProtocol, LaneRequest
from tests.contract.endpoints import Endpoints, open_endpoints
from tests.contract.runner import Runner
from tests.support.served import WORKER_TOKEN, Served, served
from tests.support.waiting import PATIENCE_SECONDS

FEW = 100
"""Of fewer hot requests that were let in, most may be of a kind that never takes the fast lane."""
PUSH = {"push_enabled": True, "push_worker_token": WORKER_TOKEN, "push_allow": "127.0.0.0/8"}

SETTINGS: dict[str, dict[str, object]] = {
    "usual": {"push_enabled": False},
    "header only": {"auth_option": "header"},
    "without access lists": {"per_resource_auth": False},
    "strict": {"strict_data": True},
    "small": {"max_body_bytes": 20_000, "max_message_bytes": 1000, "max_pull_messages": 3, "max_read_messages": 2},
    "with a roles file": {"roles_file": str(Path(__file__).with_name("roles.toml"))},
    "behind a proxy": {"proxy_hostname": "ams.example"},
    "push": {**PUSH, "push_server_host": "127.0.0.1", "push_server_port": 1},
    "push, its worker lost": PUSH,
    "push without a worker": {"push_inside": False},
    "short memory": {"idempotency_window": 3600.0},
}
"""The services that rows are asked of."""


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    with open_endpoints(tmp_path_factory.mktemp("endpoints")) as endpoints:
        yield endpoints


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, endpoints: Endpoints) -> Iterator[Callable[[str], Served]]:
    """Give services by the name of their settings, each started once when it is first wanted."""
    running: dict[str, Served] = {}
    with contextlib.ExitStack() as stack:

        def find(name: str) -> Served:
            if name not in running:
                folder = tmp_path_factory.mktemp("service") / "ams-data"
                running[name] = stack.enter_context(served(folder, push_ca_file=endpoints.ca, **SETTINGS[name]))
                if name == "push without a worker":
                    running[name].ask("DELETE", "/users/push_worker_0")
            return running[name]

        yield find


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(follow_redirects=False, trust_env=False, timeout=PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
def runner(service: Callable[[str], Served], client: httpx.Client, endpoints: Endpoints) -> Callable[[str], Runner]:
    """Give the runner of one row, for a service by the name of its settings."""
    return lambda name: Runner(service(name), client, endpoints)


class Primed:
    """Runs rows so that hot requests take the fast lane, and counts how many do."""

    def __init__(self, service: Callable[[str], Served], client: httpx.Client, endpoints: Endpoints) -> None:
        self._parts = service, client, endpoints
        self._runners: list[Runner] = []
        self.on_lane = 0

    @property
    def let_in(self) -> int:
        """How many hot requests were answered 200."""
        return sum(each.let_in for each in self._runners)

    def runner(self, name: str) -> Runner:
        """Return the runner of one row, for a service by the name of its settings."""
        service, client, endpoints = self._parts
        self._runners.append(Runner(service(name), client, endpoints, primed=True))
        return self._runners[-1]


@pytest.fixture(scope="module")
def primed(service: Callable[[str], Served], client: httpx.Client, endpoints: Endpoints) -> Iterator[Primed]:
    counts, start = Primed(service, client, endpoints), LaneProtocol._start

    def noted(protocol: LaneProtocol, *said: Any) -> LaneRequest:
        counts.on_lane += 1
        return start(protocol, *said)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(LaneProtocol, "_start", noted)
        yield counts
        assert counts.let_in < FEW or counts.on_lane >= 0.8 * counts.let_in, (counts.on_lane, counts.let_in)
