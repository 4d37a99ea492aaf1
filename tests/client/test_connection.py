"""Connections: addresses and credentials from options, environment and profiles; and bearer tokens."""

import os
import pickle
from pathlib import Path

import pytest

from ams.client import Client, wire
from ams.client.bearer import MAX_BYTES, BearerFile
from ams.client.connection import SettingsSource, authn_connection, connection, profiles_path, read_profile
from ams.client.errors import BadConnection, InvalidInput
from tests.client.faces import open_client
from tests.client.stub import Stub

NOTHING = SettingsSource()
ELSEWHERE = "https://ams.example"
AT_ELSEWHERE = SettingsSource(endpoint=ELSEWHERE)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def profiles(folder: Path, text: str) -> dict[str, str]:
    (folder / "ams").mkdir()
    (folder / "ams" / "profiles.toml").write_text(text)
    return {"XDG_CONFIG_HOME": str(folder)}


OF_PROFILE = "https://profile.example"
SITE = f'[site]\nendpoint = "{OF_PROFILE}"\nproject = "third"\ntoken = "c"\n'
IN_USE = f'current = "site"\n[site]\nendpoint = "{OF_PROFILE}"\ntoken = "c"\n[other]\nproject = "p"\n'


BOTH = {"AMS_ENDPOINT": "https://other.example", "AMS_TOKEN": "b"}
EMPTY = {"AMS_TOKEN": "", "AMS_PROJECT": "", "AMS_PROFILE": ""}
AT_A_PORT = SettingsSource(endpoint="ams.example:8080")
BY_FILE = SettingsSource(endpoint=ELSEWHERE, token_file="token")
PLACES = {
    "options before the environment before the profile": (SITE, AT_ELSEWHERE, "site", BOTH, (ELSEWHERE, "b", "third")),
    "the profile of the environment": (SITE, NOTHING, None, {"AMS_PROFILE": "site"}, (OF_PROFILE, "c", "third")),
    "the profile in use if nobody names one": (IN_USE, NOTHING, None, {}, (OF_PROFILE, "c", None)),
    "its token never goes to a service named elsewhere": (IN_USE, AT_ELSEWHERE, None, {}, (ELSEWHERE, "", None)),
    "nor to one of the environment": (IN_USE, NOTHING, None, {"AMS_ENDPOINT": ELSEWHERE}, (ELSEWHERE, "", None)),
    "an empty variable says nothing": ("", AT_ELSEWHERE, None, EMPTY, (ELSEWHERE, "", None)),
    "https where no scheme is said": ("", AT_A_PORT, None, {}, ("https://ams.example:8080", "", None)),
    "a token file without its line end": ("", BY_FILE, None, {"AMS_TOKEN": "other"}, (ELSEWHERE, "abc", None)),
}


@pytest.mark.parametrize(("text", "source", "profile", "environment", "expected"), PLACES.values(), ids=PLACES)
def test_what_a_service_is_asked_with_is_said_in_several_places(
    folder: Path, text: str, source: SettingsSource, profile: str | None, environment: dict[str, str], expected: object
) -> None:
    (folder / "token").write_text("abc\n")
    found = connection(source, profile, profiles(folder, text) | environment)
    assert (found.endpoint, found.token, found.project) == expected


def test_a_profile_without_a_service_takes_none_of_another(folder: Path) -> None:
    with pytest.raises(BadConnection, match="no service"):
        connection(NOTHING, "other", profiles(folder, IN_USE))


@pytest.mark.parametrize(("endpoint", "token"), [
    (None, "local-token"), ("https://localhost:9000", "local-token"), ("https://127.0.0.1:9000", "local-token"),
    ("https://[::1]:9000", "local-token"), (ELSEWHERE, ""), ("http://localhost:8080", ""),
    ("https://localhost.ams.example", ""),
])  # fmt: skip
def test_the_local_token_goes_to_this_machine_and_by_tls_alone(folder: Path, endpoint: str | None, token: str) -> None:
    (folder / "ams-data").mkdir()
    (folder / "ams-data" / "admin.token").write_text("local-token\n")
    (folder / "ams-data" / "ca.pem").write_text("")

    found = connection(SettingsSource(endpoint=endpoint), None, {})

    assert (found.token, found.ca) == (token, "ams-data/ca.pem" if token else None)
    assert found.endpoint == (endpoint or "https://localhost:8080")
    assert connection(SettingsSource(token="mine", endpoint=endpoint), None, {}).token == "mine"


