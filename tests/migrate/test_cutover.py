"""Copying while the old service runs, and cutovers, which always lead clients to a complete service."""

import fcntl
import json
import os
import pty
import secrets
import signal
import subprocess
import sys
import termios
from pathlib import Path
from shlex import quote
from typing import IO, Any
from urllib.parse import urlsplit

import httpx
import pymongo
import pytest
from bson import Int64, ObjectId

from tests.migrate.cuts import (
    SERVE,
    Site,
    Starter,
    change_document,
    copy,
    create_topics,
    differences,
    publish,
    read_messages,
)
from tests.migrate.test_move import DATABASE, b64, record, sources
from tests.support.commands import PROCESS, ams
from tests.support.service import live_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long]

HELD, OLD, NEW = (f"set map /ams.map service {where}" for where in ("held", "old", "new"))


def test_rounds_copy_what_is_new_and_a_cut_the_rest(site: Site) -> None:
    # The last readable record is followed by an unreadable one.
    assert copy(site.original, site.data)["copied now"] == 4
    publish(site.original, record(6, 40), record(7, 41))
    assert (copy(site.original, site.data)["copied now"], copy(site.original, site.data)["copied now"]) == (2, 0)
    publish(site.original, record(8, 42))
    change_document(
        site.original, "subscriptions", {"name": "archive", "project_uuid": site.original.project}, offset=Int64(7)
    )

    site.proxy.under_way = [2]  # requests that the old service does not answer

    done = site.run_cut("--drain", "0.2")

    assert done.returncode == 0, done.stderr
    assert "ams: 2 requests are not answered after 0.2 s" in done.stderr.splitlines()
    assert json.loads(done.stdout)["counts"]["copied now"] == 0  # the round before the hold had it
    assert site.proxy.told == [HELD, NEW]
    assert [offset for offset, _ in read_messages(site.starter.endpoint)] == [0, 1, 3, 4, 6, 7, 8]
    assert not (site.data / "migration.json").exists()
    again = site.run_cut()
    assert again.returncode == 1
    assert again.stderr.splitlines()[-1] == "ams: clients are led to the new service already"


def test_topics_made_again_are_copied_anew_and_gone_ones_dropped(site: Site) -> None:
    copy(site.original, site.data)

    create_topics(site.original, site.original.topic)
    publish(site.original, *(record(100 + n, n) for n in range(8)))

    assert copy(site.original, site.data)["copied now"] == 8
    with pymongo.MongoClient[dict[str, Any]](site.original.uri) as client:
        client[DATABASE]["topics"].delete_one({"name": "silent", "project_uuid": site.original.project})
    assert copy(site.original, site.data)["copied now"] == 0
    done = site.run_cut()
    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read_messages(site.starter.endpoint)] == list(range(8))
    judged = ams("doctor", "-o", "json", AMS_ENDPOINT=site.starter.endpoint, AMS_TOKEN="short")
    assert judged.returncode == 0, judged.stdout  # no log is left of what was dropped


def test_topics_with_unreadable_records_are_moved(site: Site) -> None:
    with pymongo.MongoClient[dict[str, Any]](site.original.uri) as client:
        topics = client[DATABASE]["topics"]
        found = topics.find_one({"name": "silent", "project_uuid": site.original.project})
        assert found is not None
        topics.insert_one({**found, "_id": ObjectId(), "name": "late"})

    create_topics(site.original, *(f"{site.original.project}.{name}" for name in ("silent", "late")))
    publish(site.original, b"", b"{", topic=f"{site.original.project}.silent")
    publish(site.original, b"", record(1, 40), topic=f"{site.original.project}.late")
    copy(site.original, site.data)

    done = site.run_cut()

    assert done.returncode == 0, done.stderr
    assert read_messages(site.starter.endpoint, "silent") == []
    assert [offset for offset, _ in read_messages(site.starter.endpoint, "late")] == [1]
    assert differences(site.original, site.starter.endpoint) == []
    body = {"messages": [{"data": b64("next")}]}
    url, headers = f"{site.starter.endpoint}/v1/projects/EGI/topics/silent:publish", {"x-api-key": "short"}
    published = httpx.post(url, headers=headers, json=body, trust_env=False, timeout=PATIENCE_SECONDS)
    assert published.json()["messageIds"] == ["2"]


def test_an_installation_of_somebody_else_is_left_alone(site: Site) -> None:
    with live_service(site.data, *SERVE):
        pass

    refused = ams("migrate", "copy", *sources(site.original), "--data", str(site.data))

    assert refused.returncode == 1
    assert refused.stderr.splitlines()[-1] == "ams: there are users or topics already: move into a new installation"


def test_kafka_and_postgresql_fill_alike(site: Site, tmp_path: Path, kafka_prefix: str, postgres_url: str) -> None:
    where = urlsplit(postgres_url)
    settings = {
        "log": "kafka", "kafka_servers": site.original.servers, "kafka_prefix": kafka_prefix, "kafka_replication": 1,
        "kafka_min_isr": 1, "registry": postgres_url.replace(f":{where.password}@", "@"),
        "registry_password": where.password or "", "token_key": secrets.token_hex(32),
    }  # fmt: skip
    file = tmp_path / "ams.toml"
    file.write_text("".join(f"{name} = {json.dumps(value)}\n" for name, value in settings.items()))
    config = ("--config", str(file))
    first = ams("migrate", "copy", *sources(site.original), "--data", str(site.data), *config, "-o", "json")
    assert first.returncode == 0, first.stderr
    publish(site.original, record(6, 40))

    failed = site.run_cut(*config, start="exit 7")
    assert failed.stderr.splitlines()[-1] == "ams: the command of --start ended with 7"
    with Starter(tmp_path / "node", *config).running():
        refused = site.run_cut(*config)
    assert refused.stderr.splitlines()[-1] == "ams: other services use this registry; stop them first"
    done = site.run_cut(*config, start=site.starter.command.replace(" serve ", f" serve {config[0]} {file} "))

    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read_messages(site.starter.endpoint)] == [0, 1, 3, 4, 6]
    assert differences(site.original, site.starter.endpoint) == []


