import contextlib
import socket
import sys

import pytest

from ams.http.protocol import PORTION
from ams.http.server import listen

NOT_SENT_LOWAT = 25


@pytest.mark.skipif(sys.platform != "linux", reason="an option of Linux")
def test_the_system_holds_little_of_an_answer_on_every_connection() -> None:
    with (
        contextlib.closing(listen("127.0.0.1", 0, "port")) as sock,
        socket.create_connection(sock.getsockname()),
        sock.accept()[0] as connection,
    ):
        assert connection.getsockopt(socket.IPPROTO_TCP, NOT_SENT_LOWAT) == PORTION
