import json

from tests.cli.conftest import Ams


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
