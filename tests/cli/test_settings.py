"""Settings, profiles, and services as they begin; data folders moved, backed up, checked, and given a new key."""

import asyncio
import json
import stat
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.app.wiring import service
from ams.cli.exit_codes import Usage
from ams.cli.profiles import write_profiles
from ams.client.connection import KEYS, Profiles, read_profiles
from ams.core.settings import Bytes, Settings
from ams.core.supervisor import Supervisor
from ams.storage.folder import Folder
from tests.app.moving.lines import line, whole_export, write_lines
from tests.cli.conftest import Ams
from tests.support.use_cases import open_use_cases


def test_they_are_listed_as_they_are_in_effect_but_for_secrets(offline_ams: Ams, tmp_path: Path) -> None:
    (tmp_path / "ams.toml").write_text('port = 443\nhost = "192.0.2.7"\nservice_token = "s3cret"\n')

    listed = offline_ams.json("settings", "--config", "ams.toml", AMS_HOST="::1")

    assert offline_ams.json("settings", AMS_HOST="::1", AMS_CONFIG="ams.toml") == listed
    rows = {row["name"]: row for row in listed}
    shown = {name: (rows[name]["value"], rows[name]["default"]) for name in ("port", "host", "service_token")}
    assert shown == {"port": ("443", "8080"), "host": ("::1", "127.0.0.1"), "service_token": ("***", "")}
    assert (rows["push_ca_file"]["variable"], rows["push_ca_file"]["flag"]) == ("AMS_PUSH_CA_FILE", "--push-ca-file")


def test_the_reference_s_settings_go_to_stdout_or_a_new_private_file(offline_ams: Ams, tmp_path: Path) -> None:
    given = {"port": 443, "service_token": "s3cret", "store_host": "store.example"}
    (tmp_path / "config.json").write_text(json.dumps(given))
    made = tmp_path / "ams.toml"

    code, out, err = offline_ams("settings", "import", "config.json")
    to_file = ("settings", "import", "config.json", "--output", "ams.toml")
    written, *said = offline_ams(*to_file)

    assert (code, written) == (0, 0)
    assert tomllib.loads(out) == {"host": "0.0.0.0", "port": 443, "service_token": "s3cret"}
    first, second = err.splitlines()
    assert first == "ams: store_host has no counterpart: users, projects and topics are in the data folder"
    assert second.startswith("ams: certificate and certificate_key are not given, ")
    assert stat.S_IMODE(made.stat().st_mode) == 0o600
    assert tomllib.loads(made.read_text())["port"] == 443
    assert "s3cret" not in "".join(said)
    made.write_text("port = 1\n")
    assert offline_ams(*to_file) == (2, "", "ams: ams.toml: File exists\n")
    assert made.read_text() == "port = 1\n"


@pytest.mark.parametrize(("content", "reason"), [
    (None, "No such file or directory"), (b"{", "this is no JSON: "), (b"\xff", "'utf-8' codec can't decode"),
    (b'{"port": "x"}', "port in the imported settings: 'x' is not a good value"),
])  # fmt: skip
def test_what_cannot_be_read_is_one_line(content: bytes | None, reason: str, offline_ams: Ams, tmp_path: Path) -> None:
    if content is not None:
        (tmp_path / "config.json").write_bytes(content)

    code, out, err = offline_ams("settings", "import", "config.json")

    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(f"ams: config.json: {reason}")


PORTS = ("--port", "0", "--ops-port", "0")


