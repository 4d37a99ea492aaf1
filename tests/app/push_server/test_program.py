"""`ams push` as a program beside a real service; its flags, environment, TOML and JSON (push contract 6, P9)."""

import json
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ams.app.push_server.settings import PushSettings
from ams.client import Client, Message, wire
from ams.core.errors import BadSettings, Unusable
from tests.support.commands import exit_code_of
from tests.support.documents import write_file
from tests.support.receiving import Receiving
from tests.support.served import WORKER_TOKEN, in_process_service
from tests.support.waiting import PATIENCE_SECONDS

PUSH = {
    "push_enabled": True, "push_worker_token": WORKER_TOKEN, "push_allow": "127.0.0.0/8",
    "push_server_host": "127.0.0.1", "push_server_port": 1, "push_tls_enabled": False,
}  # fmt: skip
"""Settings for a service that delivers nothing itself; nothing listens on that port."""


def test_messages_arrive_and_a_stop_ends_well(receiving: Receiving, tmp_path: Path) -> None:
    with (in_process_service(tmp_path / "ams-data", push_ca_file=receiving.ca, **PUSH) as service,
          Client(service.run.base_url, service.token) as admin):  # fmt: skip
        admin.call(wire.create_project("P"))
        admin.call(wire.create_topic("P", "T"))
        push = wire.PushConfig(type="http_endpoint", push_endpoint=receiving.url("/ok/S"))
        made = admin.call(wire.create_subscription("P", "S", "T", push=push))
        receiving.show(made.push_config["verificationHash"])
        admin.call(wire.verify_push_endpoint("P", "S"))
        service.clock.advance(10_000)  # leases of an earlier life have ended
        command = [
            sys.executable, "-m", "ams.cli.main", "push", "--endpoint", service.run.base_url, "--token", WORKER_TOKEN,
            "--no-tls-enabled", "--port", "0", "--ops-port", "0", "--push-allow", "127.0.0.0/8",
            "--push-ca-file", receiving.ca, "--log-level", "debug",
        ]  # fmt: skip
        with (tmp_path / "stderr").open("w") as errors:
            process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith("ready 127.0.0.1:")
            admin.project("P").topic("T").publish([Message(b"one"), Message(b"two")])
            found = receiving.wait(2, "/ok/S")
            assert [json.loads(each.body)["message"]["messageId"] for each in found] == ["0", "1"]
            process.send_signal(signal.SIGTERM)
            assert process.wait(PATIENCE_SECONDS) == 0
        finally:
            process.kill()
            process.wait()
            process.stdout.close()
    assert WORKER_TOKEN not in (tmp_path / "stderr").read_text()
    assert "b25l" not in (tmp_path / "stderr").read_text()


NEEDED = {"AMS_ENDPOINT": "https://ams.example", "AMS_TOKEN": "secret", "AMS_PUSH_TLS_ENABLED": "no"}
JSON = {
    "bind_ip": "127.0.0.1", "bind_port": 9000, "certificate": "c.pem", "certificate_key": "c.key",
    "certificate_authorities_dir": "authorities", "ams_token": "secret", "ams_host": "ams.example", "ams_port": 8443,
    "log_level": "INFO", "acl": ["OU=my_ou,O=acme", "ams.example"],
}  # fmt: skip


def test_an_access_list_has_semicolons_between_its_names_and_a_token_comes_from_a_file_too(tmp_path: Path) -> None:
    file = write_file(tmp_path / "token", "from-a-file\n")

    assert PushSettings.load({"acl": "CN=a,O=b; c ;"}, NEEDED).acl == ("CN=a,O=b", "c")
    assert PushSettings.load({"token_file": file}, {**NEEDED, "AMS_TOKEN": ""}).token == "from-a-file"
    with pytest.raises(BadSettings, match="exclude each other"):
        PushSettings.load({"token_file": file}, NEEDED)


