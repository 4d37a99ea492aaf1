"""Bodies in gzip are decoded within the limits of bodies; other codings are refused."""

import gzip
import json
import zlib
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.served import SERVICE_TOKEN, Served, served
from tests.support.waiting import PATIENCE_SECONDS

MESSAGE = json.dumps({"messages": [{"data": "aGVsbG8="}]}).encode()
LIMIT = 100_000


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with served(Path(tmp_path_factory.mktemp("gzip")) / "data", max_body_bytes=LIMIT) as service:
        service.ask("POST", "/projects/P", {})
        service.ask("PUT", "/projects/P/topics/T")
        yield service


def publish(service: Served, body: bytes, coding: str | None = "gzip") -> tuple[int, str]:
    """Return the status and the text of an error."""
    fields = {"x-api-key": SERVICE_TOKEN} | ({} if coding is None else {"content-encoding": coding})
    url = f"{service.run.base_url}/v1/projects/P/topics/T:publish"
    answer = httpx.post(url, content=body, headers=fields, trust_env=False, timeout=PATIENCE_SECONDS)
    return answer.status_code, answer.json().get("error", {}).get("message", "")


@pytest.mark.parametrize("coding", ["gzip", "GZIP", "x-gzip"])
@pytest.mark.parametrize("cut", [0, 9])
def test_gzip_is_decoded_of_one_member_or_several(small: Served, coding: str, cut: int) -> None:
    parts = [part for part in (MESSAGE[:cut], MESSAGE[cut:]) if part]

    assert publish(small, b"".join(map(gzip.compress, parts)), coding) == (200, "")


@pytest.mark.parametrize("size", [1000, 65_535, 65_536, 65_537, LIMIT - len(MESSAGE)])
def test_bodies_of_several_portions_are_decoded_whole(small: Served, size: int) -> None:
    assert publish(small, gzip.compress(b" " * size + MESSAGE)) == (200, "")


@pytest.mark.parametrize("coding", ["identity", "", None])
def test_no_coding_is_taken_as_it_is_and_gzip_behind_it_decoded(small: Served, coding: str | None) -> None:
    for _ in range(3):
        assert publish(small, MESSAGE, coding) == (200, "")
        assert publish(small, gzip.compress(MESSAGE)) == (200, "")


@pytest.mark.parametrize("coding", ["br", "deflate", "zstd", "gzip, gzip", "gzip, identity"])
@pytest.mark.parametrize("body", [MESSAGE, gzip.compress(MESSAGE)], ids=["plain", "gzip"])
def test_other_codings_are_refused(small: Served, coding: str, body: bytes) -> None:
    assert publish(small, body, coding) == (415, "Content-Encoding can only be gzip")


@pytest.mark.parametrize("size", [LIMIT + 1, 50_000_000])
def test_what_is_decoded_counts_against_the_limit(small: Served, size: int) -> None:
    assert publish(small, gzip.compress(b" " * size)) == (413, "Message size is too large")


@pytest.mark.parametrize(
    "body",
    [MESSAGE, gzip.compress(b"") * 5000, gzip.compress(MESSAGE)[:-3], gzip.compress(MESSAGE) + b"more",
     zlib.compress(MESSAGE), b"\x1f\x8b"],
    ids=["plain", "thousands of members", "cut", "more behind it", "zlib", "two bytes"],
)  # fmt: skip
def test_what_is_not_gzip_is_refused(small: Served, body: bytes) -> None:
    assert publish(small, body) == (400, "Request body is not gzip")
