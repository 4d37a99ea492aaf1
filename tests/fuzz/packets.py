"""Cut requests into packets at every byte, and send them in a row: `python -m tests.fuzz.packets --seconds 600`.

A running service is asked over plain sockets. Whatever the packets, its answers must be those to the same requests sent
whole, each on a connection of its own. Half of the time `tests.fuzz.lane` compares the ways that requests take in the
service. The last line is the result; the exit code tells whether all were.
"""

import argparse
import asyncio
import contextlib
import itertools
import random
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import lane
from tests.fuzz.campaign import connected, furnish
from tests.fuzz.judging import AnswerReader
from tests.support.packets import cuts, in_a_row, table
from tests.support.service import LiveService, live_service

CONNECTIONS = 8
ANSWER_SECONDS = 60
APART_SECONDS = 0.0005
"""Between two packets, so that they stay two."""
_LAST = b"GET /v1/version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
_CLOSING = ("last", "old")
"""Ends of the names of requests after which a client may send nothing (RFC 9112, 9.6)."""
_SHOWN = 20

_TOPIC = b"/v1/projects/P/topics/T:publish"

Answers = list[tuple[int, bytes]]


class Conversation(NamedTuple):
    packets: Sequence[bytes]
    expected: Answers


class Campaign:
    def __init__(self, service: LiveService, seed: int = 1) -> None:
        self._service = service
        self._requests = requests(service.token)
        self._alone: dict[str, Answers] = {}
        self._random = random.Random(seed)
        self.conversations = self.faults = 0

    async def run(self, seconds: float, most: int | None = None) -> None:
        """Go through all cuts and all pairs, then through cuts of three in a row, until the time or `most` is over."""
        for _ in range(2):  # the first time a message is stored and a position moved
            for name in self._requests:
                self._alone[name] = await self._asked([self._said([name])])
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

    def _cuts(self) -> Iterator[Conversation]:
        every = [(name, cut) for name in self._requests for cut in cuts(self._said([name]))]
        self._random.shuffle(every)
        for name, cut in every:
            yield Conversation(cut, self._alone[name])

    def _rows(self) -> Iterator[Conversation]:
        for names in in_a_row(self._requests):
            yield Conversation([self._said(names)], self._expected(names))

    def _rows_cut(self) -> Iterator[Conversation]:
        while True:
            names = self._random.choices(list(self._requests), k=3)
            yield Conversation(lane.cut_anywhere(self._said(names), 3, self._random), self._expected(names))

    def _said(self, names: Sequence[str]) -> bytes:
        said = b""
        for name in names:
            said += self._requests[name]
            if name.endswith(_CLOSING):
                return said
        return said + _LAST

    def _expected(self, names: Sequence[str]) -> Answers:
        """Return the answers of each request until one that closes the connection, and that of the last request."""
        found: Answers = []
        for name in names:
            answers = self._alone[name]
            found += answers[:1]
            if len(answers) == 1:
                return found
        return found + answers[1:]

    async def _check(self, conversation: Conversation) -> None:
        answers = await self._asked(conversation.packets)
        self.conversations += 1
        if answers != conversation.expected:
            self.faults += 1
            if self.faults <= _SHOWN:
                print(f"FAULT\n  {conversation.packets}\n  {answers}\n  instead of {conversation.expected}", flush=True)

    async def _asked(self, packets: Sequence[bytes]) -> Answers:
        answers = AnswerReader()
        async with connected(self._service) as (reader, writer):
            with contextlib.suppress(ConnectionError):
                for number, packet in enumerate(packets):
                    if number:
                        await asyncio.sleep(APART_SECONDS)
                    writer.write(packet)
                while data := await asyncio.wait_for(reader.read(2**16), ANSWER_SECONDS):
                    answers.feed(data)
        return [(each.status, each.body) for each in answers.answers if each.status != 100]


def requests(token: str) -> Mapping[str, bytes]:
    """Return the table for publish, pull and acknowledge; asked again, each is answered the same."""
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


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    asyncio.run(lane.campaign(chosen.seconds / 2, chosen.seed))
    with tempfile.TemporaryDirectory() as folder:
        flags = ["--min-free-bytes", "0", "--reserve-bytes", "0", "--pull-wait", "0"]
        with live_service(Path(folder) / "ams-data", *flags) as service:
            furnish(service)
            campaign = Campaign(service, chosen.seed)
            asyncio.run(campaign.run(chosen.seconds / 2))
            ended = service.stop()
    print(f"packets: conversations {campaign.conversations} faults {campaign.faults} exit {ended}")
    return 0 if not campaign.faults and ended == 0 else 1


if __name__ == "__main__":
    sys.exit(main())
