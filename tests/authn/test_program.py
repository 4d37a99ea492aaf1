"""`ams authn serve`: settings, also those of the reference (contract 11); a first start, its folder, its end."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import ssl
import tomllib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from ams.authn.program import AuthnFolder, RunningAuthn, connection_limit, running
from ams.authn.settings import NO_MONGO_NOTE, NO_OIDC_NOTE, AuthnSettings, convert_settings, import_authn_settings
from ams.core.errors import BadSettings, Unusable
from ams.core.settings import Seconds
from ams.core.supervisor import Supervisor
from ams.storage.folder import Folder
from tests.support.documents import write_file
from tests.support.service import live_certificate_service
from tests.support.waiting import PATIENCE_SECONDS, wait_until

NEEDED = {"AMS_AUTHN_CERT": "c.pem", "AMS_AUTHN_CERT_KEY": "c.key", "AMS_AUTHN_CLIENT_CA": "authorities"}
JSON: dict[str, Any] = {
    "service_port": 8081, "mongo_host": "localhost", "mongo_db": "argo_auth",
    "certificate_authorities": "/etc/grid-security/certificates", "certificate": "c.pem", "certificate_key": "c.key",
    "service_token": "s3cret", "supported_auth_types": ["x509", "oidc"],
    "supported_auth_methods": ["api-key", "headers"], "supported_service_types": ["ams", "web-api", "custom"],
    "service_types_paths": {"ams": "/v1/users:byUUID/{{identifier}}}"},
    "service_types_retrieval_fields": {"ams": "token"}, "verify_ssl": True, "trust_unknown_cas": False,
    "verify_certificate": True, "client_cert_host_verification": True, "syslog_enabled": True,
    "server_read_timeout": 6, "server_header_read_timeout": 7, "server_write_timeout": 16, "server_idle_timeout": 61,
}  # fmt: skip


@pytest.mark.parametrize(("flags", "text"), [
    ({"port": "many"}, "--port: 'many' is not a good value"), ({"client_ca": ""}, "--client-ca is needed"),
    ({"key": ""}, "--cert and --key go together"),
    ({"tls_self_signed": True}, "either --cert and --key or --tls-self-signed"),
    ({"secrets_key": "12"}, "64 hex digits"), ({"registry": "postgresql://u:p@h/d"}, "must not hold a password"),
    ({"registry": "mongodb://h"}, "registry is sqlite or postgresql"),
    ({"service_types_paths": "[]"}, "is not a good value"),
    ({"supported_auth_methods": "kerberos"}, "supported_auth_methods is of api-key, headers"),
    ({"server_read_timeout": "0"}, "must be positive"),
    ({"fetch_allow": "nowhere"}, "fetch_allow is of networks"), ({"max_connections": "0"}, "must be positive"),
    ({"ams_endpoint": "ams.example"}, "ams_endpoint is a base URL without a user and password"),
    ({"ams_endpoint": "https://user:s3cret@ams.example"}, "https://ams.example, not https://ams.example$"),
    ({"proxy_protocol": True}, "proxy_protocol and proxies go together"),
    ({"proxies": "127.0.0.0/8"}, "proxy_protocol and proxies go together"),
    ({"proxy_header": "X"}, "proxy_header and proxy_names go together"),
    ({"proxy_header": "X", "proxy_names": "nobody"}, "no distinguished name"),
    ({"proxy_protocol": True, "proxies": "x"}, "proxies is of networks"),
    ({"proxy_protocol": True, "proxies": "::/0", "proxy_header": "X", "proxy_names": "CN=x"}, "exclude each other"),
    ({"supported_auth_types": "x509,oidc"}, "oidc is not spoken here"),
])  # fmt: skip
def test_what_cannot_be_stops_the_start(flags: dict[str, object], text: str) -> None:
    with pytest.raises(BadSettings, match=text):
        AuthnSettings.load(flags, NEEDED)


def test_the_management_key_of_clients_is_not_taken_for_the_file_of_the_servers_own() -> None:
    assert AuthnSettings.load({}, NEEDED | {"AMS_AUTHN_KEY": "a management key"}).key == "c.key"


def test_variables_that_are_no_settings_are_told() -> None:
    told: list[str] = []
    AuthnSettings.load(
        {}, NEEDED | {"AMS_AUTHN_PORTT": "1", "AMS_AUTHN_ENDPOINT": "https://h", "AMS_TOKEN": "t"}, warn=told.append
    )

    assert told == ["unknown setting AMS_AUTHN_PORTT in the environment is ignored"]


@pytest.mark.parametrize("flag", [{"trust_unknown_cas": True}, {"verify_certificate": False}, {"verify_ssl": False}])
def test_a9_what_lets_anybody_in_needs_a_switch_of_its_own(flag: dict[str, object]) -> None:
    with pytest.raises(BadSettings, match="--development"):
        AuthnSettings.load(flag, NEEDED)
    assert AuthnSettings.load(flag | {"development": True}, NEEDED).development


def test_a9_the_defaults_are_secure_and_there_is_no_default_token() -> None:
    settings = AuthnSettings.load({}, NEEDED)
    assert (settings.trust_unknown_cas, settings.verify_certificate, settings.verify_ssl) == (False, True, True)
    assert (settings.service_token, settings.revocation, settings.development) == ("", "refuse", False)


def test_a_configuration_of_the_reference_is_read_and_what_it_has_beside_settings_is_told(tmp_path: Path) -> None:
    told: list[str] = []
    settings = AuthnSettings.load({}, {}, write_file(tmp_path / "c.json", JSON | {"colour": "blue"}), warn=told.append)

    assert told == [NO_MONGO_NOTE, NO_OIDC_NOTE, "colour has no counterpart"]
    assert settings == AuthnSettings(
        host="0.0.0.0", port=8081, cert="c.pem", key="c.key", client_ca="/etc/grid-security/certificates",
        service_token="s3cret", service_types_paths=(("ams", "/v1/users:byUUID/{{identifier}}"),),
        service_types_retrieval_fields=(("ams", "token"),), client_cert_host_verification=True,
        log_facilities="console,syslog", server_read_timeout=6.0, server_header_read_timeout=7.0,
        server_write_timeout=16.0, server_idle_timeout=61.0,
    )  # fmt: skip


def test_a9_missing_switches_are_secure_and_open_ones_stop_the_start(tmp_path: Path) -> None:
    missing = {key: value for key, value in JSON.items() if not key.startswith(("verify", "trust"))}
    settings = AuthnSettings.load({}, {}, write_file(tmp_path / "c.json", missing))
    assert (settings.trust_unknown_cas, settings.verify_certificate, settings.verify_ssl) == (False, True, True)

    with pytest.raises(BadSettings, match="trust_unknown_cas = true lets anybody"):
        AuthnSettings.load({}, {}, write_file(tmp_path / "c.json", JSON | {"trust_unknown_cas": True}))


@pytest.mark.parametrize("key", [key for key in JSON if key not in ("syslog_enabled",)][:12])
def test_the_first_missing_key_is_told_in_the_words_of_the_reference(key: str) -> None:
    with pytest.raises(Unusable) as raised:
        convert_settings({name: value for name, value in JSON.items() if name != key})
    assert str(raised.value) == f"config object contains empty fields. empty value for field: {key}"


@pytest.mark.parametrize(("content", "text"), [
    ("{", "Something went wrong while marshaling the json data. Error: "),
    ("[]", "Something went wrong while marshaling the json data. Error: this is no JSON object"),
    (JSON | {"service_port": "x"}, "marshaling the json data. Error: service_port is of another type"),
    (JSON | {"service_types_paths": {"ams": 1}}, "Error: service_types_paths is of another type"),
])  # fmt: skip
def test_a_file_that_cannot_be_read_is_told_in_its_words(tmp_path: Path, content: Any, text: str) -> None:
    with pytest.raises(Unusable, match=text):
        AuthnSettings.load({}, {}, write_file(tmp_path / "c.json", content))
    with pytest.raises(Unusable, match=r"open .*none\.json: no such file or directory"):
        AuthnSettings.load({}, {}, str(tmp_path / "none.json"))


def test_a14_the_import_writes_a_file_that_serves_and_says_what_it_left_out(tmp_path: Path) -> None:
    found = import_authn_settings(json.dumps(JSON | {"colour": "blue"}))

    assert found is not None
    assert NO_OIDC_NOTE in found.notes
    assert "colour has no counterpart" in found.notes
    assert tomllib.loads(found.toml)["supported_auth_types"] == ["x509"]
    path = write_file(tmp_path / "a.toml", found.toml)
    assert AuthnSettings.load({}, {}, path) == AuthnSettings.load({}, {}, write_file(tmp_path / "c.json", JSON))


def test_a9_the_import_says_what_the_service_will_not_start_with_and_takes_no_other_file() -> None:
    found = import_authn_settings(json.dumps(JSON | {"trust_unknown_cas": True, "verify_certificate": False}))
    assert found is not None
    assert sum("only with development = true" in note for note in found.notes) == 2
    assert [import_authn_settings(text) for text in ("{", "[]", '{"port": 443, "store_host": "x"}')] == [None] * 3


def test_secrets_are_not_shown() -> None:
    settings = AuthnSettings.load({"service_token": "s3cret", "registry_password": "s3cret"}, NEEDED)
    assert "s3cret" not in repr(settings)
    assert "s3cret" not in str(settings.display_rows())


def test_every_setting_is_in_the_reference() -> None:
    text = Path("docs/reference/authn.md").read_text(encoding="utf-8")

    for name, variable, value, told in AuthnSettings().display_rows():
        default = f"`{value}`" if value else ""
        assert f"| `{name}` | `{variable}` | {default} | {told} |" in text
    assert len(AuthnSettings.fields()) == sum(x.startswith("| `") and "`AMS_AUTHN_" in x for x in text.splitlines())


NEW = {"authn.key": 0o600, "authn.seal": 0o600, "authn.lock": 0o600, "authn-audit.jsonl": 0o600}


def get_page(url: str, ca: str, **headers: str) -> tuple[int, str]:
    secure = ssl.create_default_context(cafile=ca)
    answer = httpx.get(url, headers=headers, verify=secure, trust_env=False, timeout=60)
    return answer.status_code, answer.text


@contextlib.asynccontextmanager
async def serve_folder(folder: Path, **more: object) -> AsyncIterator[tuple[RunningAuthn, str]]:
    """Run a service in this process, on free ports with its own certificate; yields it, and its CA's file."""
    usual = {"data": str(folder / "data"), "port": 0, "ops_port": 0, "tls_self_signed": True, "client_ca": str(folder)}
    settings = AuthnSettings(**usual | more)  # type: ignore[arg-type]  # tests name settings freely
    async with running(settings, Supervisor()) as run:
        yield run, str(folder / "data" / "authn-tls" / "ca.pem")


