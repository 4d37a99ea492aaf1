"""Attack each port while a neighbour works: `python -m tests.faults.attacks --seconds 1800`.

For each attack of the table, a new service runs. A neighbour at its own address is measured alone and then during the
attack. A line shows its requests, its failures, both p99 latencies, and the statuses that an attacker with a token got.

The exit code is 0 if nothing failed or was lost, every ratio is at most 3, and every refusal of the attacker named its
quota. Judge only on an otherwise idle machine.
"""

import argparse
import asyncio
import base64
import contextlib
import http.client
import itertools
import json
import multiprocessing
import socket
import ssl
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import grpc
from google.pubsub_v1 import types

from local_cluster.certificates import Authority
from local_cluster.haproxy import SingleHaproxy
from local_cluster.ports import free_port
from local_cluster.processes import DidNotStart
from tests.faults.test_full_disk import mount_disk
from tests.support.service import LiveService, live_certificate_service, live_pusher, live_service, make_subscription

ATTACKER, NEIGHBOUR = "127.0.0.1", "127.0.0.2"
MAX_RATIO = 3.0
ALL_NEW_EVERY = 20  # one of so many requests of the neighbour is on a new connection
PAUSE_SECONDS = 0.005
MAX_HELD_CONNECTIONS = 3_000  # connections or streams that an attacker keeps open; it replaces the oldest
PER_SECOND = 500  # connections or streams that an attacker opens
THREADS = 4
SCHEMA_BYTES, MESSAGE_BYTES = 240_000, 1_000_000
CHUNKS = b"1\r\na\r\n" * 2_000
CHUNKED = b"%b HTTP/1.1\r\nHost: x\r\nx-api-key: wrong\r\nTransfer-Encoding: chunked\r\n\r\n"
TRAILERS = (b"Connection: close", b"Proxy-Connection: close", b"Content-Length: 5", b"Transfer-Encoding: chunked")
BYTES_PER_SECOND = 10_000_000
TIMEOUT_SECONDS = 30.0
LIMIT_FLAGS = ("--min-free-bytes", "0", "--reserve-bytes", "0", "--max-data-bytes", "256MiB")
STREAMS = ("/google.pubsub.v1.Subscriber/StreamingPull", "/google.pubsub.v1.Publisher/Publish")


class Target(NamedTuple):
    """Addresses and credentials for an attacker."""

    port: int
    ca: bytes
    token: str  # of a project_admin and publisher of project Q
    statuses: Any  # count of each status; at 0, refusals without the name of a quota


def keep_silent_connections(target: Target) -> None:
    _keep_open(lambda: connect(target.port, ATTACKER))


def half_close_over_tls(target: Target) -> None:
    """Send a request over TLS, end the sending side of the connection, and read nothing."""
    _keep_open(lambda: end_sending(connect_tls(target.port, ATTACKER)))


def half_close(target: Target) -> None:
    """Send half a request, end the sending side of the connection, and read nothing."""
    _keep_open(lambda: end_sending(connect(target.port, ATTACKER), b"\r\n"))


def send_tiny_chunks(target: Target) -> None:
    """Send a body in chunks of one byte, at ten megabytes a second; start again when the connection is closed."""
    while True:
        with contextlib.suppress(OSError), connect_tls(target.port, ATTACKER) as client:
            client.sendall(CHUNKED % b"POST /v1/projects/P/topics/T:publish")
            while True:
                client.sendall(CHUNKS)
                time.sleep(len(CHUNKS) / BYTES_PER_SECOND)


def send_trailers(target: Target) -> None:
    """Send requests with trailers that contradict the head, and pipelined requests behind them."""
    for each in itertools.cycle(TRAILERS):
        with contextlib.suppress(OSError), connect_tls(target.port, ATTACKER) as client:
            client.sendall((CHUNKED % b"GET /v1/version" + b"0\r\n%b\r\n\r\n" % each) * 10)
            client.settimeout(1.0)  # of the last answer: haproxy keeps the connection
            while client.recv(65536):
                pass


def make_schemas(target: Target) -> None:
    """Make schemas of 240 kB as project_admin of another project, by four threads."""
    schema = {"type": "object", "description": "x" * SCHEMA_BYTES}
    _flood(target, "/v1/projects/Q/schemas/s%d", json.dumps({"type": "json", "schema": schema}).encode())


