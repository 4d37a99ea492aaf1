"""What a handshake costs each of its sides, both in this process and without a network: by key, chain and tickets."""

import contextlib
import ssl
import time
from statistics import median
from typing import NamedTuple

from bench.certificates import Files


class Cost(NamedTuple):
    """Medians of processor time in microseconds, and what the server sends."""

    server_us: float
    client_us: float
    server_bytes: int


class Ends:
    """A server and a client that shake hands in memory, with a certificate and so many tickets for each handshake."""

    def __init__(self, files: Files, tickets: int) -> None:
        self._server = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._server.load_cert_chain(files.chain, files.key)
        self._server.num_tickets = tickets
        self._client = ssl.create_default_context(cafile=files.ca)

    def cost(self, times: int, *, resumed: bool = False) -> Cost:
        """Return what a handshake costs; `resumed`, the client shows a ticket of the one before."""
        session = self._shake().session if resumed else None
        made = []
        for _ in range(times):
            shaken = self._shake(session)
            assert shaken.resumed is resumed
            session = shaken.session if resumed else None
            made.append(shaken.cost)
        server, client, sent = zip(*made, strict=True)
        return Cost(1e6 * median(server), 1e6 * median(client), sent[-1])

    def _shake(self, session: ssl.SSLSession | None = None) -> "_Shaken":
        to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
        at_client, at_server = ssl.MemoryBIO(), ssl.MemoryBIO()
        began = time.thread_time()
        server = self._server.wrap_bio(at_server, to_client, server_side=True)
        server_seconds = time.thread_time() - began
        client = self._client.wrap_bio(at_client, to_server, server_hostname="localhost", session=session)
        client_seconds, sent = 0.0, 0
        for _ in range(2):
            client_seconds += _step(client)
            at_server.write(to_server.read())
            server_seconds += _step(server)
            said = to_client.read()
            sent += len(said)
            at_client.write(said)
        server.write(b".")  # a client sees tickets when it reads what comes behind them
        at_client.write(to_client.read())
        client.read()
        return _Shaken(Cost(server_seconds, client_seconds, sent), client.session, client.session_reused is True)


class _Shaken(NamedTuple):
    cost: Cost
    session: ssl.SSLSession | None
    resumed: bool


def _step(side: ssl.SSLObject) -> float:
    """Let a side go as far as it can; return the processor seconds it took."""
    began = time.thread_time()
    with contextlib.suppress(ssl.SSLWantReadError):
        side.do_handshake()
    return time.thread_time() - began
