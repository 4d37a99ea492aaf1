import socket
import threading
import time
from collections.abc import Iterator

import pytest

from cluster.link import Link


@pytest.fixture
def link() -> Iterator[Link]:
    """A link to a server that says back what it is told."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        threading.Thread(target=echo, args=(server,), daemon=True).start()
        with Link(server.getsockname()[1]) as link:
            yield link
        server.shutdown(socket.SHUT_RDWR)


def echo(server: socket.socket) -> None:
    try:
        while True:
            connection = server.accept()[0]
            threading.Thread(target=repeat, args=(connection,), daemon=True).start()
    except OSError:
        return


def repeat(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(100):
                connection.sendall(data)
        except OSError:
            return


def connect(link: Link) -> socket.socket:
    return socket.create_connection(("127.0.0.1", link.port), timeout=3)


def answer(connection: socket.socket, words: bytes) -> bytes:
    connection.sendall(words)
    return connection.recv(100)


def test_a_whole_link_passes_everything_both_ways(link: Link) -> None:
    with connect(link) as one, connect(link) as other:
        assert answer(one, b"one") == b"one"
        assert answer(other, b"other") == b"other"


def test_an_end_that_closes_closes_the_other(link: Link) -> None:
    with connect(link) as one:
        one.shutdown(socket.SHUT_WR)
        assert one.recv(100) == b""


def test_a_cut_breaks_what_is_open_and_what_comes_until_it_is_restored(link: Link) -> None:
    with connect(link) as open_before:
        assert answer(open_before, b"hello") == b"hello"
        link.cut()
        assert open_before.recv(100) == b""
    with connect(link) as new:
        assert new.recv(100) == b""

    link.restore()
    with connect(link) as after:
        assert answer(after, b"hello") == b"hello"


def test_a_held_link_is_silent_and_what_was_sent_arrives_late(link: Link) -> None:
    with connect(link) as one:
        assert answer(one, b"hello") == b"hello"
        link.hold()
        time.sleep(0.05)
        one.sendall(b"late")
        one.settimeout(0.2)
        with pytest.raises(TimeoutError):
            one.recv(100)

        link.restore()
        one.settimeout(3)
        assert one.recv(100) == b"late"


def test_a_link_that_could_not_listen_is_stopped_without_ado() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        link = Link(1, taken.getsockname()[1])
        with pytest.raises(OSError, match="in use"):
            link.start()
        link.stop()
