import json
from pathlib import Path

import pytest

from ams.cli.exits import Usage
from ams.cli.users import memberships
from ams.client import wire
from tests.cli.conftest import Ams


def token_in(text: str) -> str:
    return next(line.split()[1] for line in text.splitlines() if line.startswith("token"))


def test_a_project_is_made_shown_changed_and_deleted(ams: Ams, project: str) -> None:
    described = ams("projects", "update", project, "--description", "for tests")
    renamed = ams("projects", "update", project, "--rename", f"{project}-2", "-o", "json")
    listed = ams("projects", "list")
    deleted = ams("projects", "delete", f"{project}-2")

    assert "description  for tests" in described.stdout.splitlines()
    assert json.loads(renamed.stdout)["name"] == f"{project}-2"
    assert f"{project}-2" in [line.split()[0] for line in listed.stdout.splitlines()]
    assert deleted.returncode == 0
    assert ams("projects", "show", f"{project}-2").returncode == 4


def test_a_user_is_made_and_changed_and_its_token_shown_only_where_that_is_the_purpose(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    made = ams("users", "create", user, "--email", "u@site.example", "--role", f"{project}=consumer")
    token = token_in(made.stdout)

    said = [
        ams("users", "show", user, "-o", "json").stdout,
        ams("users", "list", "--member-of", project, "-o", "json").stdout,
        ams("members", "list", "-o", "json").stdout,
        ams("users", "update", user, "--organization", "Site", "--role", f"{project}=publisher", "-o", "json").stdout,
    ]

    shown, listed, members, changed = map(json.loads, said)
    assert shown["email"] == "u@site.example"
    assert [each["name"] for each in listed["users"]] == [user]
    assert members["users"][0]["projects"][0]["roles"] == ["consumer"]
    assert (changed["email"], changed["organization"]) == ("u@site.example", "Site")
    assert changed["projects"][0]["roles"] == ["publisher"]
    assert token_in(ams("admin", "tokens", "show", user).stdout) == token
    assert token not in "".join(said)
    assert ams.json("users", "update", user, "--rename", f"{user}-2")["name"] == f"{user}-2"


def test_a_refreshed_token_works_and_the_old_one_does_not(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    tokens = [
        token_in(ams("members", "create", user, "--role", "publisher").stdout),
        token_in(ams("admin", "tokens", "refresh", user).stdout),
        token_in(ams("members", "refresh-token", user).stdout),
    ]

    assert [ams("topics", "list", AMS_TOKEN=token).returncode for token in tokens] == [3, 3, 0]


def test_a_member_is_added_changed_and_removed_and_a_user_deleted(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    token = token_in(ams("users", "create", user).stdout)

    added = ams("members", "add", user, "--role", "publisher", "--role", "consumer")
    again = ams("members", "add", user)
    changed = ams("members", "update", user, "--role", "consumer")
    shown = ams("members", "show", user, "-o", "json").stdout
    emptied = ams("members", "update", user, "--none")
    removed = ams("members", "remove", user)
    deleted = ams("users", "delete", user)

    assert f"projects  {project}: publisher, consumer".split() in [line.split() for line in added.stdout.splitlines()]
    assert json.loads(shown)["projects"][0]["roles"] == ["consumer"]
    assert token not in changed.stdout + shown
    assert removed.stderr == f"user {user} is no member of {project} any more\n"
    assert [each.returncode for each in (again, changed, emptied, deleted)] == [5, 0, 0, 0]
    assert ams("users", "show", user).returncode == 4


def test_roles_are_gathered_by_project() -> None:
    assert memberships(["a=publisher", "b=consumer", "a=consumer"]) == [
        wire.Grant(project="a", roles=["publisher", "consumer"]),
        wire.Grant(project="b", roles=["consumer"]),
    ]


@pytest.mark.parametrize("pair", ["a", "a=", "=publisher", ""])
def test_a_role_without_a_project_is_refused(pair: str) -> None:
    with pytest.raises(Usage, match="PROJECT=ROLE"):
        memberships([pair])


def test_registrations_are_listed_shown_accepted_declined_and_deleted(ams: Ams, project: str) -> None:
    user, other = f"{project}-u", f"{project}-other"
    first, second = (
        ams.json("registrations", "create", name, "--email", "u@site.example", "--organization", project)["uuid"]
        for name in (user, other)
    )

    listed = ams("registrations", "list", "--status", "pending", "--user", user)
    shown = ams("registrations", "show", first)
    accepted = ams("registrations", "accept", first)
    declined = ams("registrations", "decline", second, "--comment", "no place")
    [only] = ams.json("registrations", "list", "--status", "declined", "--organization", project)["user_registrations"]
    deleted = ams("registrations", "delete", second)

    assert [line.split()[:3] for line in listed.stdout.splitlines()] == [
        ["UUID", "USER", "EMAIL"],
        [first, user, "u@site.example"],
    ]
    assert ["status", "pending"] in [line.split() for line in shown.stdout.splitlines()]
    assert "token" in [line.split()[0] for line in accepted.stdout.splitlines()]
    assert (declined.returncode, declined.stderr) == (0, f"registration {second} declined\n")
    assert (only["decline_comment"], only["modified_by"]) == ("no place", "admin")
    assert deleted.returncode == 0
    assert [ams("registrations", *words).returncode for words in (("accept", first), ("show", second))] == [4, 4]


def test_who_renews_their_own_token_is_told_which_place_has_the_old_one(ams: Ams, project: str, tmp_path: Path) -> None:
    ams("users", "create", f"{project}-root", "--service-role", "service_admin")
    kept = tmp_path / "admin.token"
    kept.write_text(ams.json("admin", "tokens", "show", f"{project}-root")["token"])
    own = {"AMS_TOKEN": "", "AMS_TOKEN_FILE": str(kept)}

    other = ams("admin", "tokens", "refresh", f"{project}-root")
    kept.write_text(ams.json("admin", "tokens", "show", f"{project}-root")["token"])
    ran = ams("admin", "tokens", "refresh", f"{project}-root", **own)

    assert (other.returncode, other.stderr) == (0, "")
    assert ran.returncode == 0
    assert ran.stderr == f"the token of file {kept} of a variable is dead now: put the new one there\n"
    assert f"file {kept}" in ams("topics", "list", **own).stderr


def test_quotas_of_a_project_are_shown_with_their_use_and_changed(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    changed = ams("projects", "quota", project, "topics=5", "schemaBytes=16MiB", "members=none", "-o", "json")
    assert changed.returncode == 0, changed.stderr
    rows = {each["name"]: each for each in json.loads(changed.stdout)["quotas"]}
    assert rows["topics"] == {"name": "topics", "limit": 5, "default": 10_000, "used": 1}
    assert (rows["schemaBytes"]["limit"], rows["members"]["limit"]) == (2**24, 0)

    table = ams("projects", "quota", project).stdout.splitlines()
    assert table[0].split() == ["QUOTA", "LIMIT", "DEFAULT", "USED"]
    assert ["topics", "5", "10000", "1"] in [line.split() for line in table]
    assert ["members", "none", "10000", "0"] in [line.split() for line in table]
    assert "quotas" in ams("projects", "show", project).stdout
    assert "topics 5, schemaBytes 16777216, members 0" in ams("projects", "show", project).stdout

    ams("projects", "quota", project, "topics=default", "schemaBytes=default", "members=default")
    assert "quotas" not in ams.json("projects", "show", project)
