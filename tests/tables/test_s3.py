"""Tables on a real S3 server: two writers, lost answers, and secrets that are not leaked."""

import hashlib
import logging
import pickle
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path

import pytest
from deltalake.exceptions import CommitFailedError
from pyarrow.fs import copy_files

from ams.tables import StoreFailed, WrongTable, location, log, upkeep
from ams.tables.location import Location
from tests.support import parts
from tests.support import s3 as server
from tests.tables.making import MONDAY, QUERY, TUESDAY, append, append_batches, contents, table, write
from tests.tables.test_table import commit_raw

_TRIES = 10
Row = tuple[int, date | None]
go = pytest.mark.go


@contextmanager
def use_proxy(address: str, rule: server.Rule, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Send all requests through a proxy that fails by a rule."""
    with server.unreliable(address, rule) as proxy, monkeypatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", proxy)
        yield


def put_object(url: str, content: str, *conditions: str) -> int:
    """Put an object with another program than ours; return the status."""
    digest = f"x-amz-content-sha256: {hashlib.sha256(content.encode()).hexdigest()}"
    headers = [part for each in (digest, *conditions) for part in ("-H", each)]
    signed = ["--aws-sigv4", "aws:amz:us-east-1:s3", "--user", f"{server.KEY}:{server.SECRET}"]
    told = ["-s", "-o", "/dev/null", "-w", "%{http_code}", "-X", "PUT", "--data-binary", content]
    ran = subprocess.run(["curl", *told, *signed, *headers, url], capture_output=True, text=True, check=True)
    return int(ran.stdout)


@go
@pytest.mark.curl
def test_the_server_refuses_to_put_an_object_that_is_there_if_it_is_told_to(store: str) -> None:
    """The other tests of two writers rely on this."""
    url = f"{store}/{server.BUCKET}/{parts.s3_table().rpartition('/')[2]}"
    assert put_object(url, "first", "If-None-Match: *") == 200
    assert (put_object(url, "second", "If-None-Match: *"), put_object(url, "third")) == (412, 200)


@go
def test_the_environment_lets_no_commit_replace_another(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    monkeypatch.setenv("AWS_S3_ALLOW_UNSAFE_RENAME", "true")
    root = parts.s3_table()
    append(table(root), 0, [(1, MONDAY)])
    stale = table(root).snapshot().delta
    append(table(root), 1, [(2, MONDAY)])

    with pytest.raises(CommitFailedError):
        commit_raw(stale, [], query="another", batch=5)

    assert contents(root) == {(1, MONDAY): 1, (2, MONDAY): 1}


@pytest.fixture
def short_timeout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Give up answers sooner than the proxy's delay."""
    monkeypatch.setattr(location, "TIMEOUT_SECONDS", server.LATE_SECONDS / 2)


def merge_two(root: str) -> None:
    assert upkeep.merge(root) == 2


def make(root: str) -> None:
    again_until_done(root, 0)
    assert table(root).snapshot().query == QUERY


CREATE = ("create", None, 0, 0)
BATCHES = [("append", number, 1, 0) for number in (3, 2, 1, 0)]
WORK: dict[str, tuple[Callable[[str], None], int | None, set[Row], list[tuple[str, int | None, int, int]]]] = {
    "append": (lambda root: append_batches(root, 4), 1, {(number, MONDAY) for number in range(4)}, [*BATCHES, CREATE]),
    "replace": (
        lambda root: table(root).replace(write(table(root), [(2, MONDAY), (2, TUESDAY)])), None,
        {(2, MONDAY), (2, TUESDAY)}, [("replace", None, n, n - 1) for n in (2, 1)] + [CREATE],
    ),
    "merge": (merge_two, 2, {(0, MONDAY), (1, MONDAY)}, [("merge", None, 1, 2), *BATCHES[2:], CREATE]),
    "make": (make, 0, {(0, MONDAY)}, [BATCHES[3], CREATE]),
}  # fmt: skip
"""The operation whose commit fails; the number of batches before, None for results; the rows afterwards; and the
history: operation and batch, files added, and removed."""


@go
@pytest.mark.faults
@pytest.mark.parametrize("fault", server.FAULTS)
@pytest.mark.parametrize("work", WORK)
@pytest.mark.usefixtures("short_timeout")
def test_work_is_done_once_anyway(store: str, work: str, fault: server.Fault, monkeypatch: pytest.MonkeyPatch) -> None:
    root = parts.s3_table()
    do, before, rows, history = WORK[work]
    if before is None:
        table(root).replace(write(table(root), [(1, MONDAY)]))
    append_batches(root, before or 0)
    number = {"make": 0, "merge": 3}.get(work, 2)

    with use_proxy(store, server.Once("PUT", log.commit_path(number), fault), monkeypatch):
        do(root)

    assert contents(root) == dict.fromkeys(rows, 1)
    assert [(each.what, each.batch, each.files, each.removed) for each in upkeep.history(root)] == history
    assert upkeep.check(root).wrong == []


@go
@pytest.mark.faults
@pytest.mark.usefixtures("short_timeout")
@pytest.mark.parametrize("seed", range(3))
def test_batches_are_there_once_in_a_failing_store(store: str, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    root = parts.s3_table()

    with use_proxy(store, server.Often(seed, 0.1), monkeypatch):
        for number in range(8):
            again_until_done(root, number)

    assert contents(root) == {(number, MONDAY): 1 for number in range(8)}
    assert upkeep.check(root).wrong == []


def again_until_done(root: str, number: int) -> None:
    for _ in range(_TRIES):
        try:
            append(table(root), number, [(number, MONDAY)])
        except (StoreFailed, WrongTable):
            continue
        return
    raise AssertionError(f"batch {number} was not added")


@go
def test_a_store_that_is_away_is_told_in_one_line(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    root = parts.s3_table()
    append(table(root), 0, [(1, MONDAY)])
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")

    with pytest.raises(StoreFailed, match=f"^{root}: .+") as failed:
        append(table(root), 1, [(2, MONDAY)])

    assert "\n" not in failed.value.message


@go
def test_secrets_are_in_no_error_address_option_or_log(
    store: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    root = parts.s3_table()
    append(table(root), 0, [(1, MONDAY)])
    location = Location.of(root)
    told = [repr(location), str(pickle.dumps(location)), str(location.options)]
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "another-secret")

    for attempt in (table(root).snapshot, table(root).exists, lambda: location.write("x", b"")):
        with pytest.raises(StoreFailed) as failed:
            attempt()
        told.append(failed.value.message)
        assert failed.value.__suppress_context__  # with which it would be shown what the server sent

    for text in (*told, caplog.text, *capfd.readouterr()):
        for secret in (server.SECRET, "another-secret", server.KEY, "SignatureProvided", "StringToSign"):
            assert secret not in text


@go
def test_a_bucket_that_is_not_there_is_told(store: str) -> None:
    with pytest.raises(StoreFailed, match="NoSuchBucket|bucket"):
        append(table("s3://absent-bucket/rows"), 0, [(1, MONDAY)])


@pytest.mark.parametrize(
    ("address", "root"), [("s3://tables/a/b", "s3://tables/a/b"), ("s3://tables/a/b/", "s3://tables/a/b")]
)
def test_addresses_of_buckets(address: str, root: str) -> None:
    location = Location.of(address)
    assert (location, location.path("c")) == (Location(root), f"{root}/c")
    assert pickle.loads(pickle.dumps(location)) == location


@pytest.mark.parametrize(
    "address", ["s3://", "s3://tables", "s3://tables/", "s3://tables/a/../b", "s3://T/a", "s3:/x/a"]
)
def test_other_addresses_are_refused(address: str) -> None:
    with pytest.raises(WrongTable, match="a table on S3 lies in s3://BUCKET/PREFIX"):
        Location.of(address)


@pytest.mark.parametrize(
    "address", ["s3://KEY:hidden@tables/a", "s3://tables:9000/hidden", "s3://tables/a?secret_access_key=hidden"]
)
def test_credentials_and_endpoints_in_an_address_are_refused_and_not_repeated(address: str) -> None:
    with pytest.raises(WrongTable, match="come from the environment") as refused:
        Location.of(address)
    assert "hidden" not in refused.value.message


def test_http_is_allowed_for_an_endpoint_that_says_so_only(monkeypatch: pytest.MonkeyPatch) -> None:
    location = Location.of("s3://tables/a")
    for endpoint, allowed in (("", False), ("https://s3.example:9000", False), ("http://127.0.0.1:9000", True)):
        monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
        assert ("AWS_ALLOW_HTTP" in (location.options or {})) is allowed


@pytest.mark.parametrize("endpoint", ["s3.example", "ftp://s3.example", "http://key:hidden@s3.example"])
def test_a_wrong_endpoint_is_refused_and_not_repeated(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", endpoint)
    with pytest.raises(WrongTable, match="AWS_ENDPOINT_URL is an address") as refused:
        _ = Location.of("s3://tables/a").options
    assert "hidden" not in refused.value.message


def test_of_what_a_server_sends_with_an_error_the_code_is_told_and_nothing_more() -> None:
    sent = OSError("Generic S3 error\n  \x1b[31m↳\x1b[0m 403 Forbidden\n <Error><Code>AccessDenied</Code><Key>k</Key>")
    assert location.s3_reason(sent) == "Generic S3 error: 403 Forbidden (AccessDenied)"


@go
def test_a_table_that_was_copied_from_a_folder_goes_on(store: str, tmp_path: Path) -> None:
    root = parts.s3_table()
    append(table(tmp_path / "table"), 0, [(1, MONDAY)])
    append(table(tmp_path / "table"), 1, [(2, TUESDAY)])

    copy_files(str(tmp_path / "table"), root.removeprefix("s3://"), destination_filesystem=location.s3_filesystem())

    assert not append(table(root), 1, [(2, TUESDAY)])
    assert append(table(root), 2, [(3, MONDAY)])
    assert contents(root) == {(1, MONDAY): 1, (2, TUESDAY): 1, (3, MONDAY): 1}
    assert upkeep.check(root).wrong == []
