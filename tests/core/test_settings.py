import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Unusable
from ams.core.settings import MAX_RETENTION_SECONDS, Bytes, Settings, toml_text
from ams.storage.log.embedded.segment import CLASSES


def loaded(
    flags: dict[str, object] | None = None, environment: dict[str, str] | None = None, config: str | None = None
) -> Settings:
    return Settings.load(flags or {}, environment or {}, config)


def config_in(folder: Path, text: str) -> str:
    file = folder / "ams.toml"
    file.write_text(text)
    return str(file)


def test_flags_win_over_the_environment_which_wins_over_the_file_which_wins_over_defaults(tmp_path: Path) -> None:
    config = config_in(tmp_path, 'host = "file"\nport = 1\nops_port = 1\n')

    settings = loaded({"port": "3"}, {"AMS_PORT": "2", "AMS_OPS_PORT": "2"}, config)

    assert (settings.host, settings.port, settings.ops_port) == ("file", 3, 2)
    assert settings.retention == 7 * 86400


@pytest.mark.parametrize(
    ("text", "size"), [("16MiB", 16 * 2**20), ("500kB", 500_000), ("7", 7), ("1.5 GiB", 3 * 2**29), ("0", 0)]
)
def test_sizes_are_written_with_units(text: str, size: int) -> None:
    assert loaded({"min_free_bytes": text}).min_free_bytes == size


@pytest.mark.parametrize(("text", "seconds"), [("7d", 604800), ("90s", 90), ("250ms", 0.25), ("12h", 43200), ("5", 5)])
def test_durations_are_written_with_units(text: str, seconds: float) -> None:
    assert loaded({"retention": text}).retention == seconds


KAFKA = {"log": "kafka", "kafka_servers": "kafka1.example:9092"}


@pytest.mark.parametrize(
    "flags",
    [
        *({"port": each} for each in ("eighty", "70000", "-1")),
        *({"retention": each} for each in ("0", "800d", "365.1d")),
        *({"segment_bytes": each} for each in ("8GiB", "1kB")),
        *({"pull_wait": each} for each in ("soon", "60s")),
        {"min_free_bytes": "7 elephants"}, {"max_buffered_bytes": "1MB"}, {"max_data_bytes": "50MB"},
        {"auth_option": "cookie"}, {"token_key": "short"}, {"log_facilities": "kafka"}, {"drain_seconds": "2m"},
        {"cert": "only.pem"}, {"cert": "a", "key": "b", "tls_self_signed": True},
        {"push_server_host": "push.example"}, {"push_server_port": "5555"},
        {"push_server_host": "push.example", "push_server_port": "70000"},
        {"push_worker_token": "ü"}, {"push_worker_token": "same", "service_token": "same"},
        {"log": "kafka"}, {"kafka_servers": "kafka1.example:9092"}, {"kafka_prefix": "a.b"},
        *({**KAFKA, "kafka_servers": each} for each in (
            "kafka1.example:ninety", "kafka1.example", "https://kafka1.example:9092", "kafka1.example:9092,")),
        {**KAFKA, "kafka_ca_file": "ca.pem"}, {**KAFKA, "kafka_min_isr": "4"},
        {"registry": "mysql://ams@db.example/ams"},
        *({"node_url": each} for each in (
            "node1.example:8080", "https://user:secret@node1.example", "https://node1.example/path")),
    ],
    ids=str,
)  # fmt: skip
def test_a_bad_value_stops_the_start_with_one_line(flags: dict[str, object]) -> None:
    with pytest.raises(Unusable) as stopped:
        loaded(flags)

    assert "\n" not in stopped.value.message


def test_the_longest_retention_is_what_the_log_has_a_class_for() -> None:
    assert loaded({"retention": "365d"}).retention * 1000 == MAX_RETENTION_SECONDS * 1000 == CLASSES[-1].age


def test_an_unknown_key_of_the_file_stops_the_start(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="unknown key 'prot'"):
        loaded(config=config_in(tmp_path, "prot = 8080\n"))


def test_an_unknown_variable_only_warns() -> None:
    lines: list[str] = []

    Settings.load({}, {"AMS_PROT": "1", "AMS_TOKEN": "secret", "HOME": "/"}, warn=lines.append)

    assert lines == ["unknown setting AMS_PROT in the environment is ignored"]


def test_secrets_are_never_shown() -> None:
    rows = loaded({"service_token": "s3cret", "token_key": "ab" * 32, "push_worker_token": "w0rker"}).shown()

    assert not any(secret in cell for row in rows for cell in row for secret in ("s3cret", "abab", "w0rker"))
    assert "w0rker" not in repr(Settings(push_worker_token="w0rker"))


@pytest.mark.parametrize("servers", ["kafka1.example:9092, kafka2.example:9093", "[::1]:9092", "10.0.0.1:9092"])
def test_brokers_are_given_by_name_or_address(servers: str) -> None:
    assert loaded({"log": "kafka", "kafka_servers": servers}).kafka_servers == servers


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ams:s3cret@db.example/ams",
        "postgresql://ams:s3/cret@db.example/ams",
        "postgresql://ams@db.example/ams?password=s3cret",
        "postgresql://ams@db.example/ams?sslmode=require&sslpassword=s3cret",
    ],
)
def test_a_password_in_the_url_of_the_registry_stops_the_start_and_is_not_told(url: str) -> None:
    with pytest.raises(Unusable, match="registry_password") as stopped:
        loaded({"registry": url})

    assert "cret" not in stopped.value.message


def test_the_url_of_the_registry_may_name_several_servers_with_ports() -> None:
    url = "postgresql://ams@db1.example:5432,db2.example:5433/ams?application_name=a:b@c"

    assert loaded({"registry": url}).registry == url


@pytest.mark.parametrize("option", ["", "cookie", "KEY", "none"])
def test_an_unknown_auth_option_stops_the_start(option: str) -> None:
    """17.4 O13: it never silently means the query parameter."""
    with pytest.raises(Unusable, match="is none of both, header, key"):
        loaded({"auth_option": option})


def test_what_is_shown_can_be_set_again() -> None:
    settings = Settings(min_free_bytes=Bytes(3 * 2**20))
    values = {name: value for name, _, value, _ in settings.shown()}

    assert loaded(dict(values)) == settings


def test_every_setting_says_what_it_is_for() -> None:
    assert all(each.metadata["help"].endswith(".") for each in Settings.fields())


def test_a_secret_that_cannot_be_is_not_shown(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="service_token") as stopped:
        loaded(config=config_in(tmp_path, "service_token = 314159\n"))

    assert "314159" not in stopped.value.message


@given(st.text(st.characters(codec="utf-8")) | st.booleans() | st.integers(-(2**63), 2**63 - 1))
def test_what_is_written_into_toml_is_read_from_it(value: object) -> None:
    assert tomllib.loads(f"value = {toml_text(value)}\n")["value"] == value
