"""`ams token` and `ams open`, against a service."""

import json
import re
import ssl
import stat
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest

from ams.core.rights import PUBLISH
from tests.cli.conftest import Ams
from tests.support.program_keys import file_token


def test_a_token_is_printed_alone_and_this_once(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    ams("members", "create", user, "--role", "publisher")
    ams("topics", "create", "jobs")

    made = ams("token", "create", "laptop", "--user", user, "--expires-in", "90d")
    token = made.stdout.strip()
    shown = ams("token", "show", "laptop", "--user", user)
    listed = ams("token", "list", "--user", user, "-o", "json")

    assert (made.returncode, len(made.stdout.split())) == (0, 1)
    assert made.stderr.startswith(f"token laptop of {user}, until 2")
    assert token not in made.stderr + shown.stdout + listed.stdout
    assert [each["name"] for each in json.loads(listed.stdout)["tokens"]] == ["laptop"]
    assert "all of the user's" in shown.stdout
    assert ams("topics", "list", AMS_TOKEN=token).returncode == 0
    assert ams("topics", "list", AMS_TOKEN="", AMS_BEARER_TOKEN=token).returncode == 0


def test_a_token_is_good_for_what_was_named(ams: Ams, project: str) -> None:
    ams("topics", "create", "readings")
    ams("subs", "create", "watering", "--topic", "readings")

    publishing = ams.json("token", "create", "publishing", "--publish", "readings")
    consuming = ams("token", "create", "consuming", "--consume", "watering").stdout.strip()

    assert publishing["rights"] == [
        {"action": action, "resource": f"projects/{project}/topics/readings"} for action in PUBLISH
    ]
    assert ams("publish", "readings", "--data", "dry", AMS_TOKEN=publishing["token"]).returncode == 0
    assert ams("pull", "watering", AMS_TOKEN=publishing["token"]).returncode == 3
    assert "dry" in ams("pull", "watering", "--ack", AMS_TOKEN=consuming).stdout


def test_a_revoked_token_opens_nothing(ams: Ams, project: str) -> None:
    token = ams("token", "create", f"{project}-t").stdout.strip()

    revoked = ams("token", "revoke", f"{project}-t")

    assert revoked.stderr.startswith(f"token {project}-t of ")
    refused = ams("projects", "show", project, AMS_TOKEN="", AMS_BEARER_TOKEN=token)
    assert refused.returncode == 3
    assert ams("token", "revoke", f"{project}-t").returncode == 4


def test_a_token_goes_to_a_file_and_not_out(ams: Ams, project: str, tmp_path: Path) -> None:
    made = ams("token", "create", f"{project}-f", "--to-file", "my.token")
    token = (tmp_path / "my.token").read_text().strip()

    assert stat.S_IMODE((tmp_path / "my.token").stat().st_mode) == 0o600
    assert token not in made.stdout + made.stderr
    environment = {"AMS_TOKEN": "", "AMS_BEARER_TOKEN_FILE": "my.token"}
    assert ams("projects", "show", project, **environment).returncode == 0
    nowhere = ams("token", "create", f"{project}-g", "--to-file", "nowhere/my.token")
    assert nowhere.returncode == 2
    assert ams("token", "show", f"{project}-g").returncode == 4


def test_a_key_goes_to_a_file_of_googles_form_and_its_public_half_alone_to_the_service(
    ams: Ams, project: str, tmp_path: Path
) -> None:
    made = ams(
        "token", "create", "robot", "--right", f"projects:show=projects/{project}", "--google-file", "robot.json"
    )
    shown = ams.json("token", "show", "robot")
    listed = ams("token", "list")

    said = json.loads((tmp_path / "robot.json").read_text())
    assert stat.S_IMODE((tmp_path / "robot.json").stat().st_mode) == 0o600
    assert (said["type"], said["project_id"]) == ("service_account", project)
    assert (said["private_key_id"], said["client_email"]) == (shown["key_id"], shown["client_email"])
    assert shown["key_id"] in made.stdout
    assert shown["key_id"][:12] in listed.stdout
    assert "PRIVATE" not in made.stdout + made.stderr
    assert made.stderr == "the key is in robot.json, for GOOGLE_APPLICATION_CREDENTIALS of programs\n"
    assert ams("token", "revoke", "robot").returncode == 0
    assert ams("token", "create", "robot", "--google-file", "new.json", AMS_PROJECT="").returncode == 2
    assert not (tmp_path / "new.json").exists()


def test_what_a_program_signs_with_its_file_logs_in_until_it_is_revoked(ams: Ams, project: str, tmp_path: Path) -> None:
    pytest.importorskip("google.oauth2.service_account")
    name = f"{project}-robot"
    ams("token", "create", name, "--google-file", "robot.json")
    token = file_token(json.loads((tmp_path / "robot.json").read_text()))
    environment = {"AMS_TOKEN": "", "AMS_BEARER_TOKEN": token}

    assert ams("projects", "show", project, **environment).returncode == 0
    assert ams("topics", "create", "jobs", **environment).returncode == 0
    assert ams("token", "revoke", name).returncode == 0
    refused = ams("projects", "show", project, **environment)
    assert refused.returncode == 3
    assert "it was revoked" in refused.stderr


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("--expires-in soon", 2),
        ("--expires-in 0.5s", 2),
        ("--expires-on tomorrow", 2),
        ("--expires-in 1d --expires-on 2030-01-01", 2),
        ("--expires-on 2001-01-01", 1),
        ("--right publish", 2),
        ("--right no:thing=*", 1),
        ("--publish a/b", 2),
        ("--google-file robot.json", 2),
        ("--google-file nowhere/robot.json", 2),
        ("--google-file new.json --to-file new.token", 2),
        ("--google-file new.json --right no:thing=*", 1),
    ],
)
def test_a_mistake_makes_no_token_and_no_file(ams: Ams, project: str, tmp_path: Path, words: str, code: int) -> None:
    (tmp_path / "robot.json").write_text("mine")

    assert ams("token", "create", f"{project}-x", *words.split()).returncode == code

    assert ams("token", "show", f"{project}-x").returncode == 4
    assert (tmp_path / "robot.json").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [tmp_path / "robot.json"]


