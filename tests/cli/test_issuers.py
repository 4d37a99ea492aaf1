"""`ams issuers` and `ams bindings`, against a service; and the check of a file, which asks nobody."""

import json
from pathlib import Path

from tests.cli.conftest import Ams

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


def test_a_file_of_issuers_is_shown_without_its_secrets(offline: Ams, tmp_path: Path) -> None:
    (tmp_path / "issuers.toml").write_text(FILE)

    code, table, _ = offline("issuers", "check", "issuers.toml")
    _, document, _ = offline("issuers", "check", "issuers.toml", "-o", "json")

    assert code == 0
    assert table.splitlines()[1].split() == [
        "checkin",
        "ams",
        f"garden=consumer={ENTITLEMENT},",
        f"garden=publisher={ENTITLEMENT}",
        "https://issuer.example",
    ]
    [issuer] = json.loads(document)["issuers"]
    assert (issuer["client_id"], issuer["client_secret"]) == ("ams", "***")
    assert "s3cret" not in table + document


def test_a_file_that_is_wrong_is_named_with_what_is(offline: Ams, tmp_path: Path) -> None:
    (tmp_path / "issuers.toml").write_text(FILE.replace("create_users", "crate_users"))

    code, out, err = offline("issuers", "check", "issuers.toml")

    assert (code, out) == (2, "")
    assert "checkin" in err
    assert "crate_users" in err
    assert "s3cret" not in err


def test_an_issuer_is_set_changed_and_deleted(ams: Ams, project: str, tmp_path: Path) -> None:
    url, role = f"https://{project}.example", f"{project}=publisher={ENTITLEMENT}"
    (tmp_path / "secret").write_text("s3cret\n")

    made = ams("issuers", "set", project, "--url", url, "--audience", "ams", "--create-users", "--role", role)
    asked = ("--introspect", "always", "--client-id", "ams", "--client-secret-file", "secret")
    changed = ams("issuers", "set", project, *asked, "--client", "app", "-o", "json")
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


def test_a_secret_comes_from_standard_input_too(ams: Ams, project: str) -> None:
    ams("issuers", "set", project, "--url", f"https://{project}.example", "--audience", "ams")
    asked = ("--introspect", "always", "--client-id", "ams", "--client-secret-file", "-")

    assert ams("issuers", "set", project, *asked).returncode == 2
    assert ams("issuers", "set", project, *asked, stdin="s3cret\n").returncode == 0
    ams("issuers", "delete", project)


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