@pytest.fixture(autouse=True)
def _as_logs_are(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the logs of this process: other tests read them."""
    monkeypatch.setattr("ams.core.telemetry.configure_logs", lambda *_: None)


@pytest.mark.parametrize(("arguments", "reason"), [
    (["--port", "many"], "--port: 'many' is not a good value; "),
    (["--config", "nowhere.toml"], "settings file nowhere.toml: "),
    (["--roles-file", "nowhere.toml"], "roles file nowhere.toml: "),
    (["--cert", "nowhere.pem", "--key", "nowhere.key"], "certificate nowhere.pem with key nowhere.key: "),
    (["--push-enabled", "--push-ca-file", "nowhere.pem"], "push_ca_file nowhere.pem: "),
])  # fmt: skip
def test_a_useless_argument_is_a_mistake_of_usage(offline_ams: Ams, arguments: list[str], reason: str) -> None:
    code, _, err = offline_ams("serve", "--data", "data", *PORTS, "--min-free-bytes", "0", *arguments)
    [said] = [line for line in err.splitlines() if line.startswith("ams: ")]
    assert code == 2
    assert said.startswith(f"ams: {reason}")


@pytest.mark.parametrize(("command", "absent", "extra"), [
    (["serve"], "sqlalchemy", "service"), (["authn", "serve"], "sqlalchemy", "service"),
    (["push"], "sqlalchemy", "service"), (["push"], "google.protobuf", "push"),
])  # fmt: skip
def test_what_is_missing_is_told_by_what_to_install(
    command: list[str], absent: str, extra: str, offline_ams: Ams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, absent, None)
    said = f"ams: {absent} not installed; pip install 'argo-messaging[{extra}]' brings all it needs\n"
    assert offline_ams(*command) == (2, "", said)


TOKEN = "0123456789abcdef"

names = st.from_regex(r"[A-Za-z0-9_-]{1,10}", fullmatch=True).filter(lambda name: name != "current")
values = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
tables = st.dictionaries(names, st.dictionaries(st.sampled_from(KEYS), values))


@given(tables=tables, current=st.none() | names)
def test_what_is_written_is_read_again(
    tmp_path_factory: pytest.TempPathFactory, tables: dict[str, dict[str, str]], current: str | None
) -> None:
    path = str(tmp_path_factory.getbasetemp() / "profiles.toml")
    profiles = Profiles(tables, current)
    write_profiles(path, profiles)
    assert read_profiles(path) == profiles


def test_a_profile_is_set_used_listed_and_removed(ams: Ams, environment: dict[str, str], tmp_path: Path) -> None:
    where = {"AMS_ENDPOINT": "", "AMS_TOKEN": "", "AMS_CA": "", "AMS_PROJECT": "", "XDG_CONFIG_HOME": str(tmp_path)}
    kept = tmp_path / "ams" / "site.token"

    endpoint, ca = environment["AMS_ENDPOINT"], environment["AMS_CA"]
    made = ams(*("profile", "set", "site", "--endpoint", endpoint, "--ca", ca, "--token-stdin"),
               stdin=environment["AMS_TOKEN"], **where)  # fmt: skip
    assert made.returncode == 0, made.stderr
    assert ams("projects", "list", **where).returncode == 2
    assert ams("profile", "use", "site", **where).returncode == 0
    assert ams("projects", "list", **where).returncode == 0
    [listed] = json.loads(ams("profile", "list", "-o", "json", **where).stdout)["profiles"]
    assert (listed["name"], listed["endpoint"], listed["token"]) == ("site", endpoint, "site.token")
    assert "*  site" in " ".join(ams("profile", "list", **where).stdout.splitlines())
    assert ams("profile", "set", "site", "-p", "garden", **where).returncode == 0
    assert "garden" in ams("profile", "show", "site", **where).stdout

    for path in (kept, tmp_path / "ams" / "profiles.toml"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert ams("profile", "remove", "site", **where).returncode == 0
    assert not kept.exists()
    assert json.loads(ams("profile", "list", "-o", "json", **where).stdout) == {"profiles": []}


def test_no_token_is_printed(ams: Ams, tmp_path: Path) -> None:
    where = {"XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "ams").mkdir()
    (tmp_path / "ams" / "profiles.toml").write_text(f'[old]\ntoken = "{TOKEN}"\n')

    for words in ("set site --token-stdin", "list", "show old", "show site -o json"):
        ran = ams("profile", *words.split(), stdin=TOKEN, **where)
        assert ran.returncode == 0, ran.stderr
        assert TOKEN not in ran.stdout + ran.stderr


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "ams").write_text("")
    with pytest.raises(Usage, match="profiles.toml: "):
        write_profiles(str(tmp_path / "ams" / "profiles.toml"), Profiles({}))


def test_a_profile_has_a_token_of_one_kind_and_what_is_emptied_goes(ams: Ams, tmp_path: Path) -> None:
    path = tmp_path / ".config" / "ams" / "profiles.toml"
    path.parent.mkdir(parents=True)
    path.write_text(f'[site]\ntoken = "{TOKEN}"\nproject = "p"\n')

    for kind in ("bearer_token_file", "token_file"):
        ran = ams("profile", "set", "site", f"--{kind.replace('_', '-')}", "my.token", "--project", "")
        assert ran.returncode == 0, ran.stderr
        assert read_profiles(str(path)).tables == {"site": {kind: str(tmp_path / "my.token")}}
    ams("profile", "set", "site", "--authn-endpoint", "authn.example:8443", "--authn-key-file", "authn.key")
    assert "https://authn.example:8443" in ams("profile", "show", "site").stdout
    assert f'authn_key_file = "{tmp_path}/authn.key"' in path.read_text()


USERS_TOKEN = "a-token-nobody-may-see"
LINES = whole_export(
    line("log", project="P", topic="T"), *(line("message", offset=number, time=1, data="") for number in range(3)),
    line("user", name="u", token=USERS_TOKEN), line("project", name="P"), line("topic", project="P", name="T"),
)  # fmt: skip
COUNTS = "log            1\nmessage        3\nuser           1\nproject        1\ntopic          1\n"


@pytest.fixture
def file(tmp_path: Path) -> str:
    return write_lines(tmp_path / "export.jsonl", LINES)


@pytest.fixture
async def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "ams-data").write_text("1\n")
    (folder / "token.key").write_text("0" * 64)
    async with open_use_cases(folder) as use_cases:
        await use_cases.publish(20)
    return folder


def test_an_export_is_checked_imported_and_exported_again(ams: Ams, file: str, tmp_path: Path) -> None:
    checked = ams("import", file, "--check", "--data", "data")
    assert (checked.returncode, checked.stdout) == (0, COUNTS + f"{file} can be imported.\n")
    assert not (tmp_path / "data").exists()

    imported = ams("import", file, "--data", "data")
    exported = ams("export", "again.jsonl.gz", "--data", "data")
    plain = ams("export", "plain.jsonl", "--data", "data", "--without-secrets")

    assert imported.stdout == COUNTS + "All of it is there; start the service.\n"
    assert "Every token stands in it in clear: guard it" in exported.stdout
    assert (tmp_path / "again.jsonl.gz").stat().st_mode & 0o777 == 0o600
    assert "Named tokens are not in it and have to be made anew;" in plain.stdout
    said = imported.stdout + imported.stderr + exported.stdout + exported.stderr
    assert USERS_TOKEN not in said + (tmp_path / "plain.jsonl").read_text()


def test_an_installation_goes_through_a_pipe(ams: Ams, file: str) -> None:
    counts = ams.json("import", file, "--data", "one")
    exported = ams("export", "-", "--data", "one")
    imported = ams("import", "-", "--data", "two", stdin=exported.stdout)

    assert counts == {"log": 1, "message": 3, "user": 1, "project": 1, "topic": 1}
    assert "is whole" in exported.stderr
    assert imported.returncode == 0, imported.stderr
    assert ams("export", "-", "--data", "two").stdout.splitlines()[1:] == exported.stdout.splitlines()[1:]


def test_what_cannot_be_used_is_refused_in_one_line(ams: Ams, data: Path, file: str, tmp_path: Path) -> None:
    bad = write_lines(tmp_path / "bad.jsonl", LINES[:-1])
    Folder.take(str(tmp_path / "node")).release()
    (tmp_path / "foreign").mkdir()
    assert ams("import", file, "--data", "full").returncode == 0
    taken = Folder.take(str(tmp_path / "taken"))

    for words, reason in (
        (("import", bad, "--data", "new"), f"{bad}: the last line is missing: the file was cut"),
        (("import", file, "--data", "full"), "there are users or topics already: import into a new installation"),
        (("import", file, "--data", "taken"), "is in use by another process"),
        (("export", "other", "--data", "taken"), "is in use by another process"),
        (("backup", str(data / "b"), "--data", str(data)), f"{data}/b is within the data folder; choose a folder"),
        (("check", "taken"), "data folder taken is in use; stop the service, or check a copy"),
        (("check", "foreign"), "foreign is not a data folder"),
        (("check", "node"), "node holds keys only: what its service keeps is in Kafka and PostgreSQL"),
    ):
        ran = ams(*words)
        assert (ran.returncode, ran.stdout) == (1, "")
        assert ran.stderr.startswith("ams: ")
        assert reason in ran.stderr
        assert ran.stderr.count("\n") == 1
    taken.release()
    assert not (tmp_path / "new").exists()


def test_a_backup_and_its_restore_say_whether_the_key_is_in_it(ams: Ams, data: Path) -> None:
    whole = ams("backup", "whole", "--data", str(data))
    taken = ams("backup", "b", "--without-key", AMS_DATA=str(data))
    restored = ams("restore", "b", "--data", "new")
    told = ams.json("backup", "again", "--data", str(data))

    assert whole.stdout.splitlines()[1] == "It holds the token key: any person with this file can read all tokens."
    assert taken.stdout.splitlines()[1].startswith("The token key is not in it: keep the key apart")
    assert restored.stdout.splitlines()[1].startswith("The token key is not in it: put token.key there or set AMS_")
    assert told.keys() == {"folder", "taken", "files", "bytes", "token_key"}


def test_a_sound_folder_is_counted_and_damage_is_named_by_a_check_and_by_a_restore(ams: Ams, data: Path) -> None:
    report = ams.json("check", "data")
    (segment,) = (data / "log").glob("7d/*.log")
    content = bytearray(segment.read_bytes())
    content[content.index(b'"n":"7"') + 6] ^= 1
    segment.write_bytes(content)
    checked = ams("check", "data")
    ams("backup", "b", "--data", "data")
    restored = ams("restore", "b", "--data", "new")

    assert (report["messages"], report["topics"], report["problems"]) == (20, 1, [])
    assert checked.returncode == 1
    assert f"damaged    {segment} at " in checked.stdout
    assert restored.returncode == 1
    assert "was restored, but what was backed up was damaged already" in restored.stderr

    (image,) = (data / "log" / "cursors").glob("*.img")
    image.write_bytes(b"no image at all" * 100)
    checked = ams("check", "data")
    assert checked.returncode == 1
    assert f"{image.name} is not a whole image of cursors" in checked.stdout


async def test_a_rotation_says_where_the_key_is_and_what_old_backups_need(ams: Ams, tmp_path: Path) -> None:
    data = str(tmp_path / "data")
    async with service(Settings(data=data, min_free_bytes=Bytes(0), reserve_bytes=Bytes(0)), Supervisor()):
        pass

    ran = await asyncio.to_thread(ams, "admin", "rotate-key", "--data", data)
    told = await asyncio.to_thread(ams.json, "admin", "rotate-key", AMS_DATA=data)
    refused = await asyncio.to_thread(ams, "admin", "rotate-key", "--data", data, AMS_TOKEN_KEY="ab" * 32)

    assert ran.returncode == 0, ran.stderr
    assert ran.stdout == (
        "Encrypted anew: 2 tokens; they stay valid.\n"
        f"The new key is in {data}/token.key. Backups taken before need the old key.\n"
    )
    assert told == {"tokens": 2, "file": f"{data}/token.key"}
    assert refused.returncode == 2
    assert "AMS_TOKEN_KEY is set, so the key is yours to keep: give the new one as AMS_NEW_TOKEN_KEY" in refused.stderr
