import subprocess
import sys

PROGRAM = """
import signal, time
from cluster.stopping import treat_as_ctrl_c

treat_as_ctrl_c()
try:
    print("ready", flush=True)
    signal.pause()
except KeyboardInterrupt:
    print("tidying", flush=True)
    time.sleep(0.3)
    print("tidy", flush=True)
"""


def test_an_impatient_second_interruption_does_not_break_off_the_tidying_up() -> None:
    with subprocess.Popen([sys.executable, "-c", PROGRAM], stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.terminate()
        assert program.stdout.readline() == "tidying\n"
        program.terminate()
        assert program.stdout.read() == "tidy\n"

    assert program.returncode == 0
