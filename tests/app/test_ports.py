"""Every port at its bound: one address does not take the connections of the others, whatever it does not say."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import grpc
import httpx
import pytest

from ams.app.serving import running
from ams.authn import program
from ams.authn.settings import AuthnSettings
from ams.core.settings import Settings
from ams.core.supervisor import Supervisor
from ams.http import server
from tests.support.waiting import wait_until_async

CONNECTIONS = 10
HERE, ELSEWHERE = "127.0.0.1", "127.0.0.2"


@dataclass(frozen=True)
class Port:
    url: str
    operations: str
    has_tls: bool = False

    async def connect(self, source: str = HERE) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection on which nothing is said, a handshake neither."""
        return await asyncio.open_connection(HERE, urlsplit(self.url).port, local_addr=(source, 0))

    async def open(self, source: str = HERE) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Return a connection after its handshake."""
        context = ssl._create_unverified_context() if self.has_tls else None  # who answers is not the point
        return await asyncio.open_connection(HERE, urlsplit(self.url).port, local_addr=(source, 0), ssl=context)

    async def ask(self, source: str = HERE) -> int:
        """Return the status of the answer to somebody who behaves."""
        reader, writer = await self.open(source)
        writer.write(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        found = int((await reader.read()).split(b" ", 2)[1])
        writer.close()
        return found

    async def metrics(self) -> str:
        async with httpx.AsyncClient(trust_env=False) as client:
            return (await client.get(f"{self.operations}/metrics")).text


@contextlib.asynccontextmanager
async def port_of(name: str, folder: Path) -> AsyncIterator[Port]:
    if name == "certificates":
        of_authn = AuthnSettings(
            data=str(folder),
            port=0,
            ops_port=0,
            tls_self_signed=True,
            client_ca=str(folder),
            max_connections=CONNECTIONS,
        )
        async with program.running(of_authn, Supervisor()) as authn:
            yield Port(authn.base_url, authn.operations_url, has_tls=True)
        return
    settings = Settings(
        data=str(folder), port=0, ops_port=0, tls_self_signed=name == "api-tls", max_connections=CONNECTIONS,
        min_free_bytes=0, reserve_bytes=0, pubsub_port=0 if name == "pubsub" else None,
        pubsub_emulator=name == "pubsub",
    )  # type: ignore[arg-type]  # fmt: skip
    async with running(settings, Supervisor()) as run:
        if name == "operations":
            yield Port(run.operations_url, run.operations_url)
        elif name == "pubsub":
            yield Port(f"http://{run.pubsub}", run.operations_url)
        else:
            yield Port(run.base_url, run.operations_url, has_tls=name == "api-tls")


@pytest.mark.parametrize(
    ("name", "prefix"), [("api", "ams"), ("api-tls", "ams"), ("operations", "ams"), ("certificates", "ams_authn")]
)
async def test_silent_connections_of_one_address_leave_half_to_others(
    name: str, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "SMALL_CONNECTIONS", CONNECTIONS)
    async with port_of(name, tmp_path / "data") as port:
        silent = [await port.connect() for _ in range(CONNECTIONS)]
        await wait_until_async(lambda: sum(reader.at_eof() or bool(reader._buffer) for reader, _ in silent) == 5)  # type: ignore[attr-defined]
        refused = [await reader.read() for reader, _ in silent if reader.at_eof() or reader._buffer]  # type: ignore[attr-defined]
        assert [each[:12] for each in refused] == [b"" if port.has_tls else b"HTTP/1.1 503"] * 5

        assert await port.ask(ELSEWHERE) in (200, 404)
        for _, writer in silent:
            writer.close()
        listener = "operations" if name == "operations" else "api"
        said = f'{prefix}_connections_refused_total{{listener="{listener}",why="address"}} 5.0'
        await wait_until_async(lambda: is_in(said, port))
        assert await port.ask() in (200, 404)


@pytest.mark.parametrize("name", ["api", "api-tls", "operations", "certificates"])
async def test_a_trailer_that_ends_the_connection_ends_it_on_every_port(name: str, tmp_path: Path) -> None:
    head = b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"
    async with port_of(name, tmp_path / "data") as port:
        reader, writer = await port.open()
        writer.write(head + b"transfer-encoding: chunked\r\n\r\n0\r\nconnection: close\r\n\r\n")
        first = await reader.readuntil(b"\r\n\r\n")
        writer.write(head + b"\r\n")
        with contextlib.suppress(ConnectionError):
            assert b"HTTP/1.1" not in await reader.read()
        assert b"\r\nconnection: close\r\n" in first
        writer.close()


@pytest.mark.parametrize("name", ["api", "api-tls", "operations", "certificates"])
async def test_a_body_of_tiny_chunks_is_not_read_to_its_end_on_any_port(name: str, tmp_path: Path) -> None:
    async with port_of(name, tmp_path / "data") as port:
        reader, writer = await port.open()
        writer.write(b"POST /v1/none HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        writer.write(b"1\r\na\r\n" * 20_000)
        assert b"\r\nconnection: close\r\n" in await reader.readuntil(b"\r\n\r\n")
        writer.close()


async def is_in(line: str, port: Port) -> bool:
    with contextlib.suppress(httpx.HTTPError):
        return line in await port.metrics()
    return False


async def test_the_port_of_google_s_clients_closes_what_is_over_its_limit(tmp_path: Path) -> None:
    async with port_of("pubsub", tmp_path / "data") as port:
        silent = [await port.connect() for _ in range(CONNECTIONS)]
        over, leaving = await port.connect()
        with contextlib.suppress(ConnectionError):
            assert await over.read() == b""
        for writer in (leaving, *(each for _, each in silent)):
            writer.close()
        async with grpc.aio.insecure_channel(urlsplit(port.url).netloc) as channel:
            await asyncio.wait_for(channel.channel_ready(), 60)
