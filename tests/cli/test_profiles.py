import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.cli.exits import Usage
from ams.cli.profiles import write_profiles
from ams.client.connection import KEYS, Profiles, read_profiles
from tests.cli.conftest import Ams

TOKEN = "0123456789abcdef"

names = st.from_regex(r"[A-Za-z0-9_-]{1,10}", fullmatch=True).filter(lambda name: name != "current")
values = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
tables = st.dictionaries(names, st.dictionaries(st.sampled_from(KEYS), values))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


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
    made = ams(
        *("profile", "set", "site", "--endpoint", endpoint, "--ca", ca, "--token-stdin"),
        stdin=environment["AMS_TOKEN"],
        **where,
    )
    assert made.returncode == 0, made.stderr
    assert ams("projects", "list", **where).returncode == 2
    assert ams("profile", "use", "site", **where).returncode == 0
    assert ams("projects", "list", **where).returncode == 0
    [listed] = json.loads(ams("profile", "list", "-o", "json", **where).stdout)["profiles"]
    assert (listed["name"], listed["endpoint"], listed["token"]) == ("site", endpoint, "site.token")
    assert "*  site" in " ".join(ams("profile", "list", **where).stdout.splitlines())
    assert ams("profile", "set", "site", "-p", "garden", **where).returncode == 0
    assert "garden" in ams("profile", "show", "site", **where).stdout

    assert (mode(kept), mode(tmp_path / "ams" / "profiles.toml")) == (0o600, 0o600)
    assert ams("profile", "remove", "site", **where).returncode == 0
    assert not kept.exists()
    assert json.loads(ams("profile", "list", "-o", "json", **where).stdout) == {"profiles": []}


def test_no_token_is_printed(ams: Ams, tmp_path: Path) -> None:
    where = {"XDG_CONFIG_HOME": str(tmp_path)}
    (tmp_path / "ams").mkdir()
    (tmp_path / "ams" / "profiles.toml").write_text(f'[old]\ntoken = "{TOKEN}"\n')

    said = [
        ams("profile", "set", "site", "--token-stdin", stdin=TOKEN, **where),
        ams("profile", "list", **where),
        ams("profile", "show", "old", **where),
        ams("profile", "show", "site", "-o", "json", **where),
    ]

    for ran in said:
        assert ran.returncode == 0, ran.stderr
        assert TOKEN not in ran.stdout + ran.stderr


def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "ams").write_text("")

    with pytest.raises(Usage, match="profiles.toml: "):
        write_profiles(str(tmp_path / "ams" / "profiles.toml"), Profiles({}))


def test_a_profile_names_the_certificate_service_too(ams: Ams, tmp_path: Path) -> None:
    (tmp_path / "authn.key").write_text("k\n")
    ams("profile", "set", "site", "--authn-endpoint", "authn.example:8443", "--authn-key-file", "authn.key")

    shown = ams("profile", "show", "site").stdout
    text = (tmp_path / ".config" / "ams" / "profiles.toml").read_text()

    assert "https://authn.example:8443" in shown
    assert f'authn_key_file = "{tmp_path}/authn.key"' in text


def test_a_profile_has_a_token_of_one_kind_and_what_is_emptied_goes(ams: Ams, tmp_path: Path) -> None:
    path = tmp_path / ".config" / "ams" / "profiles.toml"
    path.parent.mkdir(parents=True)
    path.write_text(f'[site]\ntoken = "{TOKEN}"\nproject = "p"\n')

    for kind in ("bearer_token_file", "token_file"):
        ran = ams("profile", "set", "site", f"--{kind.replace('_', '-')}", "my.token", "--project", "")
        assert ran.returncode == 0, ran.stderr
        assert read_profiles(str(path)).tables == {"site": {kind: str(tmp_path / "my.token")}}
