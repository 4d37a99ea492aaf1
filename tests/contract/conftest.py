import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.contract.runner import Endpoints, Runner, open_endpoints
from tests.support.served import WORKER_TOKEN, InProcessService, in_process_service
from tests.support.waiting import PATIENCE_SECONDS

PUSH = {"push_enabled": True, "push_worker_token": WORKER_TOKEN, "push_allow": "127.0.0.0/8"}

SETTINGS: dict[str, dict[str, object]] = {
    "usual": {"push_enabled": False}, "header only": {"auth_option": "header"},
    "without access lists": {"per_resource_auth": False}, "strict": {"strict_data": True},
    "small": {"max_body_bytes": 20_000, "max_message_bytes": 1000, "max_pull_messages": 3, "max_read_messages": 2},
    "with a roles file": {"roles_file": str(Path(__file__).with_name("roles.toml"))},
    "behind a proxy": {"proxy_hostname": "ams.example"},
    "push": {**PUSH, "push_server_host": "127.0.0.1", "push_server_port": 1}, "push, its worker lost": PUSH,
    "push without a worker": {"push_inside": False}, "short memory": {"idempotency_window": 3600.0},
}  # fmt: skip
Services = Callable[[str], InProcessService]


@pytest.fixture(scope="module")
def endpoints(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Endpoints]:
    with open_endpoints(tmp_path_factory.mktemp("endpoints")) as endpoints:
        yield endpoints


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory, endpoints: Endpoints) -> Iterator[Services]:
    """Give services by the name of their settings, each started at first use."""
    running: dict[str, InProcessService] = {}
    with contextlib.ExitStack() as stack:

        def find(name: str) -> InProcessService:
            if name not in running:
                folder = tmp_path_factory.mktemp("service") / "ams-data"
                running[name] = stack.enter_context(
                    in_process_service(folder, push_ca_file=endpoints.ca, **SETTINGS[name])
                )
                if name == "push without a worker":
                    running[name].ask("DELETE", "/users/push_worker_0")
            return running[name]

        yield find


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    with httpx.Client(follow_redirects=False, trust_env=False, timeout=PATIENCE_SECONDS) as client:
        yield client


@pytest.fixture(scope="module")
def runner(service: Services, client: httpx.Client, endpoints: Endpoints) -> Callable[[str], Runner]:
    return lambda name: Runner(service(name), client, endpoints)


@pytest.fixture(scope="module")
def primed_runner(service: Services, client: httpx.Client, endpoints: Endpoints) -> Callable[[str], Runner]:
    """Give runners whose hot requests take the fast lane where they can."""
    return lambda name: Runner(service(name), client, endpoints, primed=True)