def test_a_token_that_is_not_shown_is_said_with_the_way_out(ams: Ams, project: str) -> None:
    user = f"{project}-hidden"
    ams("users", "create", user)
    reduced = ams("token", "create", f"{project}-reader", "--right", "users:show=*").stdout.strip()

    shown = ams("admin", "tokens", "show", user, AMS_TOKEN=reduced)

    assert shown.returncode == 0
    assert "\ntoken " not in shown.stdout
    assert shown.stderr.endswith(f"for a new one: ams admin tokens refresh {user}\n")


def test_an_address_holds_a_brief_token_in_its_fragment(ams: Ams, project: str, environment: dict[str, str]) -> None:
    ran = ams("open", "--print", "--expires-in", "30m")

    address = urlsplit(ran.stdout.strip())
    login = parse_qs(address.fragment)
    assert (address.path, address.query, login["project"]) == ("/console/", "", [project])
    endpoint = environment["AMS_ENDPOINT"]
    trusted = ssl.create_default_context(cafile=environment["AMS_CA"])
    headers = {"x-api-key": login["token"][0]}
    found = httpx.get(f"{endpoint}/v1/users/profile", headers=headers, verify=trusted, trust_env=False)
    assert found.status_code == 200
    name = re.search(r"ams token revoke (console-[0-9a-f]+)", ran.stderr)
    assert name is not None
    assert login["name"] == [name[1]]
    shown = ams("token", "list", "-o", "json").stdout
    assert name[1] in shown
    assert login["token"][0] not in shown
