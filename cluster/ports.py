"""Free ports on loopback for servers that must come back on the same port after a kill."""

import random
import socket

LOOPBACK = "127.0.0.1"
FIRST, LAST = 15_000, 32_000
"""Below the range from which the kernel gives ports to clients: there a port of a dead server could be taken."""

_given: set[int] = set()


def free_port() -> int:
    """Return a port nobody listens on and that this process has not given out before."""
    while True:
        port = random.randint(FIRST, LAST)
        if port not in _given and _free(port):
            _given.add(port)
            return port


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def listening(port: int) -> bool:
    """Tell whether something accepts connections on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
