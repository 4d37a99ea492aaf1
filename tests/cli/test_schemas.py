import json
from pathlib import Path

from tests.cli.conftest import Ams

PERSON = '{"type": "object", "required": ["name"]}'
RULES = '{"required": ["site"]}'


def test_a_schema_is_made_listed_shown_changed_and_deleted(ams: Ams, project: str, tmp_path: Path) -> None:
    (tmp_path / "person.json").write_text(PERSON)

    made = ams("schemas", "create", "person", "--file", "person.json", "--attributes", "-", "-o", "json", stdin=RULES)
    listed = ams("schemas", "list")
    shown = ams("schemas", "show", "person")
    renamed = ams("schemas", "update", "person", "--rename", "human", "--no-attributes", "-o", "json")
    deleted = ams("schemas", "delete", "human")

    assert json.loads(made.stdout)["attributes"] == {"required": ["site"]}
    assert listed.stdout.split("\n")[1].split() == ["person", "json", "payload,", "attributes"]
    assert '"required"' in shown.stdout
    changed = json.loads(renamed.stdout)
    assert (changed["name"], "attributes" in changed) == (f"projects/{project}/schemas/human", False)
    assert (deleted.returncode, deleted.stderr) == (0, "schema human deleted\n")
    assert ams("schemas", "show", "human").returncode == 4


def test_a_message_is_asked_about_in_the_form_its_schema_understands(ams: Ams, project: str) -> None:
    ams("schemas", "create", "person", "--file", "-", stdin=PERSON)
    ams("schemas", "create", "number", "--type", "avro", "--file", "-", stdin='{"type": "int"}')
    ams("schemas", "create", "sited", "--attributes", "-", stdin=RULES)

    assert ams("schemas", "validate", "person", stdin='{"name": 1}').stderr == "schema person allows it\n"
    assert ams("schemas", "validate", "number", "--data", "\x02").returncode == 0
    assert ams("schemas", "validate", "sited", "--data", "x", "--attr", "site=A").returncode == 0
    refused = ams("schemas", "validate", "person", "--data", "{}")
    assert (refused.returncode, refused.stderr) == (1, "ams: Message 0 data is not valid,(root): name is required\n")
    assert "site: is required" in ams("schemas", "validate", "sited", "--data", "x").stderr


def test_a_topic_has_a_schema_from_its_making_or_by_attaching(ams: Ams, project: str) -> None:
    ams("schemas", "create", "person", "--file", "-", stdin=PERSON)

    assert ams("topics", "create", "a", "--schema", "person").stdout.split()[-2:] == ["schema", "person"]
    ams("topics", "create", "b")
    assert ams("topics", "attach-schema", "b", "person").returncode == 0
    assert ams("publish", "b", "--data", "{}").returncode == 1
    assert ams("topics", "detach-schema", "b").returncode == 0
    assert ams("publish", "b", "--data", "{}").returncode == 0


def test_a_dry_run_shows_what_would_be_refused(ams: Ams, project: str) -> None:
    ams("schemas", "create", "person", "--file", "-", stdin=PERSON)
    ams("topics", "create", "a")
    assert ams("schemas", "dry-run", "person", "a").stdout == "checked 0, would be refused: 0\n"

    ams("publish", "a", stdin='{"name": 1}\n{}\n')

    assert ams("schemas", "dry-run", "person", "a").stdout.splitlines()[0] == "checked 2, would be refused: 1"
    assert ams.json("schemas", "dry-run", "person", "a", "--messages", "1")["checked"] == 1


def test_all_that_a_schema_has_said_is_shown(ams: Ams, project: str) -> None:
    ams("schemas", "create", "person", "--file", "-", stdin=PERSON)
    ams("schemas", "update", "person", "--file", "-", stdin='{"type": "array"}')

    shown = ams("schemas", "revisions", "person")
    listed = ams.json("schemas", "revisions", "person")["revisions"]

    assert [each["schema"]["type"] for each in listed] == ["array", "object"]
    assert shown.stdout.index("array") < shown.stdout.index("required")
    assert ams("schemas", "revisions", "none").returncode == 4
