"""`ams bindings`, against a service."""

import json

from tests.cli.conftest import Ams

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


def test_ones_own_bindings_are_listed_without_a_name(ams: Ams) -> None:
    assert ams("bindings", "list").returncode == 0
