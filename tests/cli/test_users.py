"""Projects, users, members, their access lists and identities; registrations; and issuers of tokens."""

import json
from pathlib import Path

import pytest

from ams.cli.exit_codes import Usage
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
        ams("users", "list", "--member-of", project, "-o", "json").stdout, ams("members", "list", "-o", "json").stdout,
        ams("users", "update", user, "--organization", "Site", "--role", f"{project}=publisher", "-o", "json").stdout,
    ]  # fmt: skip

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
    tokens = [token_in(ams("members", "create", user, "--role", "publisher").stdout),
              token_in(ams("admin", "tokens", "refresh", user).stdout),
              token_in(ams("members", "refresh-token", user).stdout)]  # fmt: skip

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


def test_roles_are_gathered_by_project_and_one_without_a_project_is_refused() -> None:
    assert memberships(["a=publisher", "b=consumer", "a=consumer"]) == [
        wire.Grant(project="a", roles=["publisher", "consumer"]), wire.Grant(project="b", roles=["consumer"]),
    ]  # fmt: skip
    for pair in ("a", "a=", "=publisher", ""):
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
        ["UUID", "USER", "EMAIL"], [first, user, "u@site.example"],
    ]  # fmt: skip
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

    table = [line.split() for line in ams("projects", "quota", project).stdout.splitlines()]
    assert ["topics", "5", "10000", "1"] in table
    assert ["members", "none", "10000", "0"] in table
    shown = [line.split(maxsplit=1) for line in ams("projects", "show", project).stdout.splitlines()]
    for line in (["topics", "1 of 5"], ["members", "0, no limit"], ["requestsPerSecond", "none"]):
        assert line in shown
    assert dict(shown)["streams"].endswith(" (fair share)")
    assert ams.json("projects", "show", project)["quotas"] == {"topics": 5, "schemaBytes": 2**24, "members": 0}

    ams("projects", "quota", project, "topics=default", "schemaBytes=default", "members=default")
    assert "quotas" not in ams.json("projects", "show", project)


def test_an_access_list_is_set_extended_shortened_and_emptied_by_members(ams: Ams, project: str) -> None:
    first, second, stranger = (f"{project}-{name}" for name in ("a", "b", "stranger"))
    for name in (first, second):
        ams("members", "create", name, "--role", "publisher", "--role", "consumer")
    ams("users", "create", stranger)
    ams("topics", "create", "jobs")
    ams("subs", "create", "reader", "--topic", "jobs")

    for resource in ("topics/jobs", "subs/reader", "subscriptions/reader"):
        assert ams("acl", "set", resource, first).returncode == 0
        assert ams("acl", "add", resource, second, first).stdout.split() == ["USER", first, second]
        assert ams.json("acl", "remove", resource, first) == {"authorized_users": [second]}
        assert ams("acl", "show", resource).stdout.split() == ["USER", second]
        assert ams("acl", "remove", resource, first).returncode == 2
        assert ams("acl", "set", resource, "--none").returncode == 0
        assert ams("acl", "show", resource).stdout.split() == ["USER"]
    assert ams("topics", "set-acl", "jobs", first).returncode == 0
    assert ams("topics", "acl", "jobs").stdout.split() == ["USER", first]
    for words in (["acl", "set", "topics/jobs"], ["acl", "add", "subs/reader"], ["topics", "set-acl", "jobs"]):
        ran = ams(*words, first, stranger)
        assert ran.returncode == 4
        assert ran.stderr.startswith(f"ams: not members of project {project}: {stranger} (")
        assert "ams members add" in ran.stderr


ENTITLEMENT = "urn:mace:issuer.example:group:garden"
FILE = f"""
[[issuer]]
name = "checkin"
url = "https://issuer.example"
audiences = ["ams"]
introspect = "opaque"
client_id = "ams"
client_secret = "s3cret"
create_users = true

  [[issuer.roles]]
  entitlement = "{ENTITLEMENT}"
  project = "garden"
  roles = ["publisher", "consumer"]
"""


def test_a_file_of_issuers_is_checked_and_shown_without_its_secrets(offline_ams: Ams, tmp_path: Path) -> None:
    (tmp_path / "issuers.toml").write_text(FILE)

    code, table, _ = offline_ams("issuers", "check", "issuers.toml")
    _, document, _ = offline_ams("issuers", "check", "issuers.toml", "-o", "json")

    assert code == 0
    assert f"garden=publisher={ENTITLEMENT}" in table
    [issuer] = json.loads(document)["issuers"]
    assert (issuer["client_id"], issuer["client_secret"]) == ("ams", "***")
    assert "s3cret" not in table + document
    (tmp_path / "issuers.toml").write_text(FILE.replace("create_users", "crate_users"))
    code, out, err = offline_ams("issuers", "check", "issuers.toml")
    assert (code, out) == (2, "")
    assert "checkin" in err
    assert "crate_users" in err
    assert "s3cret" not in err


def test_an_issuer_is_set_changed_and_deleted(ams: Ams, project: str) -> None:
    url, role = f"https://{project}.example", f"{project}=publisher={ENTITLEMENT}"

    made = ams("issuers", "set", project, "--url", url, "--audience", "ams", "--create-users", "--role", role)
    asked = ("--introspect", "always", "--client-id", "ams", "--client-secret-file", "-")
    changed = ams("issuers", "set", project, *asked, "--client", "app", "-o", "json", stdin="s3cret\n")
    emptied = ams("issuers", "set", project, "--client", "", "--no-create-users", "--role", "", "-o", "json")
    listed = ams("issuers", "list", "-o", "json")
    deleted = ams("issuers", "delete", project)

    assert made.returncode == 0, made.stderr
    assert role in made.stdout
    found = json.loads(changed.stdout)
    assert (found["audiences"], found["clients"], found["client_secret"]) == (["ams"], ["app"], "***")
    assert (found["introspect"], found["create_users"]) == ("always", True)
    left = json.loads(emptied.stdout)
    assert (left["clients"], left["create_users"], left["roles"]) == ([], False, [])
    assert left["client_secret"] == "***"
    assert [each["source"] for each in json.loads(listed.stdout)["issuers"] if each["name"] == project] == ["registry"]
    assert deleted.returncode == 0
    assert ams("issuers", "show", project).returncode == 4
    assert "s3cret" not in changed.stdout + emptied.stdout + listed.stdout


ISSUER = "https://issuer.example"


def test_a_user_is_bound_to_an_identity_and_no_more(ams: Ams, project: str) -> None:
    user, subject = f"{project}-u", f"{project}@issuer"
    ams("users", "create", user)

    made = ams("bindings", "create", "checkin", "--user", user, "--issuer", ISSUER, "--subject", subject)
    taken = ams("bindings", "create", "other", "--user", user, "--issuer", ISSUER, "--subject", subject)
    listed = ams("bindings", "list", "--user", user, "-o", "json")
    deleted = ams("bindings", "delete", "checkin", "--user", user)

    assert subject in made.stdout
    assert taken.returncode == 5
    [binding] = json.loads(listed.stdout)["bindings"]
    assert (binding["name"], binding["issuer"], binding["subject"]) == ("checkin", ISSUER, subject)
    assert deleted.stderr == f"binding checkin of {user} deleted\n"
    assert ams("bindings", "list", "--user", user, "-o", "json").stdout.split() == ["{", '"bindings":', "[]", "}"]