@pytest.mark.parametrize(("source", "reason"), [
    (SettingsSource(endpoint=ELSEWHERE, token="a", token_file="b"), "one of them"),
    (SettingsSource(endpoint=ELSEWHERE, token_file="nowhere"), "token file nowhere: No such file"),
    (SettingsSource(endpoint=ELSEWHERE, token_file="binary"), "token file binary does not hold a token"),
    (NOTHING, "--endpoint"), (SettingsSource(endpoint="ftp://ams.example"), "is no endpoint"),
    (SettingsSource(endpoint="https://"), "is no endpoint"),
    (SettingsSource(endpoint="https://[::1"), "is no endpoint"),
])  # fmt: skip
def test_what_cannot_be_used_is_said_with_the_way_out(folder: Path, source: SettingsSource, reason: str) -> None:
    (folder / "binary").write_bytes(b"\xff\x00")
    with pytest.raises(BadConnection, match=reason):
        connection(source, None, {})


def test_files_of_a_profile_are_found_beside_it(folder: Path) -> None:
    text = '[site]\ntoken_file = "site.token"\nca = "/etc/ca.pem"\n'
    text += '[other]\nendpoint = "https://a"\nbearer_token_file = "b"'
    environment = profiles(folder, text)
    (folder / "ams" / "b").write_text("abc")

    profile = read_profile(profiles_path(environment), "site")
    bearer = connection(NOTHING, "other", environment).bearer

    assert (profile.token_file, profile.ca) == (str(folder / "ams" / "site.token"), "/etc/ca.pem")
    assert callable(bearer)
    assert bearer() == "abc"


@pytest.mark.parametrize(("text", "reason"), [
    ("", "no profile 'site'"), ("site = 1", "no profile 'site'"), ('[site]\nhost = "x"', "host must be one of"),
    ("[site]\nproject = 1", "project must be one of"), ('[site\ntoken = "s3cret"', "is not TOML"),
])  # fmt: skip
def test_a_profile_that_is_wrong_is_said_without_its_secrets(folder: Path, text: str, reason: str) -> None:
    path = profiles_path(profiles(folder, text))
    with pytest.raises(BadConnection, match=reason) as raised:
        read_profile(path, "site")
    assert "s3cret" not in str(raised.value)