def compile_definitions(target: Target) -> None:
    """Make schemas with Protocol Buffers definitions that are slow to compile, as `make_schemas` does."""
    ranges = ", ".join(str(2 * number) for number in range(1, 30_000))  # each is compared with each other
    definition = {"definition": f'syntax = "proto3"; message A {{ reserved {ranges}; }}'}
    _flood(target, "/v1/projects/Q/schemas/s%d", json.dumps({"type": "protobuf", "schema": definition}).encode())


def publish_messages(target: Target) -> None:
    """Publish messages of a megabyte as publisher of another project, by four threads."""
    body = json.dumps({"messages": [{"data": base64.b64encode(bytes(MESSAGE_BYTES)).decode()}]}).encode()
    _flood(target, "/v1/projects/Q/topics/T:publish?x=%d", body)


def begin_streams(target: Target) -> None:
    """Start gRPC calls without their first message."""
    asyncio.run(_keep_streams(target))


class Attack(NamedTuple):
    name: str
    run: Callable[[Target], None]
    port: str
    neighbour: str
    """The neighbour's port: it publishes, logs in at the certificate service, or reads the health of `ams push`."""
    flags: Sequence[str] = LIMIT_FLAGS
    disk_bytes: int = 0  # size of a disk that the service has for itself; 0: that of the machine
    reconnects: bool = True
    """True if the neighbour opens connections; one address may take all of gRPC's (decision 19)."""


ATTACKS = (
    Attack("silent-api", keep_silent_connections, "api", "api"),
    Attack("silent-operations", keep_silent_connections, "operations", "api"),
    Attack("silent-certificates", keep_silent_connections, "certificates", "certificates"),
    Attack("silent-pubsub", keep_silent_connections, "pubsub", "pubsub"),
    Attack("silent-push", keep_silent_connections, "push", "push", reconnects=False),
    Attack("silent-push-operations", keep_silent_connections, "push-operations", "push"),
    Attack("streams-pubsub", begin_streams, "pubsub", "pubsub"),
    Attack("half-closed-api", half_close_over_tls, "api", "api"),
    Attack("half-closed-operations", half_close, "operations", "api"),
    Attack("half-closed-certificates", half_close_over_tls, "certificates", "certificates"),
    Attack("chunks-api", send_tiny_chunks, "api", "api"),
    Attack("chunks-certificates", send_tiny_chunks, "certificates", "certificates"),
    Attack("trailers-api", send_trailers, "api", "api"),
    Attack("trailers-certificates", send_trailers, "certificates", "certificates"),
    Attack("trailers-haproxy", send_trailers, "haproxy", "haproxy"),
    Attack("schemas", make_schemas, "api", "api", flags=()),
    Attack("schemas-protobuf", compile_definitions, "api", "api", flags=()),
    Attack("messages", publish_messages, "api", "api"),
    Attack("messages-disk", publish_messages, "api", "api", flags=(), disk_bytes=640 * 2**20),
)


def connect(port: int, source: str) -> socket.socket:
    plain = socket.create_connection(("127.0.0.1", port), TIMEOUT_SECONDS, (source, 0))
    plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return plain


def connect_tls(port: int, source: str) -> ssl.SSLSocket:
    plain = connect(port, source)
    try:
        return ssl._create_unverified_context().wrap_socket(plain)  # who answers is not the point
    except OSError:
        plain.close()
        raise


def end_sending(client: socket.socket, ending: bytes = b"\r\n\r\n") -> socket.socket:
    client.sendall(b"GET /v1/version HTTP/1.1\r\nHost: x" + ending)
    socket.socket.shutdown(client, socket.SHUT_WR)  # that of TLS would forget the keys
    return client


def _keep_open(connect: Callable[[], socket.socket]) -> None:
    held: list[socket.socket] = []
    while True:
        try:
            held.append(connect())
        except OSError:
            time.sleep(0.1)
        time.sleep(1 / PER_SECOND)
        if len(held) > MAX_HELD_CONNECTIONS:
            held.pop(0).close()