CHANGED = """
import httpx, sys, time
for _ in range(600):
    try:
        told = httpx.delete(sys.argv[1], headers={"x-api-key": "short"}, trust_env=False)
        break
    except httpx.ConnectError:
        time.sleep(0.05)
assert told.status_code == 200
"""


def read_up_to(line: str, stream: IO[str]) -> str:
    """Return the lines before one; fail if the process ends without it."""
    before = ""
    while (read := stream.readline()) != line:
        assert read, before
        before += read
    return before


def start_command(words: list[str], environment: dict[str, str], **options: Any) -> "subprocess.Popen[str]":
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([*PROCESS, *words], env=environment, text=True, **streams, **options)


def assert_cut_again(site: Site) -> None:
    """Publish one more message to the old service, and cut over: everything is migrated."""
    publish(site.original, record(6, 50))
    done = site.run_cut()
    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read_messages(site.starter.endpoint)] == [0, 1, 3, 4, 6]


def test_a_difference_leads_clients_back_and_is_told(site: Site, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    ann = f"{site.starter.endpoint}/v1/users/ann"
    start = f"{site.starter.command}; {quote(sys.executable)} -c {quote(CHANGED)} {ann}"
    stop_new = f"kill -9 $(cat {site.starter.pid}); touch {ended}"

    failed = site.run_cut("--restore", "true", "--stop-new", stop_new, start=start)

    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "ams: 1 things differ: token of user ann: ann, and Unauthorized"
    assert site.proxy.told == [HELD, OLD]
    assert ended.exists()
    assert_cut_again(site)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_leads_clients_back(site: Site, tmp_path: Path, sent: signal.Signals) -> None:
    stopping, stopped, restored = (tmp_path / name for name in ("stopping", "stopped", "restored"))
    stop = f"touch {stopping}; sleep 2; touch {stopped}"
    words, environment = site.cut_command("--restore", f"test -e {stopped} && touch {restored}", stop=stop)
    with start_command(words, environment) as running:
        wait_until(lambda: stopping.exists() or running.poll() is not None, 240)
        assert stopping.exists(), running.communicate(timeout=120)[1]
        running.send_signal(sent)
        _, said = running.communicate(timeout=120)

    assert running.returncode == 130
    assert "Traceback" not in said
    assert restored.exists()
    assert site.proxy.told == [HELD, OLD]
    assert_cut_again(site)


def test_ctrl_c_while_the_new_service_is_down_undoes_all(site: Site, tmp_path: Path) -> None:
    site.proxy.new_is = "DOWN"
    restored = tmp_path / "restored"
    words, environment = site.cut_command("--restore", f"touch {restored}", "--stop-new", "exit 3")
    with start_command(words, environment) as running:
        assert running.stderr is not None
        read_up_to("ams: trying every token\n", running.stderr)
        before = site.proxy.looks
        wait_until(lambda: site.proxy.looks > before, process=running)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=120)

    assert running.returncode == 130, said
    assert "ams: the command of --stop-new ended with 3" in said.splitlines()  # and all the rest is done
    assert restored.exists()
    assert site.proxy.told == [HELD, OLD]


@pytest.mark.parametrize("step", ["stop", "start", "later"])
def test_one_that_was_killed_at_a_step_is_run_again_and_held_clients_get_their_answers(site: Site, step: str) -> None:
    kill = "kill -9 $PPID"
    commands = {"stop": {"stop": kill}, "start": {"start": kill}, "later": {"start": f"{site.starter.command}; {kill}"}}
    words, environment = site.cut_command(**commands[step])
    killed = subprocess.run([*PROCESS, *words], env=environment, capture_output=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert site.proxy.told == [HELD]
    site.starter.end()

    assert_cut_again(site)
    assert site.proxy.told == [HELD, HELD, NEW]


def test_who_is_asked_to_stop_the_old_service_may_press_enter_or_ctrl_c(site: Site) -> None:
    def press_key(pressed: bytes) -> tuple[int, str]:
        words, environment = site.cut_command(stop="")
        ours, theirs = pty.openpty()
        terminal = {"stdin": theirs, "preexec_fn": lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)}
        with start_command(words, environment, start_new_session=True, **terminal) as running:
            assert running.stderr is not None
            said = read_up_to("ams: stop the old service on all nodes, then press Enter\n", running.stderr)
            os.write(ours, pressed[:1])
            if pressed[1:]:
                said += read_up_to("ams: start the old service again, then press Enter\n", running.stderr)
                os.write(ours, pressed[1:])
            said += running.communicate(timeout=120)[1]
        os.close(ours)
        os.close(theirs)
        return running.returncode, said

    ended, said = press_key(b"\x03\n")
    assert ended == 130, said
    assert site.proxy.told == [HELD, OLD]

    done, said = press_key(b"\n")
    assert done == 0, said
    assert site.proxy.told == [HELD, OLD, HELD, NEW]
