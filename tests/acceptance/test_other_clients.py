"""Known clients but the official library, by their own requests, which `tests.acceptance.clients.conversations` has."""

import http.client
import itertools
import json
from collections.abc import Mapping
from contextlib import closing
from string import Template

import pytest

from tests.acceptance.clients.conversations import CONVERSATIONS, JSON, WITH_TOKEN, Says
from tests.support.served import Served

pytestmark = pytest.mark.acceptance

_count = itertools.count(1)
MESSAGES = json.dumps({"messages": [{"data": "aGk=", "attributes": {"n": str(n)}} for n in range(5)]})
FURNISHED = [
    Says("POST /v1/projects/$P", "{}"),
    Says("PUT /v1/projects/$P/topics/metric_data"),
    Says("PUT /v1/projects/$P/subscriptions/ingest_metric", '{"topic":"projects/$P/topics/metric_data"}'),
    Says("POST /v1/projects/$P/topics/metric_data:publish", MESSAGES),
    Says("POST /v1/projects/$P/members/$P-agent", '{"projects":[{"project":"$P","roles":["publisher"]}]}',
         keeps={"agent_token": lambda document: document["token"]}),
]  # fmt: skip


class Conversation:
    """One client's requests, each on a connection of its own as most of them do."""

    def __init__(self, service: Served) -> None:
        self._address = service.address
        self._names = {"token": service.token, "P": f"TENANT-{next(_count)}"}

    def hold(self, headers: Mapping[str, str], steps: list[Says]) -> None:
        """Say everything; fail at the first answer the client could not live with."""
        for step in steps:
            status, text = self._say(headers, step)
            told = f"{self._filled(step.line)} got {status} {text[:300]} ({step.why})"
            assert status == step.status, told
            document = json.loads(text) if text else None
            assert step.status >= 300 or step.needs(document), told
            self._names |= {name: pick(document) for name, pick in step.keeps.items()}

    def _say(self, headers: Mapping[str, str], step: Says) -> tuple[int, str]:
        method, target = self._filled(step.line).split()
        filled = {name: self._filled(value) for name, value in headers.items()}
        with closing(http.client.HTTPConnection(*self._address, timeout=15)) as connection:
            connection.request(method, target, self._filled(step.body) or None, filled)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def _filled(self, text: str) -> str:
        return Template(text).safe_substitute(self._names)


@pytest.mark.parametrize(("headers", "steps"), CONVERSATIONS.values(), ids=CONVERSATIONS)
def test_a_client_gets_what_it_needs(headers: Mapping[str, str], steps: list[Says], service: Served) -> None:
    conversation = Conversation(service)
    conversation.hold(WITH_TOKEN | JSON, FURNISHED)
    conversation.hold(headers, steps)
