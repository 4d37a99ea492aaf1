"""Bearer tokens: what is sent, and when it is asked for."""

import os
import pickle
from pathlib import Path

import pytest

from ams.client import Client, wire
from ams.client.bearer import MAX_BYTES, BearerFile
from ams.client.connection import Source, connection
from ams.client.errors import BadConnection, InvalidInput
from tests.client.faces import open_client
from tests.client.stub import Stub

SITE = "https://ams.example"
NOTHING = Source(endpoint=SITE)


def sent(stub: Stub) -> list[tuple[str | None, str | None]]:
    return [(headers.get("authorization"), headers.get("x-api-key")) for _, _, headers, _ in stub.requests]


@pytest.mark.parametrize(
    ("shown", "expected"),
    [({"bearer": "abc.def.ghi"}, ("Bearer abc.def.ghi", None)), ({"token": "t0ken"}, (None, "t0ken"))],
    ids=["bearer", "of AMS"],
)
def test_a_token_is_sent_in_the_header_of_its_kind_alone(
    face: str, stub: Stub, shown: dict[str, str], expected: tuple[str | None, str | None]
) -> None:
    with open_client(face, stub.url, **shown) as client:
        client.call(wire.get_status())

    assert sent(stub) == [expected]


def test_a_function_is_asked_for_the_token_of_each_request(face: str, stub: Stub) -> None:
    tokens = iter(["first", "second"])

    with open_client(face, stub.url, bearer=lambda: next(tokens)) as client:
        client.call(wire.get_status())
        client.call(wire.get_status())

    assert [authorization for authorization, _ in sent(stub)] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("returned", "reason"),
    [(each, "bearer token is empty, or holds") for each in ("", "two words", "line\nend", "é")]
    + [(each, "text, or a function that returns it") for each in (None, b"abc", 5)],
)
def test_what_no_token_can_be_is_not_sent_nor_quoted(face: str, stub: Stub, returned: object, reason: str) -> None:
    with (
        open_client(face, stub.url, bearer=lambda: returned) as client,
        pytest.raises(InvalidInput, match=reason) as raised,
    ):
        client.call(wire.get_status())

    assert stub.requests == []
    assert not returned or str(returned) not in raised.value.message


@pytest.mark.parametrize("bearer", [b"abc", Path("token")])
def test_what_is_neither_text_nor_a_function_is_refused_at_once(bearer: object) -> None:
    with pytest.raises(InvalidInput, match="text, or a function that returns it"):
        Client(SITE, bearer=bearer)  # type: ignore[arg-type]  # it is what is refused


async def _fetched() -> str:
    return "now"


def test_a_coroutine_function_is_awaited_on_asyncio(stub: Stub) -> None:
    with open_client("asyncio", stub.url, bearer=_fetched) as client:
        client.call(wire.get_status())

    assert sent(stub) == [("Bearer now", None)]


@pytest.mark.filterwarnings("error")
def test_without_asyncio_it_is_refused(stub: Stub) -> None:
    with Client(stub.url, bearer=_fetched) as client, pytest.raises(InvalidInput, match="AsyncClient"):
        client.call(wire.get_status())


def test_what_a_function_raises_comes_through(face: str, stub: Stub) -> None:
    def failing() -> str:
        raise LookupError("no agent")

    with open_client(face, stub.url, bearer=failing) as client, pytest.raises(LookupError, match="no agent"):
        client.call(wire.get_status())


def test_one_shows_one_token(stub: Stub) -> None:
    with pytest.raises(InvalidInput, match="not both"):
        Client(stub.url, "t0ken", bearer="abc")
    with pytest.raises(InvalidInput, match="no token has"):
        Client(stub.url, bearer="two words")


