"""The nodes of a cluster share the delivery of subscriptions; when one is killed, the others go on."""

import contextlib
import secrets
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from cluster.node import Node
from tests.faults.push.sharing import Sharing
from tests.support.pushed import Api
from tests.support.receiving import received

pytestmark = [pytest.mark.faults, pytest.mark.long]


def _settings(kafka_servers: str, kafka_prefix: str, postgres_url: str) -> dict[str, str]:
    url = urlsplit(postgres_url)
    assert url.password is not None
    return {
        "log": "kafka",
        "kafka_servers": kafka_servers,
        "kafka_prefix": kafka_prefix,
        "kafka_replication": "1",
        "kafka_min_isr": "1",
        "registry": url._replace(netloc=f"{url.username}@{url.hostname}:{url.port}").geturl(),
        "registry_password": url.password,
        "token_key": secrets.token_hex(32),
        "log_level": "warning",
    }


async def test_other_nodes_go_on_when_one_of_three_is_killed(
    tmp_path: Path, kafka_servers: str, kafka_prefix: str, postgres_url: str
) -> None:
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(received(tmp_path))
        settings = _settings(kafka_servers, kafka_prefix, postgres_url)
        settings |= {"push_allow": "127.0.0.0/8", "push_ca_file": receiver.ca}
        nodes = [Node(f"node{number}", tmp_path, settings) for number in range(3)]
        for each in nodes:
            stack.callback(each.kill)
            each.launch()
        for each in nodes:
            each.wait_ready()
        asked, *others = nodes
        token = next(each.token_file for each in nodes if each.token_file.exists()).read_text().strip()
        async with Api(asked.url, token) as api:
            found = await Sharing(api, receiver, others).run(kills=1)

    print(found.line())
    assert found.violations == []
