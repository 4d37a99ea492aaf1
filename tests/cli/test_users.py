import json

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
    assert ams("projects", "update", project).returncode == 2


def test_a_user_is_made_with_roles_and_its_token_is_shown_only_where_that_is_the_purpose(
    ams: Ams, project: str
) -> None:
    user = f"{project}-u"
    made = ams("users", "create", user, "--email", "u@site.example", "--role", f"{project}=consumer")
    token = token_in(made.stdout)

    shown = ams("users", "show", user, "-o", "json").stdout
    listed = ams("users", "list", "--member-of", project, "-o", "json").stdout
    members = ams("members", "list", "-o", "json").stdout
    again = ams("admin", "tokens", "show", user).stdout

    assert json.loads(shown)["email"] == "u@site.example"
    assert [each["name"] for each in json.loads(listed)["users"]] == [user]
    assert json.loads(members)["users"][0]["projects"][0]["roles"] == ["consumer"]
    assert token_in(again) == token
    for text in (shown, listed, members):
        assert token not in text


def test_a_refreshed_token_works_and_the_old_one_does_not(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    old = token_in(ams("members", "create", user, "--role", "publisher").stdout)

    new = token_in(ams("admin", "tokens", "refresh", user).stdout)

    assert ams("topics", "list", AMS_TOKEN=new).returncode == 0
    assert ams("topics", "list", AMS_TOKEN=old).returncode == 3


def test_a_member_is_added_and_removed_and_a_user_deleted(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    ams("users", "create", user)

    added = ams("members", "add", user, "--role", "publisher", "--role", "consumer")
    again = ams("members", "add", user)
    removed = ams("members", "remove", user)
    deleted = ams("users", "delete", user)

    assert f"projects  {project}: publisher, consumer".split() in [line.split() for line in added.stdout.splitlines()]
    assert again.returncode == 5
    assert removed.stderr == f"user {user} is no member of {project} any more\n"
    assert deleted.returncode == 0
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


def test_a_user_is_changed(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    ams("users", "create", user, "--role", f"{project}=consumer", "--email", "u@site.example")

    changed = ams("users", "update", user, "--organization", "Site", "--role", f"{project}=publisher", "-o", "json")
    renamed = ams("users", "update", user, "--rename", f"{user}-2", "-o", "json")

    found = json.loads(changed.stdout)
    assert (found["email"], found["organization"]) == ("u@site.example", "Site")
    assert found["projects"][0]["roles"] == ["publisher"]
    assert json.loads(renamed.stdout)["name"] == f"{user}-2"
    assert ams("users", "update", f"{user}-2").returncode == 2


def test_the_roles_of_a_member_are_replaced(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    token = token_in(ams("members", "create", user, "--role", "publisher").stdout)

    changed = ams("members", "update", user, "--role", "consumer")
    shown = ams("members", "show", user, "-o", "json").stdout

    assert changed.returncode == 0
    assert json.loads(shown)["projects"][0]["roles"] == ["consumer"]
    assert token not in changed.stdout + shown
    assert ams("members", "update", user).returncode == 2
    assert ams("members", "update", user, "--none").returncode == 0


def asked(ams: Ams, user: str) -> str:
    """Register and return the uuid."""
    made = ams("registrations", "create", user, "--email", "u@site.example", "--organization", user, "-o", "json")
    return str(json.loads(made.stdout)["uuid"])


def test_who_asked_is_listed_shown_and_accepted(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    uuid = asked(ams, user)

    listed = ams("registrations", "list", "--status", "pending", "--user", user)
    shown = ams("registrations", "show", uuid)
    accepted = ams("registrations", "accept", uuid)

    assert [line.split()[:3] for line in listed.stdout.splitlines()] == [
        ["UUID", "USER", "EMAIL"],
        [uuid, user, "u@site.example"],
    ]
    assert ["status", "pending"] in [line.split() for line in shown.stdout.splitlines()]
    assert "token" in [line.split()[0] for line in accepted.stdout.splitlines()]
    assert ams("registrations", "accept", uuid).returncode == 4


def test_a_registration_is_declined_with_a_comment_and_deleted(ams: Ams, project: str) -> None:
    uuid = asked(ams, f"{project}-u")

    declined = ams("registrations", "decline", uuid, "--comment", "no place")
    listed = ams("registrations", "list", "--status", "declined", "--organization", f"{project}-u", "-o", "json")
    deleted = ams("registrations", "delete", uuid)

    assert (declined.returncode, declined.stderr) == (0, f"registration {uuid} declined\n")
    [only] = json.loads(listed.stdout)["user_registrations"]
    assert (only["decline_comment"], only["modified_by"]) == ("no place", "admin")
    assert deleted.returncode == 0
    assert ams("registrations", "show", uuid).returncode == 4