@pytest.mark.parametrize(("flags", "text"), [
    ({"port": "many"}, "--port: 'many' is not a good value"),
    ({"port": "65536"}, "--port: '65536' is not a good value"),
    ({"log_level": "loud"}, "--log-level: 'loud' is none of debug, info, warning, error"),
    ({"trust_unknown_cas": True}, "trust_unknown_cas is not possible"),
    ({"verify_ssl": False}, "verify_ssl = false is not possible"),
    ({"tls_enabled": True}, "tls_enabled needs cert, key and certificate_authorities_dir"),
])  # fmt: skip
def test_what_cannot_be_stops_the_start(flags: dict[str, object], text: str) -> None:
    with pytest.raises(BadSettings, match=text):
        PushSettings.load(flags, NEEDED)
    with pytest.raises(BadSettings, match="endpoint and token"):
        PushSettings.load({}, {})


def test_a_configuration_of_the_reference_is_read_and_missing_switches_are_secure(tmp_path: Path) -> None:
    settings = PushSettings.load({}, {}, write_file(tmp_path / "c.json", JSON | {"unknown": 1}))

    assert settings == PushSettings(
        endpoint="https://ams.example:8443", token="secret", host="127.0.0.1", port=9000, cert="c.pem", key="c.key",
        certificate_authorities_dir="authorities", acl=("OU=my_ou,O=acme", "ams.example"), log_level="info",
    )  # fmt: skip
    assert (settings.tls_enabled, settings.verify_ssl) == (True, True)


def test_without_tls_no_certificates_are_asked_for_and_it_listens_everywhere(tmp_path: Path) -> None:
    lacking = {key: value for key, value in JSON.items() if "certificate" not in key and key != "bind_ip"}
    told = lacking | {"tls_enabled": False, "skip_subs_load": True, "syslog_enabled": True}
    settings = PushSettings.load({}, {}, write_file(tmp_path / "c.json", told))
    assert (settings.host, settings.skip_subs_load, settings.log_facilities) == ("0.0.0.0", True, "console,syslog")


@pytest.mark.parametrize("key", [
    "bind_port", "certificate", "certificate_key", "certificate_authorities_dir", "ams_token", "ams_host", "ams_port",
    "log_level",
])  # fmt: skip
def test_the_first_missing_key_is_told_in_the_words_of_the_contract(tmp_path: Path, key: str) -> None:
    order = list(JSON)
    lacking = {each: value for each, value in JSON.items() if order.index(each) < order.index(key)}
    with pytest.raises(Unusable, match=f"^Empty value for field {key}$"):
        PushSettings.load({}, {}, write_file(tmp_path / "c.json", lacking))


@pytest.mark.parametrize(("content", "text"), [
    (None, "Could not read configuration file: "),
    ("nonsense", "Could not load configuration file: "),
    ("[]", "Could not load configuration file: "),
    (JSON | {"bind_port": "9000"}, "Could not load configuration file: bind_port is of another type"),
    (JSON | {"acl": [1]}, "Could not load configuration file: acl is of another type"),
    (JSON | {"ams_port": 70000}, "Could not load configuration file: ams_port is no port"),
    (JSON | {"log_level": "LOUD"}, "Invalid log level LOUD"),
])  # fmt: skip
def test_a_bad_configuration_ends_with_1(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: Any, text: str):
    path = write_file(tmp_path / "c.json", content) if content else str(tmp_path / "nowhere.json")
    assert exit_code_of(["push", "--config", path]) == 1

    said = capsys.readouterr().err
    assert said.startswith(f"ams: {text}")
    assert len(said.splitlines()) == 1
    assert "secret" not in said


def test_no_secret_is_shown() -> None:
    settings = PushSettings.load({}, NEEDED)
    assert "secret" not in str(settings.display_rows())
    assert "secret" not in repr(settings)
    assert [name for name, *_ in settings.display_rows()] == [each.name for each in PushSettings.fields()]


def test_every_setting_of_the_push_server_has_its_row_in_the_reference() -> None:
    page = (Path(__file__).parents[3] / "docs" / "reference" / "push.md").read_text()
    rows = [
        f"| `{name}` | `{variable}` | {f'`{default}`' if default else ''} | {text} |"
        for name, variable, default, text in PushSettings().display_rows()
    ]

    assert [row for row in rows if row not in page] == []
