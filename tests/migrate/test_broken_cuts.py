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

import pytest

from tests.migrate.cuts import HaProxy, Starter, cut, cut_words, publish, read, wait
from tests.migrate.test_move import Original, record
from tests.support.commands import PROCESS

pytestmark = pytest.mark.kafka

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
IDS = [0, 1, 3, 4, 6]
ASKED_BACK = "ams: start the old service again, then press Enter\n"
ASKED = "ams: stop the old service on all nodes, then press Enter\n"


def test_a_comparison_that_differs_leads_clients_back_and_says_what_differs(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path
) -> None:
    data, ended = tmp_path / "data", tmp_path / "ended"
    ann = f"{starter.endpoint}/v1/users/ann"
    start = f"{starter.command}; {quote(sys.executable)} -c {quote(CHANGED)} {ann}"
    stop_new = f"kill -9 $(cat {starter.pid}); touch {ended}"

    failed = cut(original, data, proxy, starter, "--restore", "true", "--stop-new", stop_new, start=start)

    assert failed.returncode == 1
    assert failed.stderr.splitlines()[-1] == "ams: 1 things differ: token of user ann: ann, and Unauthorized"
    assert proxy.told == [HELD, OLD]
    assert ended.exists()
    publish(original, record(6, 50))
    done = cut(original, data, proxy, starter)
    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(starter.endpoint)] == IDS


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_in_the_middle_starts_the_old_service_again_and_leads_clients_there(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path, sent: signal.Signals
) -> None:
    data, stopping, stopped, restored = (tmp_path / name for name in ("data", "stopping", "stopped", "restored"))
    stop = f"touch {stopping}; sleep 2; touch {stopped}"
    words, environment = cut_words(
        original, data, proxy, starter, "--restore", f"test -e {stopped} && touch {restored}", stop=stop
    )
    with subprocess.Popen(
        [*PROCESS, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:  # fmt: skip
        wait(stopping.exists)
        running.send_signal(sent)
        _, said = running.communicate(timeout=30)

    assert running.returncode == 130
    assert "Traceback" not in said
    assert restored.exists()
    assert proxy.told == [HELD, OLD]
    publish(original, record(6, 50))
    done = cut(original, data, proxy, starter)
    assert done.returncode == 0, done.stderr
    assert [offset for offset, _ in read(starter.endpoint)] == IDS


def test_ctrl_c_while_haproxy_does_not_see_the_new_service_undoes_all(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path
) -> None:
    proxy.new_is = "DOWN"
    restored = tmp_path / "restored"
    words, environment = cut_words(
        original, tmp_path / "data", proxy, starter, "--restore", f"touch {restored}", "--stop-new", "exit 3"
    )
    with subprocess.Popen(
        [*PROCESS, *words], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as running:  # fmt: skip
        assert running.stderr is not None
        "".join(iter(running.stderr.readline, "ams: trying every token\n"))
        time.sleep(2)
        running.send_signal(signal.SIGINT)
        _, said = running.communicate(timeout=30)

    assert running.returncode == 130, said
    assert "ams: the command of --stop-new ended with 3" in said.splitlines()  # and all the rest is done
    assert restored.exists()
    assert proxy.told == [HELD, OLD]


@pytest.mark.parametrize("step", ["stop", "start", "behind the start"])
def test_one_that_was_killed_at_a_step_is_run_again_and_held_clients_get_their_answers(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path, step: str
) -> None:
    data, kill = tmp_path / "data", "kill -9 $PPID"
    commands = {
        "stop": {"stop": kill},
        "start": {"start": kill},
        "behind the start": {"start": f"{starter.command}; {kill}"},
    }
    words, environment = cut_words(original, data, proxy, starter, **commands[step])
    killed = subprocess.run([*PROCESS, *words], env=environment, capture_output=True, timeout=120, check=False)
    assert killed.returncode == -signal.SIGKILL
    assert proxy.told == [HELD]
    starter.end()

    publish(original, record(6, 50))
    done = cut(original, data, proxy, starter)

    assert done.returncode == 0, done.stderr
    assert proxy.told == [HELD, HELD, NEW]
    assert [offset for offset, _ in read(starter.endpoint)] == IDS


def test_requests_that_the_old_service_does_not_answer_are_told_and_the_cut_goes_on(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path
) -> None:
    proxy.under_way = [2]

    done = cut(original, tmp_path / "data", proxy, starter, "--drain", "0.2")

    assert done.returncode == 0, done.stderr
    assert "ams: 2 requests are not answered after 0.2 s" in done.stderr.splitlines()
    assert proxy.told == [HELD, NEW]


def test_who_is_asked_to_stop_the_old_service_may_press_enter_or_ctrl_c(
    original: Original, proxy: HaProxy, starter: Starter, tmp_path: Path
) -> None:
    def asked(pressed: bytes) -> tuple[int, str]:
        words, environment = cut_words(original, tmp_path / "data", proxy, starter, stop="")
        ours, theirs = pty.openpty()
        with subprocess.Popen(
            [*PROCESS, *words], env=environment, stdin=theirs, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
            text=True, start_new_session=True, preexec_fn=lambda: fcntl.ioctl(theirs, termios.TIOCSCTTY, 0),
        ) as running:  # fmt: skip
            assert running.stderr is not None
            said = "".join(iter(lambda: running.stderr.readline(), ASKED))
            os.write(ours, pressed[:1])
            if pressed[1:]:
                said += "".join(iter(lambda: running.stderr.readline(), ASKED_BACK))
                os.write(ours, pressed[1:])
            said += running.communicate(timeout=60)[1]
        os.close(ours)
        os.close(theirs)
        return running.returncode, said

    ended, said = asked(b"\x03\n")
    assert ended == 130, said
    assert proxy.told == [HELD, OLD]

    done, said = asked(b"\n")
    assert done == 0, said
    assert proxy.told == [HELD, OLD, HELD, NEW]
