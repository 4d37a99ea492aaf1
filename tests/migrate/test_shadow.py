"""Two services with different answers get the requests of a haproxy log, or of a running haproxy."""

import contextlib
import json
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from ams.migrate.requests import MAX_REQUESTS
from ams.migrate.shadow import request_of
from local_cluster.deployed import DEPLOY
from local_cluster.haproxy import check, program
from local_cluster.ports import LOOPBACK, free_port, listening
from tests.migrate.moved import OldServiceStub, import_converted, make_converted, serve_old_stub, token
from tests.support.commands import PROCESS, Ran, run_ams
from tests.support.service import LiveService, live_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

START = "192.0.2.7:47894 [28/Nov/2026:05:47:14.501] ams~ old/old1 0/0/0/1/1 200 121 - - ---- 1/1/0/0/0 0/0 "


@pytest.fixture(scope="module")
def new_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    data = import_converted(make_converted(users=6, topics=4, messages=4), tmp_path_factory.mktemp("shadow"))
    with live_service(data, "--min-free-bytes", "0", "--reserve-bytes", "0") as running:
        yield running


@pytest.fixture
def old_service(new_service: LiveService) -> Iterator[OldServiceStub]:
    with serve_old_stub(new_service.base_url) as served:
        yield served


def lines(*requests: str) -> str:
    return "".join(f'{START}"{each} HTTP/1.1"\n' for each in requests)


SHADOW = ("migrate", "shadow", "-o", "json", "--old")


def environment(new: str, **other: str) -> dict[str, str]:
    return {**os.environ, "AMS_ENDPOINT": new, "AMS_TOKEN": token(0), "AMS_MIGRATE_TOKEN": token(0), **other}


def run_shadow(old: str, new: str, *words: str, text: str | None = None, **other: str) -> Ran:
    return run_ams((*SHADOW, old, *words), environment(new, **other), stdin=text or "")


def start_shadow(old: str, new: str, *words: str) -> "subprocess.Popen[str]":
    streams = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.PIPE)
    return subprocess.Popen([*PROCESS, *SHADOW, old, *words], text=True, env=environment(new), **streams)


@pytest.mark.long
def test_reads_are_asked_on_both_sides(old_service: OldServiceStub, new_service: LiveService, tmp_path: Path) -> None:
    log = tmp_path / "haproxy.log"
    topics = "/v1/projects/project0/topics"
    reads = ("/v1/projects", topics, "/v1/users?details=true", f"{topics}/none")
    log.write_text(
        lines(*(f"GET {each}" for each in reads), f"POST {topics}/topic0:publish")
        + lines("GET /v1/projects/project0/subscriptions/sub0:offsets", "GET /console/", "GET /v1/users?pageToken=NQ==")
        + "Proxy ams started.\n\n"
        + lines("GET /v1/metrics")
    )

    ran = run_shadow(old_service.url, new_service.base_url, str(log))

    told = json.loads(ran.stdout)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert {name: each["asked"] for name, each in told["routes"].items()} == {
        "projects:list": 1, "topics:list": 1, "topics:show": 1, "users:list": 1,
    }  # fmt: skip
    assert told["differences"] == []
    assert told["passed_over"] == {
        "it writes": 1, "no read of the reference": 1, "a page token means something to who gave it": 1,
        "a line without a request": 1, "asking adds a record at the old service (O1)": 1,
        "asking may move the subscription at the old service (11.3)": 1,
    }  # fmt: skip
    assert sorted(old_service.asked) == sorted(["/v1/projects", *reads])


def test_differences_show_both_sides_once_and_no_secret(old_service: OldServiceStub, new_service: LiveService) -> None:
    old_service.changes = [
        (token(2).encode(), token(99).encode()), (b'"description":"of a day"', b'"description":"another"'),
    ]  # fmt: skip
    users = "/v1/users?details=true"

    ran = run_shadow(
        old_service.url, new_service.base_url, "-", text=lines(f"GET {users}", f"GET {users}", "GET /v1/projects")
    )
    table = run_shadow(old_service.url, new_service.base_url, "-", "-o", "table", text=lines(f"GET {users}"))

    told = json.loads(ran.stdout)
    assert ran.returncode == table.returncode == 1
    assert told["differences"] == [
        {
            "route": "projects:list", "where": "projects[].description", "old": "another", "new": "of a day",
            "answers": 1,
        },
        {"route": "users:list", "where": "users[].token", "old": "(a secret)", "new": "(another)", "answers": 2},
    ]  # fmt: skip
    assert told["routes"]["users:list"] == {"asked": 2, "same": 0, "different": 2}
    assert "users[].token" in table.stdout
    assert not re.search("[0-9a-f]{40}", ran.stdout + ran.stderr + table.stdout + table.stderr)


