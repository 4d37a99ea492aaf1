from pathlib import Path

import pytest

from ams.client.connection import Source, authn_connection, connection, profiles_path, read_profile
from ams.client.errors import BadConnection

NOTHING = Source()
ELSEWHERE = "https://ams.example"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Stand in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def local_service(folder: Path) -> None:
    data = folder / "ams-data"
    data.mkdir()
    (data / "admin.token").write_text("local-token\n")
    (data / "ca.pem").write_text("")


def profiles(folder: Path, text: str) -> dict[str, str]:
    """Write the profiles file and return the environment in which it is found."""
    (folder / "ams").mkdir()
    (folder / "ams" / "profiles.toml").write_text(text)
    return {"XDG_CONFIG_HOME": str(folder)}


OF_PROFILE = "https://profile.example"
SITE = f'[site]\nendpoint = "{OF_PROFILE}"\nproject = "third"\ntoken = "c"\n'
IN_USE = f'current = "site"\n[site]\nendpoint = "{OF_PROFILE}"\ntoken = "c"\n[other]\nproject = "p"\n'


@pytest.mark.parametrize(
    ("text", "source", "profile", "environment", "expected"),
    [
        pytest.param(
            SITE, Source(endpoint=ELSEWHERE), "site", {"AMS_ENDPOINT": "https://other.example", "AMS_TOKEN": "b"},
            (ELSEWHERE, "b", "third"), id="options before the environment before the profile",
        ),
        pytest.param(
            SITE, NOTHING, None, {"AMS_PROFILE": "site"}, (OF_PROFILE, "c", "third"),
            id="the environment may choose the profile",
        ),
        pytest.param(IN_USE, NOTHING, None, {}, (OF_PROFILE, "c", None), id="the profile in use if nobody names one"),
        pytest.param(
            IN_USE, Source(endpoint=ELSEWHERE), None, {}, (ELSEWHERE, "", None),
            id="its token never goes to a service named elsewhere",
        ),
        pytest.param(
            IN_USE, NOTHING, None, {"AMS_ENDPOINT": ELSEWHERE}, (ELSEWHERE, "", None),
            id="nor to one of the environment",
        ),
        pytest.param(
            "", Source(endpoint=ELSEWHERE), None, {"AMS_TOKEN": "", "AMS_PROJECT": "", "AMS_PROFILE": ""},
            (ELSEWHERE, "", None), id="an empty variable says nothing",
        ),
        pytest.param(
            "", Source(endpoint="ams.example:8080"), None, {}, ("https://ams.example:8080", "", None),
            id="https where no scheme is said",
        ),
        pytest.param(
            "", Source(endpoint=ELSEWHERE, token_file="token"), None, {"AMS_TOKEN": "other"}, (ELSEWHERE, "abc", None),
            id="a token file without its line end",
        ),
    ],
)  # fmt: skip
def test_what_a_service_is_asked_with_is_said_in_several_places(
    folder: Path, text: str, source: Source, profile: str | None, environment: dict[str, str], expected: object
) -> None:
    (folder / "token").write_text("abc\n")

    found = connection(source, profile, profiles(folder, text) | environment)

    assert (found.endpoint, found.token, found.project) == expected


def test_a_profile_without_a_service_takes_none_of_another(folder: Path) -> None:
    with pytest.raises(BadConnection, match="no service"):
        connection(NOTHING, "other", profiles(folder, IN_USE))


@pytest.mark.parametrize(
    ("endpoint", "token"),
    [
        (None, "local-token"),
        ("https://localhost:9000", "local-token"),
        ("https://127.0.0.1:9000", "local-token"),
        ("https://[::1]:9000", "local-token"),
        (ELSEWHERE, ""),
        ("http://localhost:8080", ""),
        ("https://localhost.ams.example", ""),
    ],
)
def test_the_local_token_goes_to_this_machine_and_by_tls_alone(folder: Path, endpoint: str | None, token: str) -> None:
    local_service(folder)

    found = connection(Source(endpoint=endpoint), None, {})

    assert (found.token, found.ca) == (token, "ams-data/ca.pem" if token else None)
    assert found.endpoint == (endpoint or "https://localhost:8080")
    assert connection(Source(token="mine", endpoint=endpoint), None, {}).token == "mine"


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        (Source(endpoint=ELSEWHERE, token="a", token_file="b"), "one of them"),
        (Source(endpoint=ELSEWHERE, token_file="nowhere"), "token file nowhere: No such file"),
        (Source(endpoint=ELSEWHERE, token_file="binary"), "token file binary does not hold a token"),
        (NOTHING, "--endpoint"),
        (Source(endpoint="ftp://ams.example"), "is no endpoint"),
        (Source(endpoint="https://"), "is no endpoint"),
        (Source(endpoint="https://[::1"), "is no endpoint"),
    ],
)
def test_what_cannot_be_used_is_said_with_the_way_out(folder: Path, source: Source, reason: str) -> None:
    (folder / "binary").write_bytes(b"\xff\x00")

    with pytest.raises(BadConnection, match=reason):
        connection(source, None, {})


def test_files_of_a_profile_are_found_beside_it(folder: Path) -> None:
    path = profiles_path(profiles(folder, '[site]\ntoken_file = "site.token"\nca = "/etc/ca.pem"'))

    profile = read_profile(path, "site")

    assert profile.token_file == str(folder / "ams" / "site.token")
    assert profile.ca == "/etc/ca.pem"


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "no profile 'site'"),
        ("site = 1", "no profile 'site'"),
        ('[site]\nhost = "x"', "host must be one of"),
        ("[site]\nproject = 1", "project must be one of"),
        ('[site\ntoken = "s3cret"', "is not TOML"),
    ],
)
def test_a_profile_that_is_wrong_is_said_without_its_secrets(folder: Path, text: str, reason: str) -> None:
    path = profiles_path(profiles(folder, text))

    with pytest.raises(BadConnection, match=reason) as raised:
        read_profile(path, "site")

    assert "s3cret" not in str(raised.value)


def test_a_missing_profiles_file_is_named(folder: Path) -> None:
    with pytest.raises(BadConnection, match=r"profiles\.toml: No such file"):
        connection(NOTHING, "site", {"XDG_CONFIG_HOME": str(folder)})


def test_profiles_are_kept_in_the_home_by_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/operator")

    assert profiles_path({}) == "/home/operator/.config/ams/profiles.toml"


def local_certificates(folder: Path, name: str) -> None:
    data = folder / name
    (data / "authn-tls").mkdir(parents=True)
    (data / "authn.key").write_text("local-key\n")
    (data / "authn-tls" / "ca.pem").write_text("")


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
    elsewhere = authn_connection(Source(authn_endpoint=ELSEWHERE), None, environment)
    assert (elsewhere.endpoint, elsewhere.token) == (ELSEWHERE, "")


@pytest.mark.parametrize("name", ["ams-authn", "ams-data"])
def test_a_certificate_service_on_this_machine_is_found_and_its_key_stays_here(folder: Path, name: str) -> None:
    environment = {"XDG_CONFIG_HOME": str(folder)}
    with pytest.raises(BadConnection, match="AMS_AUTHN_ENDPOINT"):
        authn_connection(NOTHING, None, environment)
    local_certificates(folder, name)

    found = authn_connection(NOTHING, None, environment)

    assert (found.endpoint, found.token) == ("https://localhost:8443", "local-key")
    assert found.ca == f"{name}/authn-tls/ca.pem"
    assert authn_connection(Source(authn_endpoint=ELSEWHERE), None, environment).token == ""