def test_a9_a_first_start_makes_files_and_serves(tmp_path: Path) -> None:
    data, errors, authorities = tmp_path / "data", tmp_path / "data.stderr", tmp_path / "ca"
    authorities.mkdir()
    with live_certificate_service(data, "--log-level", "debug", client_ca=authorities) as ports:
        key, ca, process = ports.key, str(data / "authn-tls" / "ca.pem"), ports.process
        assert len(key) == 64
        assert {name: os.stat(data / name).st_mode & 0o777 for name in NEW} == NEW
        assert os.stat(data).st_mode & 0o777 == 0o700
        for path, given, status in (
            ("service-types", {"x-api-key": key}, 200), ("service-types", {"x-api-key": "another"}, 401),
            (f"bindings?key={key}", {}, 200),
        ):  # fmt: skip
            assert get_page(f"https://localhost:{ports.api}/v1/{path}", ca, **given)[0] == status

        process.send_signal(signal.SIGHUP)
        wait_until(lambda: "certificate.loaded" in errors.read_text(), process=process)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
    assert key not in errors.read_text() + (data / "authn-audit.jsonl").read_text()


async def test_a20_the_operations_port_tells_logins_and_handshakes(tmp_path: Path) -> None:
    async with serve_folder(tmp_path) as (run, ca):
        login = f"{run.base_url}/v1/service-types/ams/hosts/ams.example:authx509"
        assert (await asyncio.to_thread(get_page, login, ca))[0] == 400
        async with httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client:
            said = (await client.get(f"{run.operations_url}/metrics")).text

    assert 'ams_authn_logins_total{result="refused"} 1.0' in said
    assert "ams_authn_handshakes_failed_total" in said