def test_the_token_of_a_file_is_read_again_when_the_file_was_written(tmp_path: Path, stub: Stub) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")

    with Client(stub.url, bearer=BearerFile(str(path))) as client:
        client.call(wire.get_status())
        (tmp_path / "new").write_text("second\n")
        os.rename(tmp_path / "new", path)
        client.call(wire.get_status())
        client.call(wire.get_status())

    assert [authorization for authorization, _ in sent(stub)] == ["Bearer first", "Bearer second", "Bearer second"]


def test_a_file_that_has_not_changed_is_not_read_again(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first")
    file = BearerFile(str(path))
    assert file() == "first"
    before = os.stat(path)

    path.write_text("other")  # of the same length
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))

    assert file() == "first"
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert file() == "other"


def test_while_a_file_is_being_written_the_token_before_is_used(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    file = BearerFile(str(path))
    assert file() == "first"

    path.write_text("")  # as a shell does with `>` before what it runs has written anything
    assert file() == "first"
    path.unlink()
    assert file() == "first"

    path.write_text("second\n")
    assert file() == "second"
    path.write_text("no token")
    with pytest.raises(BadConnection, match="does not hold a token"):
        file()


def test_a_file_without_a_token_is_named_and_not_quoted(tmp_path: Path) -> None:
    path = tmp_path / "token"
    with pytest.raises(BadConnection, match="token: No such file"):
        BearerFile(str(path))()
    for content in (b"", b"\xff\x00", b"two words", b"x" * (MAX_BYTES + 1)):
        path.write_bytes(content)
        with pytest.raises(BadConnection, match="does not hold a token") as raised:
            BearerFile(str(path))()
        assert "words" not in raised.value.message


def test_a_file_goes_to_other_processes_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc")

    assert pickle.loads(pickle.dumps(BearerFile(str(tmp_path / "token"))))() == "abc"


def test_the_environment_names_a_bearer_token_or_its_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")

    said = connection(NOTHING, None, {"AMS_BEARER_TOKEN": "xyz"})
    of_file = connection(NOTHING, None, {"AMS_BEARER_TOKEN_FILE": str(tmp_path / "token")}).bearer

    assert (said.token, said.bearer) == ("", "xyz")
    assert callable(of_file)
    assert of_file() == "abc"
    assert "xyz" not in repr(said)
    with pytest.raises(BadConnection, match="nowhere: No such file"):  # before anything is asked
        connection(NOTHING, None, {"AMS_BEARER_TOKEN_FILE": str(tmp_path / "nowhere")})


def test_the_first_place_that_has_a_token_of_any_kind_says_who_asks(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")

    by_option = connection(Source(endpoint=SITE, token="mine"), None, {"AMS_BEARER_TOKEN": "xyz"})
    by_file = connection(Source(endpoint=SITE, bearer_token_file=str(tmp_path / "token")), None, {"AMS_TOKEN": "t"})

    assert (by_option.token, by_option.bearer) == ("mine", None)
    assert by_file.token == ""
    assert isinstance(by_file.bearer, BearerFile)


@pytest.mark.parametrize(
    "environment",
    [
        {"AMS_TOKEN": "t", "AMS_BEARER_TOKEN": "xyz"},
        {"AMS_TOKEN_FILE": "f", "AMS_BEARER_TOKEN_FILE": "g"},
        {"AMS_BEARER_TOKEN": "xyz", "AMS_BEARER_TOKEN_FILE": "g"},
    ],
)
def test_two_tokens_in_one_place_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(BadConnection, match="in one place; give one of them"):
        connection(NOTHING, None, environment)


def test_a_profile_names_the_file_beside_it(tmp_path: Path) -> None:
    (tmp_path / "ams").mkdir()
    (tmp_path / "ams" / "profiles.toml").write_text(f'[site]\nendpoint = "{SITE}"\nbearer_token_file = "site.bearer"')
    (tmp_path / "ams" / "site.bearer").write_text("abc")

    found = connection(Source(), "site", {"XDG_CONFIG_HOME": str(tmp_path)}).bearer

    assert callable(found)
    assert found() == "abc"
