import json

import pytest

from ams.cli.admin.users import memberships
from ams.cli.exits import Usage
from ams.client import wire
from tests.cli.conftest import Ams


def token_in(text: str) -> str:
    return next(line.split()[1] for line in text.splitlines() if line.startswith("token"))


def test_a_project_is_made_shown_changed_and_deleted(ams: Ams, project: str) -> None:
    described = ams("admin", "projects", "update", project, "--description", "for tests")
    renamed = ams("admin", "projects", "update", project, "--rename", f"{project}-2", "-o", "json")
    listed = ams("admin", "projects", "list")
    deleted = ams("admin", "projects", "delete", f"{project}-2")

    assert "description  for tests" in described.stdout.splitlines()
    assert json.loads(renamed.stdout)["name"] == f"{project}-2"
    assert f"{project}-2" in [line.split()[0] for line in listed.stdout.splitlines()]
    assert deleted.returncode == 0
    assert ams("admin", "projects", "show", f"{project}-2").returncode == 4
    assert ams("admin", "projects", "update", project).returncode == 2


def test_a_user_is_made_with_roles_and_its_token_is_shown_only_where_that_is_the_purpose(
    ams: Ams, project: str
) -> None:
    user = f"{project}-u"
    made = ams("admin", "users", "create", user, "--email", "u@site.example", "--role", f"{project}=consumer")
    token = token_in(made.stdout)

    shown = ams("admin", "users", "show", user, "-o", "json").stdout
    listed = ams("admin", "users", "list", "--member-of", project, "-o", "json").stdout
    members = ams("admin", "members", "list", "-o", "json").stdout
    again = ams("admin", "tokens", "show", user).stdout

    assert json.loads(shown)["email"] == "u@site.example"
    assert [each["name"] for each in json.loads(listed)["users"]] == [user]
    assert json.loads(members)["users"][0]["projects"][0]["roles"] == ["consumer"]
    assert token_in(again) == token
    for text in (shown, listed, members):
        assert token not in text


def test_a_refreshed_token_works_and_the_old_one_does_not(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    old = token_in(ams("admin", "members", "create", user, "--role", "publisher").stdout)

    new = token_in(ams("admin", "tokens", "refresh", user).stdout)

    assert ams("topic", "list", AMS_TOKEN=new).returncode == 0
    assert ams("topic", "list", AMS_TOKEN=old).returncode == 3


def test_a_member_is_added_and_removed_and_a_user_deleted(ams: Ams, project: str) -> None:
    user = f"{project}-u"
    ams("admin", "users", "create", user)

    added = ams("admin", "members", "add", user, "--role", "publisher", "--role", "consumer")
    again = ams("admin", "members", "add", user)
    removed = ams("admin", "members", "remove", user)
    deleted = ams("admin", "users", "delete", user)

    assert f"projects  {project}: publisher, consumer".split() in [line.split() for line in added.stdout.splitlines()]
    assert again.returncode == 5
    assert removed.stderr == f"user {user} is no member of {project} any more\n"
    assert deleted.returncode == 0
    assert ams("admin", "users", "show", user).returncode == 4


def test_roles_are_gathered_by_project() -> None:
    assert memberships(["a=publisher", "b=consumer", "a=consumer"]) == [
        wire.Membership(project="a", roles=["publisher", "consumer"]),
        wire.Membership(project="b", roles=["consumer"]),
    ]


@pytest.mark.parametrize("pair", ["a", "a=", "=publisher", ""])
def test_a_role_without_a_project_is_refused(pair: str) -> None:
    with pytest.raises(Usage, match="PROJECT=ROLE"):
        memberships([pair])
