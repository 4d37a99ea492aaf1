"""`ams token` and `ams open` against a service; rights as text; and files for secrets that are shown once."""

import json
import re
import stat
from collections.abc import Callable
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.cli import rights
from ams.cli.exit_codes import Usage
from ams.cli.secret_file import secret_file
from ams.client import wire
from ams.core.rights import CONSUME, PUBLISH, validate
from tests.cli.conftest import Ams


def test_a_token_is_printed_alone_and_this_once(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    ams("members", "create", user, "--role", "publisher")
    ams("topics", "create", "jobs")

    made = ams("token", "create", "laptop", "--user", user, "--expires-in", "90d")
    token = made.stdout.strip()
    format_rights = ams("token", "show", "laptop", "--user", user)
    listed = ams("token", "list", "--user", user, "-o", "json")

    assert (made.returncode, len(made.stdout.split())) == (0, 1)
    assert made.stderr.startswith(f"token laptop of {user}, until 2")
    assert token not in made.stderr + format_rights.stdout + listed.stdout
    assert [each["name"] for each in json.loads(listed.stdout)["tokens"]] == ["laptop"]
    assert "all of the user's" in format_rights.stdout
    assert ams("topics", "list", AMS_TOKEN=token).returncode == 0
    assert ams("topics", "list", AMS_TOKEN="", AMS_BEARER_TOKEN=token).returncode == 0
    assert ams("token", "revoke", "laptop", "--user", user).stderr.startswith(f"token laptop of {user}")
    assert ams("topics", "list", AMS_TOKEN="", AMS_BEARER_TOKEN=token).returncode == 3
    assert ams("token", "revoke", "laptop", "--user", user).returncode == 4


def test_a_token_is_good_for_what_was_named(ams: Ams, project: str) -> None:
    ams("topics", "create", "readings")
    ams("subs", "create", "watering", "--topic", "readings")

    publishing = ams.json("token", "create", "publishing", "--publish", "readings")
    consuming = ams("token", "create", "consuming", "--consume", "watering").stdout.strip()

    assert publishing["rights"] == [{"action": a, "resource": f"projects/{project}/topics/readings"} for a in PUBLISH]
    assert ams("publish", "readings", "--data", "dry", AMS_TOKEN=publishing["token"]).returncode == 0
    assert ams("pull", "watering", AMS_TOKEN=publishing["token"]).returncode == 3
    assert "dry" in ams("pull", "watering", "--ack", AMS_TOKEN=consuming).stdout


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


def test_a_key_goes_to_a_google_file_and_its_public_half_to_the_service(ams: Ams, project: str, tmp_path: Path) -> None:
    made = ams(
        "token", "create", "robot", "--right", f"projects:show=projects/{project}", "--google-file", "robot.json"
    )
    format_rights = ams.json("token", "show", "robot")
    listed = ams("token", "list")

    said = json.loads((tmp_path / "robot.json").read_text())
    assert stat.S_IMODE((tmp_path / "robot.json").stat().st_mode) == 0o600
    assert (said["type"], said["project_id"]) == ("service_account", project)
    assert (said["private_key_id"], said["client_email"]) == (format_rights["key_id"], format_rights["client_email"])
    assert format_rights["key_id"] in made.stdout
    assert format_rights["key_id"][:12] in listed.stdout
    assert "PRIVATE" not in made.stdout + made.stderr
    assert made.stderr == "the key is in robot.json, for GOOGLE_APPLICATION_CREDENTIALS of programs\n"
    assert ams("token", "revoke", "robot").returncode == 0
    assert ams("token", "create", "robot", "--google-file", "new.json", AMS_PROJECT="").returncode == 2
    assert not (tmp_path / "new.json").exists()


@pytest.mark.parametrize(("words", "code"), [
    ("--expires-in soon", 2), ("--expires-on tomorrow", 2), ("--expires-in 1d --expires-on 2030-01-01", 2),
    ("--expires-on 2001-01-01", 1), ("--right publish", 2), ("--right no:thing=*", 1),
    ("--google-file robot.json", 2), ("--google-file new.json --to-file new.token", 2),
    ("--google-file new.json --right no:thing=*", 1),
])  # fmt: skip
def test_a_mistake_makes_no_token_and_no_file(ams: Ams, project: str, tmp_path: Path, words: str, code: int) -> None:
    (tmp_path / "robot.json").write_text("mine")

    assert ams("token", "create", f"{project}-x", *words.split()).returncode == code

    assert ams("token", "show", f"{project}-x").returncode == 4
    assert (tmp_path / "robot.json").read_text() == "mine"
    assert list(tmp_path.iterdir()) == [tmp_path / "robot.json"]


def test_an_address_holds_a_brief_token_in_its_fragment(ams: Ams, project: str) -> None:
    ran = ams("open", "--print", "--expires-in", "30m")

    address = urlsplit(ran.stdout.strip())
    login = parse_qs(address.fragment)
    assert (address.path, address.query, login["project"]) == ("/console/", "", [project])
    assert ams("projects", "show", project, AMS_TOKEN=login["token"][0]).returncode == 0
    name = re.search(r"ams token revoke (console-[0-9a-f]+)", ran.stderr)
    assert name is not None
    assert login["name"] == [name[1]]
    format_rights = ams("token", "list", "-o", "json").stdout
    assert name[1] in format_rights
    assert login["token"][0] not in format_rights


def test_a_secret_replaces_a_private_file_only_when_it_came(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "token"
    path.write_text("old")
    path.chmod(0o644)

    with pytest.raises(RuntimeError), secret_file(str(path)):
        raise RuntimeError
    assert path.read_text() == "old"
    with secret_file(str(path)) as keep:
        keep("new")

    assert path.read_text() == "new\n"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [path]
    monkeypatch.chdir(tmp_path)
    with secret_file("token") as keep:
        keep("newer")
    assert path.read_text() == "newer\n"
    with pytest.raises(Usage, match="nowhere/token: No such file"):
        secret_file(str(tmp_path / "nowhere" / "token")).__enter__()
    with pytest.raises(Usage, match="is a folder"):
        secret_file(str(tmp_path)).__enter__()


def test_a_new_file_is_for_its_owner_alone_and_takes_the_place_of_none(tmp_path: Path) -> None:
    path, nowhere = tmp_path / "key.json", tmp_path / "nowhere" / "key.json"
    with pytest.raises(RuntimeError), secret_file(str(path), new=True):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []

    with secret_file(str(path), new=True) as keep:
        keep("secret")

    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    with pytest.raises(Usage, match="key.json: File exists"), secret_file(str(path), new=True) as keep:
        keep("another")
    with pytest.raises(Usage, match="nowhere/key.json: No such file"), secret_file(str(nowhere), new=True):
        raise AssertionError
    assert path.read_text() == "secret\n"


NAMES = st.text("abcXYZ019_-", min_size=1, max_size=5)
ENTITLEMENTS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=20)
RULES = st.builds(
    lambda entitlement, project, roles: wire.RoleRule(entitlement=entitlement, project=project, roles=sorted(roles)),
    ENTITLEMENTS, NAMES, st.sets(st.sampled_from(["publisher", "consumer"]), min_size=1),
)  # fmt: skip


def test_a_topic_is_of_the_project_in_use_or_says_its_own() -> None:
    of_project = rights.shorthands(["readings"], [], "garden")
    elsewhere = rights.shorthands(["projects/field/topics/readings"], [], "garden")

    assert [f"{each.action}={each.resource}" for each in of_project] == [
        "topics:publish=projects/garden/topics/readings", "topics:show=projects/garden/topics/readings",
    ]  # fmt: skip
    assert {each.resource for each in elsewhere} == {"projects/field/topics/readings"}
    assert rights.shorthands(["/projects/field/topics/readings"], [], None) == elsewhere


def test_rights_are_shown_by_resource_and_shorthand() -> None:
    given = rights.shorthands(["t"], ["s"], "p")

    assert validate([(each.action, each.resource) for each in given], [*PUBLISH, *CONSUME])
    assert rights.right("topics:show=projects/p") == wire.Right(action="topics:show", resource="projects/p")
    assert rights.format_rights(None) == "all of the user's"
    assert rights.format_rights(given) == "publish on projects/p/topics/t; consume on projects/p/subscriptions/s"
    assert rights.format_rights([rights.right("topics:show=projects/p")]) == "topics:show on projects/p"


@given(st.lists(RULES, max_size=4))
@settings(max_examples=30)
def test_role_rules_read_as_they_were_written(rules: list[wire.RoleRule]) -> None:
    texts = rights.rule_texts(rules)
    assert rights.rule_texts(rights.rules(texts)) == texts


def test_rules_are_gathered_by_entitlement_and_project() -> None:
    entitlement = "urn:mace:a.example:group:b:role=member#a.example"

    assert rights.rules([f"p=publisher={entitlement}", f"p=consumer={entitlement}", f"q=consumer={entitlement}"]) == [
        wire.RoleRule(entitlement=entitlement, project="p", roles=["publisher", "consumer"]),
        wire.RoleRule(entitlement=entitlement, project="q", roles=["consumer"]),
    ]


def test_what_cannot_be_read_is_refused() -> None:
    refused: list[tuple[Callable[[str], object], tuple[str, ...], str]] = [
        (
            lambda text: rights.shorthands([text], [], "p"),
            ("", "a b", "projects/p/subscriptions/t", "projects/p", "topics/t", "projects/p/topics/"),
            "neither a name nor",
        ),
        (lambda text: rights.shorthands([text], [], None), ("t",), "--project"),
        (
            rights.right, ("", "topics:show", "topics:show=", "=projects/p", "show=projects/p", "a:b=topics/t"),
            "ACTION=RESOURCE",
        ),
        (
            lambda text: rights.rules([text]), ("", "p", "p=publisher", "p=publisher=", "p==urn:x", "=publisher=urn:x"),
            "PROJECT=ROLE=ENTITLEMENT",
        ),
    ]  # fmt: skip
    for read, texts, reason in refused:
        for text in texts:
            with pytest.raises(Usage, match=reason):
                read(text)
