"""The kernel's figures about a process."""

import os
import subprocess
import sys

from bench.kernel import anonymous_memory, processor_seconds

BUSY = """
import time
while time.process_time() < 0.5: pass
print(flush=True)
input()
"""


def test_the_processor_time_of_started_processes_counts() -> None:
    alone = processor_seconds(os.getpid())
    with subprocess.Popen([sys.executable, "-c", BUSY], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        together = processor_seconds(os.getpid())
        child.communicate(b"\n")

    assert together - alone >= 0.4


def test_a_process_has_memory_of_its_own() -> None:
    assert anonymous_memory(os.getpid()) > 0