async def test_a_data_folder_has_a_reserve_and_a_disk_that_is_nearly_full_is_told_and_no_reason_to_go(tmp_path: Path):
    ready = []
    for least in (0, 2**62):
        limits = {"min_free_bytes": least, "reserve_bytes": 123_456}
        async with (serve_folder(tmp_path, **limits) as (run, _),
                    httpx.AsyncClient(trust_env=False, timeout=PATIENCE_SECONDS) as client):  # fmt: skip
            ready.append(await client.get(f"{run.operations_url}/readyz"))
            said = (await client.get(f"{run.operations_url}/metrics")).text
        assert f"ams_authn_changes_refused {float(least > 0)}" in said
    assert [(each.status_code, each.text.split(":")[0]) for each in ready] == [
        (200, "ok\n"), (200, "ok; changes are refused"),
    ]  # fmt: skip
    assert (tmp_path / "data" / "authn-reserve").stat().st_size == 123_456


async def test_a18_whoever_asks_is_answered_before_the_connection_is_cut(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # an AMS that takes connections and says nothing
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        async with serve_folder(tmp_path, ams_endpoint=endpoint, server_write_timeout=Seconds(0.5)) as (run, ca):
            status, body = await asyncio.to_thread(
                get_page, f"{run.base_url}/v1/bindings", ca, authorization="bearer x"
            )

    assert (status, json.loads(body)["error"]["status"]) == (504, "GATEWAY TIMEOUT")


@pytest.mark.parametrize(("open_files", "most"), [(20_000, 5_000), (1024, 512), (100, 50), (1, 1)])
def test_a20_connections_leave_files_for_all_else(monkeypatch: pytest.MonkeyPatch, open_files: int, most: int) -> None:
    """Without free file descriptors no service can be reached, and the audit log cannot be written."""
    monkeypatch.setattr("resource.getrlimit", lambda _: (open_files, open_files))
    assert connection_limit(AuthnSettings(max_connections=5_000)) == most


@pytest.mark.parametrize(
    ("setting", "text"), [("client_ca", "client_ca .*none: No such file"), ("ams_ca", "ams_ca .*none: No such file")]
)
async def test_a_missing_folder_or_file_of_cas_stops_the_start(tmp_path: Path, setting: str, text: str) -> None:
    given = {"ams_endpoint": "https://127.0.0.1:1", setting: str(tmp_path / "none")}
    with pytest.raises(BadSettings, match=text):
        async with serve_folder(tmp_path, **given):
            pass


def test_a_folder_is_taken_by_one_and_also_by_ams(tmp_path: Path) -> None:
    for first, second in ((AuthnFolder, Folder), (Folder, AuthnFolder)):
        data = str(tmp_path / first.__name__)
        one, other = first.take(data), second.take(data)
        with pytest.raises(Unusable, match="in use by another"):
            AuthnFolder.take(data)
        one.release()
        other.release()


def test_a_management_key_is_kept_and_an_empty_one_is_not_taken(tmp_path: Path) -> None:
    folder = AuthnFolder.take(str(tmp_path / "data"))
    made = folder.management_key("")

    assert folder.management_key("") == made
    assert folder.management_key("given") == "given"
    Path(folder.key).write_text("")
    with pytest.raises(Unusable, match="is empty"):
        folder.management_key("")
    folder.release()
