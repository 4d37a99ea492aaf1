"""Several nodes over a real PostgreSQL and a real Kafka: in this process, or as processes that can be killed."""

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urlsplit

from local_cluster.node import Node
from local_cluster.ports import free_port
from tests.support.parts import kafka_prefix, kafka_servers, new_database
from tests.support.served import SERVICE_TOKEN, InProcessService, in_process_service

NOTHING: Mapping[str, str] = {}


def shared_settings() -> dict[str, str]:
    url = urlsplit(new_database())
    assert url.password is not None
    return {
        "log": "kafka", "kafka_servers": kafka_servers(), "kafka_prefix": kafka_prefix(), "kafka_replication": "1",
        "kafka_min_isr": "1", "registry": url._replace(netloc=f"{url.username}@{url.hostname}:{url.port}").geturl(),
        "registry_password": url.password, "token_key": secrets.token_hex(32), "service_token": SERVICE_TOKEN,
    }  # fmt: skip


@contextlib.contextmanager
def node_served(folder: Path, settings: dict[str, str], **more: object) -> Iterator[InProcessService]:
    port = free_port()
    numbers = {"kafka_replication": 1, "kafka_min_isr": 1, "port": port, "pull_wait": 1.0}
    url = {"node_url": f"{'https' if 'cert' in more else 'http'}://127.0.0.1:{port}"}
    with in_process_service(folder, **{**settings, **numbers, **url, **more}) as node:
        yield node


@contextlib.contextmanager
def processes(
    folder: Path, count: int, more: Mapping[str, str] = NOTHING, *, program: str = "ams.cli.main"
) -> Iterator[list[Node]]:
    settings = {**shared_settings(), "log_level": "warning", "pull_wait": "1s", **more}
    nodes = [Node(f"node{number}", folder, settings, program=program) for number in range(count)]
    with contextlib.ExitStack() as stack:
        for each in nodes:
            stack.callback(each.kill)
            each.launch()
        for each in nodes:
            each.wait_ready()
        yield nodes
