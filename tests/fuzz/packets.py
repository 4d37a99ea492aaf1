"""Cut requests into packets at every byte, and pipeline them: `python -m tests.fuzz.packets --seconds 600`.

It uses sockets to every port: the API, the API over TLS and behind haproxy, the operations port and the certificate
service. Whatever the packets, the answers must equal those to the same requests sent whole on separate connections. For
half of the time `tests.fuzz.lane` compares the service's two request paths. The result is a line for each port; the
exit code is 0 if all answers were right.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
import re
import ssl
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import urlsplit

from local_cluster.certificates import Authority
from local_cluster.haproxy import SingleHaproxy, program
from local_cluster.ports import free_port
from local_cluster.processes import DidNotStart
from tests.fuzz import lane
from tests.fuzz.campaign import prepare_service
from tests.fuzz.judging import Answer, AnswerReader
from tests.support.packets import cuts, in_a_row, table
from tests.support.service import LiveService, live_certificate_service, live_service

CONNECTIONS = 8
ANSWER_SECONDS = 60
APART_SECONDS = 0.0005  # between two packets, so that they stay two
_LAST_REQUEST = b"GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
_CLOSING_SUFFIXES = (
    "last",
    "old",
)  # suffixes of names of requests after which a client must send nothing (RFC 9112, 9.6)
_MAX_SHOWN_FAULTS = 20

_TOPIC = b"/v1/projects/P/topics/T:publish"

_FLAGS = ("--min-free-bytes", "0", "--reserve-bytes", "0", "--pull-wait", "0", "--trusted-proxies", "127.0.0.1")


class ReceivedAnswer(NamedTuple):
    status: int
    body: bytes
    is_own: bool  # whether it has its own request's id
    is_last: bool  # whether it says that the connection is closed


Answers = list[ReceivedAnswer]


class Port(NamedTuple):
    name: str
    number: int
    requests: Mapping[str, bytes]
    has_tls: bool = False
    is_shared: bool = False
    """True if clients share connections to the service: then each request has an id, which its answer must have."""
    answers_early: bool = False
    """True if it answers before the body has arrived, and then closes the connection, as the answer says."""

    @contextlib.asynccontextmanager
    async def connect(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        context = ssl._create_unverified_context() if self.has_tls else None  # who answers is not the point
        reader, writer = await asyncio.open_connection("127.0.0.1", self.number, ssl=context)
        try:
            yield reader, writer
        finally:
            writer.close()
            with contextlib.suppress(OSError):
                await writer.wait_closed()


class PacketConversation(NamedTuple):
    packets: Sequence[bytes]
    expected: Answers


class PacketCampaign:
    def __init__(self, port: Port, seed: int = 1) -> None:
        self._port = port
        self._requests = port.requests
        self._ids = itertools.count(1)
        self._alone: dict[str, Answers] = {}
        self._random = random.Random(seed)
        self.conversations = self.faults = 0

    async def run(self, seconds: float, most: int | None = None) -> None:
        """Try all cuts and all pairs, then cuts of three pipelined requests, until the time or `most` is over."""
        for _ in range(2):  # the first time a message is stored and a position moved
            for name in self._requests:
                self._alone[name] = await self._ask([self._join_requests([name])])
        ends = time.monotonic() + seconds
        coming = itertools.islice(itertools.chain(self._cuts(), self._rows(), self._rows_cut()), most)

        async def work() -> None:
            for each in coming:
                if time.monotonic() > ends:
                    return
                await self._check(each)

        async with asyncio.TaskGroup() as group:
            for _ in range(CONNECTIONS):
                group.create_task(work())

    def _cuts(self) -> Iterator[PacketConversation]:
        every = [(name, cut) for name in self._requests for cut in cuts(self._join_requests([name]))]
        self._random.shuffle(every)
        for name, cut in every:
            yield PacketConversation(cut, self._alone[name])

    def _rows(self) -> Iterator[PacketConversation]:
        for names in in_a_row(self._requests):
            yield PacketConversation([self._join_requests(names)], self._expect(names))

    def _rows_cut(self) -> Iterator[PacketConversation]:
        while True:
            names = self._random.choices(list(self._requests), k=3)
            yield PacketConversation(
                lane.cut_anywhere(self._join_requests(names), 3, self._random), self._expect(names)
            )

    def _join_requests(self, names: Sequence[str]) -> bytes:
        joined = b""
        for name in names:
            joined += self._add_id(self._requests[name])
            if name.endswith(_CLOSING_SUFFIXES) and not (self._port.is_shared and "trailer says" in name):
                return joined  # haproxy lets no trailer end a connection
        return joined + self._add_id(_LAST_REQUEST)

    def _add_id(self, request: bytes) -> bytes:
        if not self._port.is_shared:
            return request
        return request.replace(b"\r\nHost: x", b"\r\nX-Request-Id: %d\r\nHost: x" % next(self._ids), 1)

    def _expect(self, names: Sequence[str]) -> Answers:
        """Return the answers of each request until one that closes the connection, and that of the last request."""
        found: Answers = []
        for name in names:
            answers = self._alone[name]
            found += answers[:1]
            if len(answers) == 1:
                return found
        return found + answers[1:]

    async def _check(self, conversation: PacketConversation) -> None:
        answers = await self._ask(conversation.packets)
        self.conversations += 1
        if not self._is_right(answers, conversation.expected):
            self.faults += 1
            if self.faults <= _MAX_SHOWN_FAULTS:
                print(f"FAULT\n  {conversation.packets}\n  {answers}\n  instead of {conversation.expected}", flush=True)

    def _is_right(self, answers: Answers, expected: Answers) -> bool:
        if self._port.answers_early and answers and answers[-1].is_last:
            *before, last = answers
            at = len(before)
            return before == expected[:at] and at < len(expected) and last.status in (200, expected[at].status)
        return answers == expected

    async def _ask(self, packets: Sequence[bytes]) -> Answers:
        answers = AnswerReader()
        async with self._port.connect() as (reader, writer):
            with contextlib.suppress(ConnectionError):
                for number, packet in enumerate(packets):
                    if number:
                        await asyncio.sleep(APART_SECONDS)
                    writer.write(packet)
                while data := await asyncio.wait_for(reader.read(2**16), ANSWER_SECONDS):
                    answers.feed(data)
        ids = re.findall(rb"\r\nX-Request-Id: (\d+)", b"".join(packets))
        final = [each for each in answers.answers if each.status != 100]
        found: Answers = []
        for each, sent_id in itertools.zip_longest(final, ids[: len(final)]):
            is_own = each.headers.get(b"x-request-id") == sent_id
            # haproxy has two texts for requests that it refuses itself.
            body = each.body if is_own or not self._port.is_shared else b""
            found.append(ReceivedAnswer(each.status, body, is_own, closes_connection(each)))
        return found


def closes_connection(answer: Answer) -> bool:
    return answer.headers.get(b"connection", b"").lower() == b"close"


def requests(token: str) -> Mapping[str, bytes]:
    key = b"x-api-key: %b\r\n" % token.encode()
    once = key + b"Idempotency-Key: packets\r\n"
    publish = table(_TOPIC, b'{"messages":[{"data":"aGVsbG8="}]}', once)
    pull = table(b"/v1/projects/P/subscriptions/S:pull?x=1", b'{"returnImmediately":"true"}', key)
    ids = b'{"ackIds":["projects/P/subscriptions/S:0"]}'
    acknowledge = table(b"/v1/projects/P/subscriptions/S:acknowledge", ids, key)
    found = {f"publish {name}": said for name, said in publish.items()}
    own = [name for name in publish if pull[name] != publish[name]]
    found |= {f"pull {name}": pull[name] for name in own}
    found |= {f"acknowledge {name}": acknowledge[name] for name in own}
    nothing = b'{"messages":[]}'  # without a key, as what is on the lane
    found |= {f"publish of nothing {name}": said for name, said in table(_TOPIC, nothing, key).items() if name in own}
    found["pull that waits for 100"] = pull["sized"].replace(b"Host: x", b"Host: x\r\nExpect: 100-continue")
    return found


def other_requests(path: bytes, body: bytes, key: str) -> Mapping[str, bytes]:
    return table(path, body, b"x-api-key: %b\r\n" % key.encode())


@contextlib.contextmanager
def own_ports(folder: Path) -> Iterator[Sequence[Port]]:
    operations = free_port()
    with (live_service(folder / "plain", *_FLAGS, "--ops-port", str(operations)) as plain,
          live_service(folder / "tls", *_FLAGS, "--tls-self-signed") as tls,
          live_certificate_service(folder / "authn") as authn):  # fmt: skip
        service_type = b'{"name":"s","hosts":["h"],"auth_types":["x509"],"auth_method":"api-key","type":"ams"}'
        yield [
            _api("API", plain),
            _api("API over TLS", tls)._replace(has_tls=True),
            Port("operations", operations, other_requests(b"/readyz", b"{}", ""), answers_early=True),
            Port(
                "certificates", authn.api, other_requests(b"/v1/service-types", service_type, authn.key), has_tls=True
            ),
            Port(
                "operations of certificates", authn.operations, other_requests(b"/readyz", b"{}", ""),
                answers_early=True,
            ),
        ]  # fmt: skip
        assert (plain.stop(), tls.stop()) == (0, 0)


@contextlib.contextmanager
def ports_behind_haproxy(folder: Path) -> Iterator[Sequence[Port]]:
    """Yield the API's port behind haproxy, once for each mode of connection reuse. Raises `DidNotStart` without it."""
    program()
    certificate, operations = Authority(folder / "authority").sign("haproxy").both, free_port()
    deployed = SingleHaproxy.configuration.read_text()
    with (live_service(folder / "behind", *_FLAGS, "--ops-port", str(operations)) as service,
          contextlib.ExitStack() as stack):  # fmt: skip
        ports, api = [], _api("", service)
        for reuse in ("always", "safe"):
            place = folder / reuse
            place.mkdir()
            (place / "haproxy.cfg").write_text(deployed.replace("http-reuse always", f"http-reuse {reuse}"))
            kind = type("Reusing", (SingleHaproxy,), {"configuration": place / "haproxy.cfg"})
            haproxy = stack.enter_context(kind(place, api.number, operations, certificate))
            ports.append(Port(f"API behind haproxy, reuse {reuse}", haproxy.port, api.requests, True, True))
        yield ports
        assert service.stop() == 0


def _api(name: str, service: LiveService) -> Port:
    prepare_service(service)
    return Port(name, urlsplit(service.base_url).port or 0, requests(service.token))


def check_ports(ports: Sequence[Port], seconds: float, seed: int = 1, most: int | None = None) -> int:
    """Hold conversations with each port for `seconds`, print their number, and return how many had wrong answers."""
    faults = 0
    for port in ports:
        campaign = PacketCampaign(port, seed)
        asyncio.run(campaign.run(seconds, most))
        print(f"{port.name}: conversations {campaign.conversations} faults {campaign.faults}", flush=True)
        faults += campaign.faults
    return faults


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    asyncio.run(lane.campaign(chosen.seconds / 2, chosen.seed))
    missing = ""
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as stack:
        ports = list(stack.enter_context(own_ports(Path(folder))))
        try:
            ports += stack.enter_context(ports_behind_haproxy(Path(folder)))
        except DidNotStart as error:
            missing = f", left out: {error}"
        faults = check_ports(ports, chosen.seconds / 2 / len(ports), chosen.seed)
    print(f"packets: faults {faults}{missing}")
    return 0 if not faults else 1


if __name__ == "__main__":
    sys.exit(main())
