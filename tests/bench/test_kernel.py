"""The kernel's figures about a process."""

import os
import subprocess
import sys

from bench.kernel import anonymous_memory, processor_seconds, processor_seconds_of_started

BUSY = """
import time
while time.process_time() < 0.5: pass
print(flush=True)
input()
"""
STARTS_ONE = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {BUSY!r}])"


def test_the_processor_time_of_started_processes_counts() -> None:
    with subprocess.Popen([sys.executable, "-c", STARTS_ONE], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        parent.stdout.readline()
        started, together = processor_seconds_of_started(parent.pid), processor_seconds(parent.pid)
        parent.communicate(b"\n")

    assert 0.4 <= started <= together


def test_a_process_has_memory_of_its_own() -> None:
    assert anonymous_memory(os.getpid()) > 0