def test_a_missing_profiles_file_is_named_by_default_in_the_home(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(BadConnection, match=r"profiles\.toml: No such file"):
        connection(NOTHING, "site", {"XDG_CONFIG_HOME": str(folder)})
    monkeypatch.setenv("HOME", "/home/operator")
    assert profiles_path({}) == "/home/operator/.config/ams/profiles.toml"


def test_the_certificate_service_has_variables_of_its_own() -> None:
    environment = {"AMS_ENDPOINT": ELSEWHERE, "AMS_TOKEN": "t", "AMS_CA": "ams.pem"}
    environment |= {"AMS_AUTHN_ENDPOINT": "authn.example:8443", "AMS_AUTHN_KEY": "k"}

    found = authn_connection(NOTHING, None, environment)

    assert (found.endpoint, found.token, found.ca) == ("https://authn.example:8443", "k", "ams.pem")
    assert authn_connection(NOTHING, None, environment | {"AMS_AUTHN_CA": "own.pem"}).ca == "own.pem"


def test_a_profile_says_where_the_certificate_service_is_and_its_file_is_beside_it(folder: Path) -> None:
    text = 'current = "site"\n[site]\nendpoint = "https://a"\nauthn_endpoint = "https://b"\nauthn_key_file = "b.key"'
    environment = profiles(folder, text)
    (folder / "ams" / "b.key").write_text("key-of-b\n")

    assert authn_connection(NOTHING, None, environment).token == "key-of-b"
    elsewhere = authn_connection(SettingsSource(authn_endpoint=ELSEWHERE), None, environment)
    assert (elsewhere.endpoint, elsewhere.token) == (ELSEWHERE, "")


@pytest.mark.parametrize("name", ["ams-authn", "ams-data"])
def test_a_certificate_service_on_this_machine_is_found_and_its_key_stays_here(folder: Path, name: str) -> None:
    environment = {"XDG_CONFIG_HOME": str(folder)}
    with pytest.raises(BadConnection, match="AMS_AUTHN_ENDPOINT"):
        authn_connection(NOTHING, None, environment)
    (folder / name / "authn-tls").mkdir(parents=True)
    (folder / name / "authn.key").write_text("local-key\n")
    (folder / name / "authn-tls" / "ca.pem").write_text("")

    found = authn_connection(NOTHING, None, environment)

    assert (found.endpoint, found.token) == ("https://localhost:8443", "local-key")
    assert found.ca == f"{name}/authn-tls/ca.pem"
    assert authn_connection(SettingsSource(authn_endpoint=ELSEWHERE), None, environment).token == ""


def sent_credentials(stub: Stub) -> list[tuple[str | None, str | None]]:
    return [(headers.get("authorization"), headers.get("x-api-key")) for _, _, headers, _ in stub.requests]


@pytest.mark.parametrize(("shown", "expected"), [
    ({"bearer": "abc.def.ghi"}, ("Bearer abc.def.ghi", None)), ({"token": "t0ken"}, (None, "t0ken")),
], ids=["bearer", "of AMS"])  # fmt: skip
def test_a_token_has_one_header(face: str, stub: Stub, shown: dict[str, str], expected: tuple[str | None, str | None]):
    with open_client(face, stub.url, **shown) as client:
        client.call(wire.get_status())
    assert sent_credentials(stub) == [expected]


def test_a_function_is_asked_for_the_token_of_each_request(face: str, stub: Stub) -> None:
    tokens = iter(["first", "second"])

    with open_client(face, stub.url, bearer=lambda: next(tokens)) as client:
        client.call(wire.get_status())
        client.call(wire.get_status())

    assert [authorization for authorization, _ in sent_credentials(stub)] == ["Bearer first", "Bearer second"]


@pytest.mark.parametrize(
    ("returned", "reason"),
    [(each, "bearer token is empty, or holds") for each in ("", "two words", "line\nend", "é")]
    + [(each, "text, or a function that returns it") for each in (None, b"abc", 5)],
)
def test_what_no_token_can_be_is_not_sent_nor_quoted(face: str, stub: Stub, returned: object, reason: str) -> None:
    with (open_client(face, stub.url, bearer=lambda: returned) as client,
          pytest.raises(InvalidInput, match=reason) as raised):  # fmt: skip
        client.call(wire.get_status())

    assert stub.requests == []
    assert not returned or str(returned) not in raised.value.message


async def _fetch_token() -> str:
    return "now"


def test_a_coroutine_function_is_for_asyncio_alone(stub: Stub) -> None:
    with open_client("asyncio", stub.url, bearer=_fetch_token) as client:
        client.call(wire.get_status())
    assert sent_credentials(stub) == [("Bearer now", None)]
    with Client(stub.url, bearer=_fetch_token) as client, pytest.raises(InvalidInput, match="AsyncClient"):
        client.call(wire.get_status())


def test_what_a_function_raises_comes_through(face: str, stub: Stub) -> None:
    def failing() -> str:
        raise LookupError("no agent")

    with open_client(face, stub.url, bearer=failing) as client, pytest.raises(LookupError, match="no agent"):
        client.call(wire.get_status())


def test_a_client_shows_one_token_of_one_kind() -> None:
    with pytest.raises(InvalidInput, match="not both"):
        Client(ELSEWHERE, "t0ken", bearer="abc")
    with pytest.raises(InvalidInput, match="no token has"):
        Client(ELSEWHERE, bearer="two words")
    for bearer in (b"abc", Path("token")):
        with pytest.raises(InvalidInput, match="text, or a function that returns it"):
            Client(ELSEWHERE, bearer=bearer)  # type: ignore[arg-type]  # it is what is refused


def test_the_token_of_a_file_is_read_again_when_the_file_was_written(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("first\n")
    file = BearerFile(str(path))
    assert file() == "first"
    before = os.stat(path)

    path.write_text("other\n")  # of the same length
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert file() == "first", "a file that seems unchanged is not read again"
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    assert file() == "other"
    (tmp_path / "new").write_text("second\n")
    os.rename(tmp_path / "new", path)
    assert pickle.loads(pickle.dumps(file))() == file() == "second"


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


def test_the_environment_names_a_bearer_token_or_its_file(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")

    said = connection(AT_ELSEWHERE, None, {"AMS_BEARER_TOKEN": "xyz"})
    of_file = connection(AT_ELSEWHERE, None, {"AMS_BEARER_TOKEN_FILE": str(tmp_path / "token")}).bearer

    assert (said.token, said.bearer) == ("", "xyz")
    assert callable(of_file)
    assert of_file() == "abc"
    assert "xyz" not in repr(said)
    with pytest.raises(BadConnection, match="nowhere: No such file"):  # before anything is asked
        connection(AT_ELSEWHERE, None, {"AMS_BEARER_TOKEN_FILE": str(tmp_path / "nowhere")})


def test_the_first_place_that_has_a_token_of_any_kind_says_who_asks(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("abc\n")

    by_option = connection(SettingsSource(endpoint=ELSEWHERE, token="mine"), None, {"AMS_BEARER_TOKEN": "xyz"})
    by_file = connection(
        SettingsSource(endpoint=ELSEWHERE, bearer_token_file=str(tmp_path / "token")), None, {"AMS_TOKEN": "t"}
    )

    assert (by_option.token, by_option.bearer) == ("mine", None)
    assert by_file.token == ""
    assert isinstance(by_file.bearer, BearerFile)


@pytest.mark.parametrize("environment", [
    {"AMS_TOKEN": "t", "AMS_BEARER_TOKEN": "xyz"}, {"AMS_TOKEN_FILE": "f", "AMS_BEARER_TOKEN_FILE": "g"},
    {"AMS_BEARER_TOKEN": "xyz", "AMS_BEARER_TOKEN_FILE": "g"},
])  # fmt: skip
def test_two_tokens_in_one_place_are_refused(environment: dict[str, str]) -> None:
    with pytest.raises(BadConnection, match="in one place; give one of them"):
        connection(AT_ELSEWHERE, None, environment)
