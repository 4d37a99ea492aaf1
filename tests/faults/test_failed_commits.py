"""Changes whose commit fails to sync, in a real service that is killed then: the next start finds what was answered."""

import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest

from ams.core.errors import OUTCOME_UNKNOWN
from tests.support.service import live_service

pytestmark = [pytest.mark.strace, pytest.mark.faults, pytest.mark.embedded("SQLite is theirs")]

ONCE, ALWAYS = "when=2", "when=2+"
"""Which syncs of a thread fail: the first is that of the start."""


class Seen(NamedTuple):
    """Where the subscription stands, and whether the user's first token is good."""

    offset: int
    old_token: bool


BEFORE = Seen(0, old_token=True)


class Prepared(NamedTuple):
    """A data folder, and the token of the user in it."""

    data: Path
    token: str


@contextmanager
def client_of(data: Path, *tracer: str) -> Iterator[tuple[httpx.Client, "subprocess.Popen[str]"]]:
    with (
        live_service(data, environment={"AMS_PUSH_ENABLED": "false"}, tracer=tracer) as live,
        httpx.Client(base_url=f"{live.base_url}/v1", headers={"x-api-key": live.token}) as client,
    ):
        yield client, live.process


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Prepared:
    data = tmp_path_factory.mktemp("prepared") / "data"
    with client_of(data) as (client, _):
        client.post("/projects/P", json={}).raise_for_status()
        client.put("/projects/P/topics/t").raise_for_status()
        client.put("/projects/P/subscriptions/s", json={"topic": "projects/P/topics/t"}).raise_for_status()
        client.post("/projects/P/topics/t:publish", json={"messages": [{"data": "aGk="}] * 9}).raise_for_status()
        roles = [{"project": "P", "roles": ["consumer"]}]
        user = client.post("/users/u", json={"email": "u@example.org", "projects": roles}).raise_for_status()
        return Prepared(data, user.json()["token"])


def seen(client: httpx.Client, token: str) -> Seen:
    offsets = client.get("/projects/P/subscriptions/s:offsets").raise_for_status().json()
    profile = client.get("/users/profile", headers={"x-api-key": token})
    return Seen(offsets["current"], old_token=profile.is_success)


@pytest.mark.parametrize("fails", [ONCE, ALWAYS], ids=["once", "for long"])
def test_a_change_that_was_answered_with_500_is_not_there_after_a_kill_or_the_answer_says_it_may_be(
    tmp_path: Path, prepared: Prepared, fails: str
) -> None:
    data = Path(shutil.copytree(prepared.data, tmp_path / "data"))
    files = [each for name in ("cursors", "registry") for each in ("-P", str(data / f"{name}.db-wal"))]
    tracer = ("strace", "-D", "-f", "-o", f"{tmp_path}/trace", "-e", "trace=fdatasync", *files)
    with client_of(data, *tracer, "-e", f"inject=fdatasync:error=EIO:{fails}") as (client, process):
        answers = [
            client.post("/projects/P/subscriptions/s:modifyOffset", json={"offset": 7}),
            client.post("/users/u:refreshToken"),
        ]
        after_the_answers = seen(client, prepared.token)
        process.kill()
    with client_of(data) as (client, _):
        after_the_kill = seen(client, prepared.token)

    assert "INJECTED" in (tmp_path / "trace").read_text()
    assert [answer.status_code for answer in answers] == [500, 500]
    assert [answer.headers["retry-after"] for answer in answers] == ["2", "2"]
    assert after_the_answers == BEFORE
    texts = [answer.json()["error"]["message"] for answer in answers]
    if fails == ONCE:
        assert texts == ["Backend Error", "Internal error while querying datastore"]
        assert after_the_kill == BEFORE
    else:
        assert texts == [OUTCOME_UNKNOWN, OUTCOME_UNKNOWN]
