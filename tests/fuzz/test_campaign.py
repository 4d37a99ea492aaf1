import asyncio
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.fuzz import packets
from tests.fuzz.campaign import FuzzCampaign
from tests.fuzz.judging import Answer, AnswerReader, find_fault
from tests.support.service import LiveService, live_service

Places = Callable[[Path], AbstractContextManager[Sequence[packets.Port]]]
JSON = {b"content-type": b"application/json; charset=utf-8"}
ENVELOPE = b'{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT"}}'


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LiveService]:
    flags = ("--min-free-bytes", "0", "--reserve-bytes", "0", "--pull-wait", "0")
    with live_service(tmp_path_factory.mktemp("fuzz") / "ams-data", *flags) as service:
        yield service
        assert service.stop() == 0


@pytest.mark.acceptance
@pytest.mark.long
def test_a_few_thousand_wrong_requests_are_answered_well(service: LiveService) -> None:
    result = asyncio.run(FuzzCampaign(service, 3000, seed=7).run())
    assert result.faults == []
    assert result.statuses[200] > 150


@pytest.mark.acceptance
@pytest.mark.long
@pytest.mark.parametrize(
    "places", [packets.own_ports, pytest.param(packets.ports_behind_haproxy, marks=pytest.mark.haproxy)]
)
def test_requests_cut_into_packets_are_answered_as_whole_ones(places: Places, tmp_path: Path) -> None:
    with places(tmp_path) as ports:
        assert packets.check_ports(ports, seconds=600, most=50) == 0


@pytest.mark.parametrize(("status", "body"), [
    (200, b'{"a": 1}{"b": 2}'), (400, b""), (400, b'{"detail": "no"}'), (404, ENVELOPE),
    (400, ENVELOPE.replace(b"no", b"")), (400, ENVELOPE.replace(b"}}", b'},"errors":[]}')),
    (500, ENVELOPE.replace(b"400", b"500")), (422, ENVELOPE.replace(b"400", b"422")),
])  # fmt: skip
def test_a_bad_answer_is_found(status: int, body: bytes) -> None:
    assert find_fault(b"/v1/projects/P/topics", Answer(status, JSON, body)) is not None


def test_a_good_answer_is_none_nor_the_one_500_that_the_contract_asks_for() -> None:
    failed = Answer(500, JSON, ENVELOPE.replace(b"400", b"500").replace(b"no", b"Backend Error"))
    good = [Answer(status, JSON, body) for status, body in ((200, b"{}"), (200, b""), (301, b""), (400, ENVELOPE))]

    assert [find_fault(b"/v1/projects/P/subscriptions/S:timeToOffset", each) for each in (*good, failed)] == [None] * 5
    assert find_fault(b"/v1/projects/P/subscriptions/S:offsets", failed) is not None
    assert find_fault(b"/", good[3]._replace(headers={b"content-type": b"text/plain"})) is not None


def test_answers_are_read_however_they_are_cut() -> None:
    wire = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"
    reader = AnswerReader()

    for byte in wire:
        reader.feed(bytes([byte]))

    assert reader.answers == [Answer(200, {b"transfer-encoding": b"chunked"}, b"{}")]
