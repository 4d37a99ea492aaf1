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


def test_options_win_over_the_environment_and_that_over_the_profile(folder: Path) -> None:
    environment = profiles(folder, '[site]\nendpoint = "https://profile.example"\nproject = "third"\ntoken = "c"')
    environment |= {"AMS_ENDPOINT": "https://environment.example", "AMS_TOKEN": "b"}

    found = connection(Source(endpoint=ELSEWHERE), "site", environment)

    assert (found.endpoint, found.token, found.project) == (ELSEWHERE, "b", "third")


def test_the_environment_may_choose_the_profile(folder: Path) -> None:
    environment = profiles(folder, '[site]\nendpoint = "https://profile.example"') | {"AMS_PROFILE": "site"}

    assert connection(NOTHING, None, environment).endpoint == "https://profile.example"


def test_the_profile_in_use_is_taken_when_nobody_names_one(folder: Path) -> None:
    text = 'current = "site"\n[site]\nendpoint = "https://profile.example"\ntoken = "c"\n[other]\nproject = "p"'
    environment = profiles(folder, text)

    assert connection(NOTHING, None, environment).token == "c"
    with pytest.raises(BadConnection, match="no service"):
        connection(NOTHING, "other", environment)


def test_the_token_of_the_profile_in_use_never_goes_to_a_service_named_elsewhere(folder: Path) -> None:
    environment = profiles(folder, 'current = "site"\n[site]\nendpoint = "https://profile.example"\ntoken = "c"')

    assert connection(Source(endpoint=ELSEWHERE), None, environment).token == ""
    assert connection(NOTHING, None, environment | {"AMS_ENDPOINT": ELSEWHERE}).token == ""


def test_an_empty_variable_says_nothing() -> None:
    found = connection(Source(endpoint=ELSEWHERE), None, {"AMS_TOKEN": "", "AMS_PROJECT": "", "AMS_PROFILE": ""})

    assert (found.token, found.project) == ("", None)


def test_a_service_started_in_this_folder_is_found(folder: Path) -> None:
    local_service(folder)

    found = connection(NOTHING, None, {})

    assert found.endpoint == "https://localhost:8080"
    assert found.token == "local-token"
    assert found.ca == "ams-data/ca.pem"


@pytest.mark.parametrize("endpoint", ["https://localhost:9000", "https://127.0.0.1:9000", "https://[::1]:9000"])
def test_the_local_token_goes_to_this_machine(folder: Path, endpoint: str) -> None:
    local_service(folder)

    assert connection(Source(endpoint=endpoint), None, {}).token == "local-token"


@pytest.mark.parametrize("endpoint", [ELSEWHERE, "http://localhost:8080", "https://localhost.ams.example"])
def test_the_local_token_never_goes_elsewhere_or_in_the_clear(folder: Path, endpoint: str) -> None:
    local_service(folder)

    found = connection(Source(endpoint=endpoint), None, {})

    assert (found.token, found.ca) == ("", None)


def test_a_token_given_wins_over_the_local_one(folder: Path) -> None:
    local_service(folder)

    assert connection(Source(token="mine"), None, {}).token == "mine"


def test_a_token_file_is_read_without_its_line_end(folder: Path) -> None:
    (folder / "token").write_text("abc\n")

    assert connection(Source(endpoint=ELSEWHERE, token_file="token"), None, {"AMS_TOKEN": "other"}).token == "abc"


def test_a_token_and_a_token_file_in_one_place_are_refused() -> None:
    with pytest.raises(BadConnection, match="one of them"):
        connection(Source(endpoint=ELSEWHERE, token="a", token_file="b"), None, {})


def test_a_token_file_that_cannot_be_read_is_named(folder: Path) -> None:
    (folder / "binary").write_bytes(b"\xff\x00")

    with pytest.raises(BadConnection, match="token file nowhere: No such file"):
        connection(Source(endpoint=ELSEWHERE, token_file="nowhere"), None, {})
    with pytest.raises(BadConnection, match="token file binary does not hold a token"):
        connection(Source(endpoint=ELSEWHERE, token_file="binary"), None, {})


def test_without_an_endpoint_the_way_out_is_said() -> None:
    with pytest.raises(BadConnection, match="--endpoint"):
        connection(NOTHING, None, {})


def test_an_endpoint_without_a_scheme_is_https() -> None:
    assert connection(Source(endpoint="ams.example:8080"), None, {}).endpoint == "https://ams.example:8080"


@pytest.mark.parametrize("endpoint", ["ftp://ams.example", "https://", "https://[::1"])
def test_an_endpoint_that_cannot_be_one_is_a_mistake_of_usage(endpoint: str) -> None:
    with pytest.raises(BadConnection, match="is no endpoint"):
        connection(Source(endpoint=endpoint), None, {})


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


def local_certificates(folder: Path, name: str = "ams-authn") -> None:
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
def test_a_certificate_service_on_this_machine_is_found_by_its_folder(folder: Path, name: str) -> None:
    local_certificates(folder, name)

    found = authn_connection(NOTHING, None, {"XDG_CONFIG_HOME": str(folder)})

    assert (found.endpoint, found.token) == ("https://localhost:8443", "local-key")
    assert found.ca == f"{name}/authn-tls/ca.pem"


def test_the_local_key_never_leaves_the_machine(folder: Path) -> None:
    local_certificates(folder)

    assert authn_connection(Source(authn_endpoint=ELSEWHERE), None, {"XDG_CONFIG_HOME": str(folder)}).token == ""


def test_no_certificate_service_is_an_error_that_says_what_to_do(folder: Path) -> None:
    with pytest.raises(BadConnection, match="AMS_AUTHN_ENDPOINT"):
        authn_connection(NOTHING, None, {"XDG_CONFIG_HOME": str(folder)})