def test_a_logged_token_is_used_on_both_sides_but_hidden(old_service: OldServiceStub, new_service: LiveService) -> None:
    old_service.changes = [(b'"name":"user3"', b'"name":"%s"' % token(3).encode())]

    ran = run_shadow(old_service.url, new_service.base_url, "-", text=lines(f"GET /v1/users/profile?key={token(3)}"))

    told = json.loads(ran.stdout)
    assert old_service.tokens[-1] == ""
    assert told["differences"] == [
        {"route": "users:profile", "where": "name", "old": "***", "new": "user3", "answers": 1}
    ]
    assert token(3) not in ran.stdout + ran.stderr
    old_service.changes, old_service.in_query = [], True  # as the reference, which passes over tokens in headers
    ran = run_shadow(old_service.url, new_service.base_url, "-", text=lines("GET /v1/users/profile"))
    assert (ran.returncode, json.loads(ran.stdout)["routes"]["users:profile"]["same"]) == (0, 1)


def test_a_sample_is_asked_and_no_more_than_is_wanted(old_service: OldServiceStub, new_service: LiveService) -> None:
    text = lines(*["GET /v1/projects"] * 60)

    most = json.loads(run_shadow(old_service.url, new_service.base_url, "-", "--most", "7", text=text).stdout)
    none = json.loads(run_shadow(old_service.url, new_service.base_url, "-", "--share", "0", text=text).stdout)

    assert most["routes"]["projects:list"]["asked"] == 7
    assert (none["routes"], none["left_out"]) == ({}, 60)


@pytest.mark.long
def test_a_growing_log_is_read_and_a_signal_reports(old_service: OldServiceStub, new_service: LiveService) -> None:
    with start_shadow(old_service.url, new_service.base_url, "-") as process:
        assert process.stdin is not None
        for count in range(1, MAX_REQUESTS + 2):  # so that one at least is compared
            process.stdin.write(lines("GET /v1/users/user1"))
            process.stdin.flush()
            wait_until(lambda count=count: old_service.asked.count("/v1/users/user1") == count)
        process.terminate()
        assert process.stdout is not None
        told = json.loads(process.stdout.read())

    assert process.returncode == 0
    assert told["routes"]["users:show"]["same"] >= 1


def test_an_error_is_one_clear_line(old_service: OldServiceStub, new_service: LiveService, tmp_path: Path) -> None:
    for ran, code, said in (
        (run_shadow(old_service.url, new_service.base_url, "-", "--listen", "0"), 2, ""),
        (run_shadow(old_service.url, new_service.base_url, str(tmp_path / "none")), 2, ""),
        (run_shadow(old_service.url, "http://127.0.0.1:1", "-", text=""), 6, "cannot reach http://127.0.0.1:1"),
        (
            run_shadow(old_service.url, new_service.base_url, "-", text="", AMS_MIGRATE_TOKEN="wrong"),
            3,
            old_service.url,
        ),
    ):
        assert (ran.returncode, ran.stdout, len(ran.stderr.splitlines())) == (code, "", 1)
        assert said in ran.stderr


@pytest.mark.long
def test_a_service_that_goes_away_in_the_middle_ends_it(new_service: LiveService) -> None:
    with (
        contextlib.ExitStack() as stack,
        start_shadow(
            (old := stack.enter_context(serve_old_stub(new_service.base_url))).url, new_service.base_url, "-"
        ) as process,
    ):
        assert process.stdin is not None
        process.stdin.write(lines("GET /v1/users/user1"))
        process.stdin.flush()
        wait_until(lambda: "/v1/users/user1" in old.asked)
        stack.close()
        with contextlib.suppress(BrokenPipeError):
            process.stdin.write(lines(*["GET /v1/users/user1"] * 50))
            process.stdin.flush()
        assert process.stderr is not None
        said = process.stderr.read()

    assert process.returncode == 6
    assert len(said.splitlines()) == 1
    assert old.url in said


MIRRORING = """
global
    lua-load {lua}
defaults
    mode http
    timeout connect 1s
    timeout client 10s
    timeout server 10s
frontend ams
    bind {address}
    http-request lua.mirror if METH_GET
    use_backend old
backend old
    server old {old}
"""