async def _keep_streams(target: Target) -> None:
    credentials = grpc.ssl_channel_credentials(target.ca)
    own = [("grpc.use_local_subchannel_pool", 1)]
    channels = [
        grpc.aio.secure_channel(f"localhost:{target.port}", credentials, own)
        for _ in range(MAX_HELD_CONNECTIONS // 100)
    ]
    held: list[Any] = []
    for channel, method in zip(itertools.cycle(channels), itertools.cycle(STREAMS), strict=False):
        held.append(channel.stream_stream(method)())
        await asyncio.sleep(1 / PER_SECOND)
        if len(held) > MAX_HELD_CONNECTIONS:
            held.pop(0).cancel()


def _flood(target: Target, path: str, body: bytes) -> None:
    numbers = itertools.count()

    def work() -> None:
        while True:
            client = http.client.HTTPConnection("localhost")
            with contextlib.suppress(OSError, http.client.HTTPException), contextlib.closing(client):
                client.sock = connect_tls(target.port, ATTACKER)
                while True:
                    client.request("POST", path % next(numbers), body, {"x-api-key": target.token})
                    answer = client.getresponse()
                    is_named = answer.read().find(b"Quota ") >= 0
                    target.statuses[answer.status if answer.status == 200 or is_named else 0] += 1

    threads = [threading.Thread(target=work) for _ in range(THREADS)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()


class HttpAsker:
    """Repeats one request; `good` is the expected status and a part of the body."""

    def __init__(self, port: int, method: str, path: str, body: bytes, token: str, good: tuple[int, bytes]) -> None:
        self._port, self._request, self._good = port, (method, path, body, {"x-api-key": token}), good
        self._connection: http.client.HTTPConnection | None = None

    def ask(self) -> None:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("localhost")
            self._connection.sock = connect_tls(self._port, NEIGHBOUR)
        self._connection.request(*self._request)
        answer = self._connection.getresponse()
        said = answer.read()
        if answer.status != self._good[0] or self._good[1] not in said:
            raise http.client.HTTPException(f"{answer.status} {said[:200]!r}")

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class GrpcAsker:
    """Repeats one gRPC call; without `ca` over a plain connection."""

    def __init__(self, port: int, method: str, request: bytes, ca: bytes = b"", token: str = "") -> None:
        self._where, self._method, self._request = f"localhost:{port}", method, request
        self._credentials = grpc.ssl_channel_credentials(ca) if ca else grpc.local_channel_credentials()
        self._metadata = (("authorization", f"Bearer {token}"),)
        self._channel: grpc.Channel | None = None

    def ask(self) -> None:
        if self._channel is None:
            options = [("grpc.use_local_subchannel_pool", 1)]
            self._channel = grpc.secure_channel(self._where, self._credentials, options)
        call: Any = self._channel.unary_unary(self._method)
        call(self._request, timeout=TIMEOUT_SECONDS, metadata=self._metadata)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
            self._channel = None


class Neighbour:
    """Sends requests in a loop, mostly on one connection; on one alone unless it `reconnects`."""

    def __init__(self, asker: HttpAsker | GrpcAsker, reconnects: bool) -> None:
        self._asker, self._reconnects = asker, reconnects
        self.requests = self.failed = 0

    def measure_p99_ms(self, seconds: float) -> float:
        """Work for so long; return the p99 latency of the requests."""
        times: list[float] = []
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            if self._reconnects and len(times) % ALL_NEW_EVERY == 0:
                self._asker.close()
            begun = time.perf_counter()
            try:
                self._asker.ask()
            except (OSError, http.client.HTTPException, grpc.RpcError) as error:
                self.failed += 1
                self._asker.close()
                print(f"failed: {error!r}", file=sys.stderr, flush=True)
            times.append((time.perf_counter() - begun) * 1000)
            time.sleep(PAUSE_SECONDS)
        self.requests += len(times)
        return statistics.quantiles(times, n=100)[98]


class AttackedSite(NamedTuple):
    """Running services: their ports by name, the CA of the API's certificate, and the service itself."""

    ports: dict[str, int]
    ca: bytes
    service: LiveService
    attacker_token: str

    def make_asker(self, port: str) -> HttpAsker | GrpcAsker:
        """Return the neighbour's client of a port."""
        number, token = self.ports[port], self.service.token
        if port == "push":
            return GrpcAsker(number, "/PushService/Status", b"")
        if port == "pubsub":
            request = types.PublishRequest(topic="projects/P/topics/T", messages=[types.PubsubMessage(data=b"hello")])
            return GrpcAsker(number, STREAMS[1], types.PublishRequest.serialize(request), self.ca, token)
        if port == "certificates":
            path = "/v1/service-types/ams/hosts/ams.example:authx509"
            return HttpAsker(number, "GET", path, b"", token, (400, b"certificate"))
        body = b'{"messages":[{"data":"aGVsbG8="}]}'
        return HttpAsker(number, "POST", "/v1/projects/P/topics/T:publish", body, token, (200, b"messageIds"))

    def count_lost(self) -> int:
        """Return how many unacknowledged messages of the neighbour are gone from its subscription."""
        return int(self.service.ask("GET", "/projects/P/subscriptions/S:offsets")["min"])


@contextlib.contextmanager
def open_site(folder: Path, attack: Attack) -> Iterator[AttackedSite]:
    """Start the services of an attack. Raises `DidNotStart` without haproxy, `CalledProcessError` if no disk is
    mounted."""
    operations, neighbour = free_port(), attack.neighbour
    own = ["--trusted-proxies", "127.0.0.1"] if neighbour == "haproxy" else ["--tls-self-signed", "--pubsub-port", "0"]
    with contextlib.ExitStack() as stack:
        if attack.disk_bytes:
            stack.enter_context(mount_disk(folder, attack.disk_bytes))
        flags = [*attack.flags, "--segment-bytes", "16MiB", *own, "--ops-port", str(operations)]
        service = stack.enter_context(live_service(folder / "ams", *flags))
        ports = {"api": urlsplit(service.base_url).port or 0, "operations": operations}
        with service.http() as client:
            make_subscription(client)
        service.ask("POST", "/projects/Q", {})
        service.ask("PUT", "/projects/Q/topics/T")
        roles = [{"project": "Q", "roles": ["project_admin", "publisher"]}]
        token = service.ask("POST", "/users/attacker", {"projects": roles})["token"]
        if neighbour == "haproxy":
            certificate = Authority(folder / "authority").sign("haproxy").both
            haproxy = SingleHaproxy(folder, ports["api"], operations, certificate)
            ports["haproxy"] = stack.enter_context(haproxy).port
            return (yield AttackedSite(ports, b"", service, token))
        if neighbour == "certificates":
            ports["certificates"] = stack.enter_context(live_certificate_service(folder / "authn")).api
        if neighbour == "push":
            ports["push"], ports["push-operations"] = stack.enter_context(live_pusher())
        ports["pubsub"] = int(service.pubsub.rpartition(":")[2])
        yield AttackedSite(ports, service.ca.read_bytes(), service, token)


def _start_attack(begun: Any, run: Callable[[Target], None], target: Target) -> None:
    begun.set()
    run(target)


def run_attack(attack: Attack, site: AttackedSite, seconds: float) -> bool:
    """Measure a neighbour before and during an attack, print it, and return whether the neighbour was unaffected."""
    neighbour = Neighbour(site.make_asker(attack.neighbour), attack.reconnects)
    quiet = neighbour.measure_p99_ms(min(seconds, 60.0))
    context = multiprocessing.get_context("spawn")
    statuses = context.RawArray("L", 600)
    target = Target(site.ports[attack.port], site.ca, site.attacker_token, statuses)
    begun = context.Event()
    attacker = context.Process(target=_start_attack, args=(begun, attack.run, target), daemon=True)
    attacker.start()
    begun.wait(TIMEOUT_SECONDS)
    attacked = neighbour.measure_p99_ms(seconds)
    is_alive = attacker.is_alive()
    attacker.kill()
    attacker.join()
    lost, ratio = site.count_lost(), attacked / quiet
    counted = f"requests {neighbour.requests} failed {neighbour.failed} lost {lost}"
    got = " ".join(f"{status}:{count}" for status, count in enumerate(statuses) if count)
    print(
        f"{attack.name}: {counted} quiet {quiet:.1f} ms attacked {attacked:.1f} ms ratio {ratio:.2f}"
        f"{f' attacker got {got}' if got else ''}{'' if is_alive else ' attacker ended'}",
        flush=True,
    )
    return is_alive and not (neighbour.failed or lost or statuses[0]) and ratio <= MAX_RATIO


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=1800)
    parser.add_argument("--only", choices=[each.name for each in ATTACKS])
    chosen = parser.parse_args()
    results, left_out = [], []
    for attack in ATTACKS:
        if chosen.only in (None, attack.name):
            try:
                with tempfile.TemporaryDirectory() as folder, open_site(Path(folder), attack) as site:
                    results.append(run_attack(attack, site, chosen.seconds))
            except (DidNotStart, subprocess.CalledProcessError) as error:
                left_out.append(f"{attack.name}: {error}")
    print(f"attacks: {len(results)} left alone {sum(results)}", *left_out, sep="\nleft out ")
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
