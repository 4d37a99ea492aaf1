import contextlib
import socket
import sys

import pytest

from ams.http.protocol import PORTION
from ams.http.server import listen, server

NOT_SENT_LOWAT = 25


@pytest.mark.skipif(sys.platform != "linux", reason="an option of Linux")
def test_the_system_holds_little_of_an_answer_on_every_connection() -> None:
    with (
        contextlib.closing(listen("127.0.0.1", 0, "port")) as sock,
        socket.create_connection(sock.getsockname()),
        sock.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, NOT_SENT_LOWAT) == PORTION


def test_idle_connections_are_kept_for_fractions_of_a_second_too() -> None:
    assert server(None, keep_alive=0.3).config.timeout_keep_alive == 0.3