@pytest.mark.long
@pytest.mark.haproxy
def test_no_client_waits_for_read_copies(old_service: OldServiceStub, new_service: LiveService, tmp_path: Path) -> None:
    old_service.changes = [(b'"description":"of a day"', b'"description":"another"')]
    port, copies = free_port(), free_port()
    file = tmp_path / "haproxy.cfg"
    file.write_text(
        MIRRORING.format(lua=DEPLOY / "haproxy" / "mirror.lua", address=f"{LOOPBACK}:{port}", old=old_service.url[7:])
    )
    surroundings = {"PROXY_SHADOW": f"{LOOPBACK}:{copies}"}
    check(file, surroundings)
    with (tmp_path / "haproxy.log").open("w") as said, subprocess.Popen(
        [program(), "-db", "-f", str(file)], env={**os.environ, **surroundings}, stdout=said, stderr=said
    ) as haproxy, httpx.Client(
        base_url=f"http://{LOOPBACK}:{port}/v1", trust_env=False, timeout=PATIENCE_SECONDS
    ) as client:  # fmt: skip
        try:
            wait_until(lambda: listening(port))
            me = {"x-api-key": token(1)}
            with start_shadow(old_service.url, new_service.base_url, "--listen", str(copies)) as shadowing:
                wait_until(lambda: listening(copies))
                before = len(old_service.asked)
                for path in ("/users/profile", "/projects/project1/topics", "/projects/nobody's?x=%20y"):
                    client.get(path, headers=me)
                client.get("/projects/project1", headers={"x-api-key": token(0)})
                assert client.get("/users/profile", params={"key": token(2)}).json()["name"] == "user2"
                wait_until(lambda: len(old_service.asked) == before + 5 + 5 + 1)  # what differs is asked again
                shadowing.terminate()
                assert shadowing.stdout is not None
                told = json.loads(shadowing.stdout.read())
                assert shadowing.stderr is not None
                noted = shadowing.stderr.read()
            # The receiver of copies is down, and clients do not notice.
            assert client.get("/users/profile", headers=me).json()["name"] == "user1"
        finally:
            haproxy.terminate()

    assert shadowing.returncode == 1
    assert told["routes"]["users:profile"] == {"asked": 2, "same": 2, "different": 0}
    assert told["differences"] == [
        {"route": "projects:show", "where": "description", "old": "another", "new": "of a day", "answers": 1}
    ]
    assert not re.search("[0-9a-f]{40}", json.dumps(told) + noted)


OURS = "192.0.2.7:47894 [28/Nov/2026:05:47:14.501] ams/node1 0/0/0/1/1 200 121 ---- 1/1/0/0/0 "


@pytest.mark.parametrize(("line", "request_"), [
    (START + '"GET /v1/projects?key=a HTTP/1.1"', ("GET", "/v1/projects?key=a")),
    (START + '{agent|} {} "POST /v1/x:publish HTTP/1.1"', ("POST", "/v1/x:publish")),
    ("Nov 28 05:47:14 lb1 haproxy[1234]: " + START + '"GET /v1/users HTTP/1.1"\n', ("GET", "/v1/users")),
    (START + '"GET https://ams.example:443/v1/users?a=b://c HTTP/2.0"', ("GET", "/v1/users?a=b://c")),
    (START + '"GET /v1/x?a=#22#23b HTTP/1.1"', ("GET", '/v1/x?a="#b')),
    (START.replace("0/0/0/1/1 200 121", "0/-1/-1/-1/+12 -1 +121") + '"GET /v1/x HTTP/1.1"', ("GET", "/v1/x")),
    (OURS + "GET /v1/projects/P 0b1e", ("GET", "/v1/projects/P")),
    (START + '"<BADREQ>"', None),
    (START + '"GET /v1/projects/P/topics/cut-short', None),
    (START.replace("ams~ old/old1", "<HTTPCLIENT> <HTTPCLIENT>/<HTTPCLIENT>") + '{} "GET http://a HTTP/1"', None),
    ("192.0.2.7:4 [28/Nov/2026:05:47:14.501] tcp tcp/one 0/0/12 212 -- 1/1/0/0/0 0/0", None),
    ("Proxy ams started.", None),
])  # fmt: skip
def test_a_line_tells_its_request_or_none(line: str, request_: tuple[str, str] | None) -> None:
    assert request_of(line) == request_
