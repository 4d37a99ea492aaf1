"""Pings of HTTP/2, as clients of gRPC send them."""

import asyncio

PING, GOAWAY = 6, 7
COUNT = 6
PING_SECONDS = 10  # between pings: the minimum setting in the libraries for Go, Java and Python


def frame(kind: int, payload: bytes = b"") -> bytes:
    return len(payload).to_bytes(3, "big") + bytes([kind, 0]) + bytes(4) + payload


async def ping(address: str) -> None:
    """Send pings to HOST:PORT without a call; fails unless each is answered and the connection stays."""
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(4))  # without any settings
    for number in range(COUNT):
        writer.write(frame(PING, b"%08d" % number))
        await asyncio.sleep(PING_SECONDS if number < COUNT - 1 else 0)
    received = b""
    while b"%08d" % (COUNT - 1) not in received:
        head = await reader.readexactly(9)
        received += await reader.readexactly(int.from_bytes(head[:3], "big"))
        assert head[3] != GOAWAY, received
    writer.close()
