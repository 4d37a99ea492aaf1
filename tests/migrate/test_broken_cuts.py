"""Cuts that do not come to their end: whatever happens, clients are led to a service that has all there is."""

import fcntl
import os
import pty
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from shlex import quote
from typing import Any

import pytest

from tests.migrate.cuts import Site, publish, read
from tests.migrate.test_move import record
from tests.support.commands import PROCESS
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long]

HELD, OLD, NEW = (f"set map /ams.map service {where}" for where in ("held", "old", "new"))
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
ASKED_BACK = "ams: start the old service again, then press Enter\n"
ASKED = "ams: stop the old service on all nodes, then press Enter\n"


def started(words: list[str], environment: dict[str, str], **options: Any) -> "subprocess.Popen[str]":
    streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    return subprocess.Popen([*PROCESS, *words], env=environment, text=True, **streams, **options)


def assert_cut_again(site: Site) -> None:
    """Let the old service get one message more, and cut: all there is goes over."""
    publish(site.original, record(6, 50))
    done = site.cut()
    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(site.starter.endpoint)] == [0, 1, 3, 4, 6]


def test_a_difference_leads_clients_back_and_is_told(site: Site, tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    ann = f"{site.starter.endpoint}/v1/users/ann"
    start = f"{site.starter.command}; {quote(sys.executable)} -c {quote(CHANGED)} {ann}"
    stop_new = f"kill -9 $(cat {site.starter.pid}); touch {ended}"

    failed = site.cut("--restore", "true", "--stop-new", stop_new, start=start)

    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "ams: 1 things differ: token of user ann: ann, and Unauthorized"
    assert site.proxy.told == [HELD, OLD]
    assert ended.exists()
    assert_cut_again(site)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_leads_clients_back(site: Site, tmp_path: Path, sent: signal.Signals) -> None:
    stopping, stopped, restored = (tmp_path / name for name in ("stopping", "stopped", "restored"))
    stop = f"touch {stopping}; sleep 2; touch {stopped}"
    words, environment = site.words("--restore", f"test -e {stopped} && touch {restored}", stop=stop)
    with started(words, environment) as running:
        wait_until(stopping.exists, 240, process=running)
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
    words, environment = site.words("--restore", f"touch {restored}", "--stop-new", "exit 3")
    with started(words, environment) as running:
        assert running.stderr is not None
        "".join(iter(running.stderr.readline, "ams: trying every token\n"))
        time.sleep(2)
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
    words, environment = site.words(**commands[step])
    killed = subprocess.run([*PROCESS, *words], env=environment, capture_output=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert site.proxy.told == [HELD]
    site.starter.end()

    assert_cut_again(site)
    assert site.proxy.told == [HELD, HELD, NEW]


def test_a_cut_goes_on_without_answers_of_the_old_service(site: Site) -> None:
    site.proxy.under_way = [2]

    done = site.cut("--drain", "0.2")

    assert done.returncode == 0, done.stderr
    assert "ams: 2 requests are not answered after 0.2 s" in done.stderr.splitlines()
    assert site.proxy.told == [HELD, NEW]


def test_who_is_asked_to_stop_the_old_service_may_press_enter_or_ctrl_c(site: Site) -> None:
    def asked(pressed: bytes) -> tuple[int, str]:
        words, environment = site.words(stop="")
        ours, theirs = pty.openpty()
        terminal = {"stdin": theirs, "preexec_fn": lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0)}
        with started(words, environment, start_new_session=True, **terminal) as running:
            assert running.stderr is not None
            said = "".join(iter(lambda: running.stderr.readline(), ASKED))
            os.write(ours, pressed[:1])
            if pressed[1:]:
                said += "".join(iter(lambda: running.stderr.readline(), ASKED_BACK))
                os.write(ours, pressed[1:])
            said += running.communicate(timeout=120)[1]
        os.close(ours)
        os.close(theirs)
        return running.returncode, said

    ended, said = asked(b"\x03\n")
    assert ended == 130, said
    assert site.proxy.told == [HELD, OLD]

    done, said = asked(b"\n")
    assert done == 0, said
    assert site.proxy.told == [HELD, OLD, HELD, NEW]
