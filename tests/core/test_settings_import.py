"""The reference's configuration file, and what it becomes (contract 16)."""

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import Unusable
from ams.core.settings import Settings
from ams.core.settings_import import imported

SAMPLE: dict[str, Any] = {
    "bind_ip": "192.0.2.7", "port": 443, "zookeeper_hosts": ["zoo1.example:2181"], "kafka_znode": "",
    "store_host": "store.example", "store_db": "argo_msg", "certificate": "/etc/grid-security/hostcert.pem",
    "certificate_key": "/etc/grid-security/hostkey.pem",
    "certificate_authorities_dir": "/etc/grid-security/certificates", "per_resource_auth": "true",
    "service_token": "s3cret", "push_enabled": True, "push_tls_enabled": "false", "push_server_host": "push.example",
    "push_server_port": 5555, "verify_push_server": True, "push_worker_token": "w0rker", "log_level": "INFO",
    "log_facilities": ["syslog", "console"], "auth_option": "header", "proxy_hostname": "ams.example",
    "colour": "blue",
}  # fmt: skip


def converted(**given: Any) -> tuple[dict[str, Any], tuple[str, ...]]:
    found = imported(json.dumps(given))
    return tomllib.loads(found.toml), found.notes


def test_every_key_of_the_contract_becomes_a_setting_or_is_listed() -> None:
    values, notes = converted(**SAMPLE)

    kept = "port per_resource_auth service_token push_enabled push_tls_enabled push_server_host push_server_port"
    kept += " certificate_authorities_dir verify_push_server push_worker_token auth_option proxy_hostname"
    assert values == {key: SAMPLE[key] for key in kept.split()} | {
        "host": "192.0.2.7",
        "cert": SAMPLE["certificate"],
        "key": SAMPLE["certificate_key"],
        "log_level": "info",
        "log_facilities": "console,syslog",
    }
    assert notes == (
        "bind_ip 192.0.2.7 is honoured now; the reference listened on all addresses",
        "zookeeper_hosts has no counterpart: the log is in the data folder",
        "kafka_znode has no counterpart: the log is in the data folder",
        "store_host has no counterpart: users, projects and topics are in the data folder",
        "store_db has no counterpart: users, projects and topics are in the data folder",
        "colour has no counterpart",
    )


def test_the_result_is_a_settings_file(tmp_path: Path) -> None:
    (tmp_path / "ams.toml").write_text(imported(json.dumps(SAMPLE)).toml)

    settings = Settings.load({}, {}, str(tmp_path / "ams.toml"), print)

    assert (settings.host, settings.port, settings.push_tls_enabled) == ("192.0.2.7", 443, False)


def test_no_secret_is_told() -> None:
    _, notes = converted(**SAMPLE)
    with pytest.raises(Unusable) as stopped:
        converted(service_token=31337)

    assert not any(
        secret in text for secret in ("s3cret", "w0rker", "31337") for text in (*notes, stopped.value.message)
    )


def test_without_an_address_it_listens_where_the_reference_does() -> None:
    certificate = {"certificate": "c.pem", "certificate_key": "k.pem"}

    assert converted(**certificate) == ({"host": "0.0.0.0", "cert": "c.pem", "key": "k.pem"}, ())


@pytest.mark.parametrize("given", [{"port": 8080}, {"bind_ip": "192.0.2.7"}])
def test_without_a_certificate_it_is_said_that_the_reference_took_that_of_the_host(given: dict[str, Any]) -> None:
    _, notes = converted(**given)

    assert notes[-1].startswith("certificate and certificate_key are not given, and the reference then took those of")
    assert converted(bind_ip="127.0.0.1")[1] == (
        "bind_ip 127.0.0.1 is honoured now; the reference listened on all addresses",
    )


@pytest.mark.parametrize("option", ["both", "header", "key"])
def test_a_known_auth_option_is_kept(option: str) -> None:
    assert converted(auth_option=option)[0]["auth_option"] == option


def test_an_unknown_auth_option_becomes_what_it_meant() -> None:
    values, notes = converted(auth_option="cookie", bind_ip="localhost")

    assert values["auth_option"] == "key"
    assert notes[1:] == ("auth_option 'cookie' is unknown; the reference then reads the query parameter only: key",)


@pytest.mark.parametrize(
    ("level", "ours"), [("INFO", "info"), ("WARN", "warning"), ("FATAL", "error"), ("Debug", "debug")]
)
def test_log_levels_are_spelled_our_way(level: str, ours: str) -> None:
    assert converted(log_level=level)[0]["log_level"] == ours


def test_null_is_absent() -> None:
    assert converted(service_token=None, bind_ip=None)[0] == {"host": "0.0.0.0"}


@pytest.mark.parametrize(
    "given",
    [{"port": "eighty"}, {"port": 70000}, {"log_level": "LOUD"}, {"log_facilities": ["kafka"]},
     {"per_resource_auth": "perhaps"}, {"certificate": "only.pem"}, {"push_server_host": "push.example"},
     {"push_enabled": []}, {"service_token": 7}, {"bind_ip": 7}],
)  # fmt: skip
def test_a_value_that_cannot_be_stops_the_import_in_one_line(given: dict[str, Any]) -> None:
    with pytest.raises(Unusable) as stopped:
        converted(**given)

    assert "\n" not in stopped.value.message


def test_half_a_character_stops_the_import() -> None:
    with pytest.raises(Unusable, match="not Unicode"):
        imported('{"proxy_hostname": "\\ud800"}')


@pytest.mark.parametrize("text", ["", "[]", "null", "{", "7", "[" * 100_000])
def test_what_is_no_object_is_refused(text: str) -> None:
    with pytest.raises(Unusable, match="this is no JSON"):
        imported(text)


@given(st.text(st.characters(codec="utf-8")))
def test_any_text_survives_the_way_into_toml(text: str) -> None:
    assert converted(proxy_hostname=text)[0]["proxy_hostname"] == text
