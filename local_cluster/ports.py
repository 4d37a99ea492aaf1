"""Free ports on loopback for servers that must come back on the same port after a kill."""

import random
import socket

LOOPBACK = "127.0.0.1"
FIRST, LAST = 15_000, 32_000
"""Below the kernel's ephemeral ports, where a client could take the port of a dead server."""


def free_port() -> int:
    """Return a free port that no other caller on this machine gets while this process runs."""
    while True:
        port = random.randint(FIRST, LAST)
        if _reserve(port) and _free(port):
            return port


def _reserve(port: int) -> bool:
    """Reserve a port among all processes that call this: a name in the kernel, held until this process ends."""
    name = socket.socket(socket.AF_UNIX)
    try:
        name.bind(f"\0ams-cluster-port-{port}")
    except OSError:
        name.close()
        return False
    name.detach()  # stays open until the process ends, without a ResourceWarning
    return True


def _free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind((LOOPBACK, port))
        except OSError:
            return False
    return True


def listening(port: int) -> bool:
    """Return whether something accepts connections on the port."""
    with socket.socket() as probe:
        return probe.connect_ex((LOOPBACK, port)) == 0
