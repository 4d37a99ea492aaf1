import json
from pathlib import Path

from tests.cli.conftest import Ams

PERSON = '{"type": "object", "required": ["name"]}'
RULES = '{"required": ["site"]}'


def test_a_topic_is_made_listed_shown_kept_for_as_long_as_it_is_said_and_deleted(ams: Ams, project: str) -> None:
    made = ams.json("topics", "create", "jobs")
    listed, shown = ams("topics", "list"), ams("topics", "show", "jobs")

    assert made["name"] == f"/projects/{project}/topics/jobs"
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["TOPIC", "jobs"]
    assert shown.stdout.splitlines()[0].split() == ["topic", "jobs"]
    assert "retention  7d" in ams("topics", "retention", "jobs", "168h").stdout.splitlines()
    assert ams.json("topics", "show", "jobs")["retentionSeconds"] == 7 * 86_400
    assert "retention" not in ams("topics", "retention", "jobs", "default").stdout
    assert "12h" in ams("projects", "retention", project, "12h").stdout
    deleted = ams("topics", "delete", "jobs")
    assert (deleted.returncode, deleted.stdout, deleted.stderr) == (0, "", "topic jobs deleted\n")
    assert ams("topics", "show", "jobs").returncode == 4


def test_a_range_is_read_without_a_subscription(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("publish", "jobs", stdin="one\ntwo\nthree\n")

    read = ams("topics", "read", "jobs", "--from", "1").stdout.splitlines()

    assert ams("topics", "offsets", "jobs").stdout.split() == ["oldest", "0", "end", "3"]
    assert [line.split()[-1] for line in read] == ["two", "three"]
    [line] = ams("topics", "read", "jobs", "--to", "1", "-o", "json").stdout.splitlines()
    assert json.loads(line)["offset"] == 0
    assert ams("topics", "read", "jobs", "--from", "4").returncode == 1


def test_a_topic_is_looked_through_from_its_end_or_forward(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    lines = "".join(json.dumps({"n": n, "even": n % 2 == 0}) + "\n" for n in range(2_500))
    ams("publish", "jobs", "--attr", "k=v", stdin=lines)

    def numbers(*arguments: str) -> list[int]:
        ran = ams("topics", "browse", "jobs", *arguments, "-o", "json")
        assert ran.returncode == 0, ran.stderr
        return [json.loads(line)["offset"] for line in ran.stdout.splitlines()]

    assert numbers("--max", "3") == [2499, 2498, 2497]
    assert numbers("--json", "@.n < 3") == [2, 1, 0]
    assert numbers("--json", "@.even == true", "--max", "2") == [2498, 2496]
    assert numbers("--from", "1998", "--json", "@.even == true", "--max", "3") == [1998, 2000, 2002]
    assert numbers("--since", "2020-01-01", "--max", "2") == [0, 1]
    assert numbers("--since", "2999-01-01") == numbers("--filter", 'attributes.k = "w"') == []


def test_a_schema_is_made_listed_shown_changed_and_deleted(ams: Ams, project: str, tmp_path: Path) -> None:
    (tmp_path / "person.json").write_text(PERSON)

    made = ams("schemas", "create", "person", "--file", "person.json", "--attributes", "-", "-o", "json", stdin=RULES)
    listed = ams("schemas", "list")
    shown = ams("schemas", "show", "person")
    ams("schemas", "update", "person", "--file", "-", stdin='{"type": "array"}')
    revisions = ams.json("schemas", "revisions", "person")["revisions"]
    renamed = ams.json("schemas", "update", "person", "--rename", "human", "--no-attributes")
    deleted = ams("schemas", "delete", "human")

    assert json.loads(made.stdout)["attributes"] == {"required": ["site"]}
    assert listed.stdout.split("\n")[1].split() == ["person", "json", "payload,", "attributes"]
    assert '"required"' in shown.stdout
    assert [each["schema"]["type"] for each in revisions] == ["array", "object"]
    assert (renamed["name"], "attributes" in renamed) == (f"projects/{project}/schemas/human", False)
    assert (deleted.returncode, deleted.stderr) == (0, "schema human deleted\n")
    assert ams("schemas", "show", "human").returncode == 4


def test_a_message_is_asked_about_in_the_form_its_schema_understands(ams: Ams, project: str) -> None:
    ams("schemas", "create", "person", "--file", "-", stdin=PERSON)
    ams("schemas", "create", "number", "--type", "avro", "--file", "-", stdin='{"type": "int"}')
    ams("schemas", "create", "sited", "--attributes", "-", stdin=RULES)
    proto = 'syntax = "proto3";\nmessage A { string a = 1; }'
    assert proto in ams("schemas", "create", "proto", "--type", "protobuf", "--file", "-", stdin=proto).stdout

    assert ams("schemas", "validate", "person", stdin='{"name": 1}').stderr == "schema person allows it\n"
    assert ams("schemas", "validate", "number", "--data", "\x02").returncode == 0
    assert ams("schemas", "validate", "proto", "--data", "\x0a\x01x").returncode == 0
    assert "not a message A" in ams("schemas", "validate", "proto", "--data", "x").stderr
    assert ams("schemas", "validate", "sited", "--data", "x", "--attr", "site=A").returncode == 0
    refused = ams("schemas", "validate", "person", "--data", "{}")
    assert (refused.returncode, refused.stderr) == (1, "ams: Message 0 data is not valid,(root): name is required\n")
    assert "site: is required" in ams("schemas", "validate", "sited", "--data", "x").stderr


def test_a_pulled_message_in_protocol_buffers_is_shown_as_json(ams: Ams, project: str) -> None:
    proto = 'syntax = "proto3"; message A { string bed_name = 1; }'
    ams("schemas", "create", "proto", "--type", "protobuf", "--file", "-", stdin=proto)
    [revision] = ams.json("schemas", "revisions", "proto")["revisions"]
    ams("topics", "create", "a")
    ams("subs", "create", "s", "a")
    said = {"name": f"projects/{project}/schemas/proto", "encoding": "BINARY", "revisionid": revision["revision"]}
    kept = [each for name, value in said.items() for each in ("--attr", f"googclient_schema{name}={value}")]
    other = [each.replace(revision["revision"], "00000000") for each in kept]
    for data, attributes in (("\x0a\x01x", kept), ("\x0a\x01y", other), ("z", kept)):
        ams("publish", "a", "--data", data, *attributes)

    shown = ams("pull", "s", "--max", "3").stdout.splitlines()[1:]

    assert [line.split("  ")[-1] for line in shown] == ['{"bedName":"x"}', r"\n\x01y", "z"]


def test_a_topic_has_a_schema_from_its_making_or_later_and_a_dry_run_shows_refusals(ams: Ams, project: str) -> None:
    ams("schemas", "create", "person", "--file", "-", stdin=PERSON)

    assert ams("topics", "create", "a", "--schema", "person").stdout.split()[-2:] == ["schema", "person"]
    ams("topics", "create", "b")
    ams("publish", "b", stdin='{"name": 1}\n{}\n')
    assert ams("schemas", "dry-run", "person", "a").stdout == "checked 0, would be refused: 0\n"
    assert ams("schemas", "dry-run", "person", "b").stdout.splitlines()[0] == "checked 2, would be refused: 1"
    assert ams.json("schemas", "dry-run", "person", "b", "--messages", "1")["checked"] == 1
    assert ams("topics", "attach-schema", "b", "person").returncode == 0
    assert ams("publish", "b", "--data", "{}").returncode == 1
    assert ams("topics", "detach-schema", "b").returncode == 0
    assert ams("publish", "b", "--data", "{}").returncode == 0
