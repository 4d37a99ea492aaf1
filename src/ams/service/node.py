"""What this process takes of its machine, read in the process itself (contract 17.4, O2); nothing here fails."""

import os
import resource
import socket
import time

_STARTED, _WORKED = time.monotonic(), time.process_time()
"""When this was loaded, and the processor time used until then."""
_KIB = 1024


def host_name() -> str:
    """Return the name of this machine."""
    return socket.gethostname()


def cpu_percent() -> float:
    """Return the share of one core this process had since it started, in percent; more than 100 with several."""
    return _percent(time.process_time() - _WORKED, time.monotonic() - _STARTED)


def memory_percent() -> float:
    """Return the share of the machine's memory this process holds, in percent."""
    return _percent(_resident(), _memory())


def _resident() -> int:
    """Return resident bytes; where the kernel does not tell them, the most there ever were."""
    try:
        with open("/proc/self/statm", "rb") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError, IndexError):
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * _KIB


def _memory() -> int:
    try:
        return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (OSError, ValueError):
        return 0


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2) if whole > 0 else 0.0
