"""Issuers, bindings of users to identities, and named tokens in files of declarations."""

import json
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ams.cli.apply import KeptTokens, lines, lost_tokens
from ams.client import wire
from ams.client.errors import AlreadyExists, InvalidInput
from ams.client.wire import Call
from ams.core.errors import BadDocument
from ams.provisioning.carrying_out import CarryingOut, carry_out
from ams.provisioning.declared import Change, Declared, Existing, Fields, Key, Kind, Step
from ams.provisioning.document import read_documents
from ams.provisioning.plan import PlanOptions, plan
from ams.provisioning.state import existing_issuer
from tests.cli.apply.conftest import Files
from tests.cli.conftest import Ams

URL = "https://issuer.example"
ENTITLEMENT = "urn:mace:issuer.example:group:garden"
PUBLISHING = "topics:publish=projects/garden/topics/readings"
TEXT = f"""
users:
  sensor:
    bindings:
      checkin: {{issuer: "{URL}", subject: s-7}}
    tokens:
      field:
        expires_on: 2999-05-01
        rights: [{{action: "topics:publish", resource: projects/garden/topics/readings}}]
        token_file: field.token
issuers:
  checkin:
    url: {URL}
    audiences: [ams]
    client_secret: {{file: secret}}
    create_users: true
    roles:
      - {{entitlement: "{ENTITLEMENT}", project: garden, roles: [publisher, consumer]}}
"""
ISSUER, SENSOR = Key(Kind.ISSUER, "", "checkin"), Key(Kind.USER, "", "sensor")
IDENTITY, TOKEN = Key(Kind.IDENTITY, "sensor", "checkin"), Key(Kind.TOKEN, "sensor", "field")


def declared(folder: Path, text: str = TEXT) -> Declared:
    (folder / "file.yaml").write_text(text)
    return read_documents([str(folder / "file.yaml")])


def there(**token: Any) -> Existing:
    """Return what a service holds on which the declaration was carried out; of the token something else."""
    issuer = wire.Issuer(
        name="checkin",
        url=URL,
        audiences=["ams"],
        client_secret="***",
        create_users=True,
        source="registry",
        roles=[wire.RoleRule(entitlement=ENTITLEMENT, project="garden", roles=["consumer", "publisher"])],
    )
    fields: dict[Key, Fields] = {
        SENSOR: {},
        ISSUER: existing_issuer(issuer),
        IDENTITY: {"issuer": URL, "subject": "s-7"},
        TOKEN: {"expires_on": "2999-05-01T00:00:00Z", "rights": (PUBLISHING,)} | token,
    }
    return Existing(fields)


def with_source(source: str) -> Existing:
    found = there()
    return Existing({**found.fields, ISSUER: {**found.fields[ISSUER], "source": source}})


def test_a_file_declares_issuers_bindings_and_tokens(tmp_path: Path) -> None:
    fields = declared(tmp_path).fields

    assert fields[IDENTITY] == {"issuer": URL, "subject": "s-7"}
    assert fields[TOKEN] == {
        "expires_on": "2999-05-01T00:00:00Z",
        "rights": (PUBLISHING,),
        "token_file": str(tmp_path / "field.token"),
    }
    assert fields[ISSUER]["client_secret"] == {"file": str(tmp_path / "secret")}
    assert fields[ISSUER]["roles"] == (f"garden=consumer={ENTITLEMENT}", f"garden=publisher={ENTITLEMENT}")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("issuers: {a: {audiences: [x]}}", "says its url"),
        ("issuers: {a: {url: u, client_secret: s3cret}}", "not in this file"),
        ("issuers: {a: {url: u, introspect: often}}", "is none of never"),
        ("issuers: {a: {url: u, roles: [{project: p, roles: [x]}]}}", "a rule has"),
        ("issuers: {a: {url: u, roles: [{entitlement: e, project: p, roles: []}]}}", "a rule has"),
        ("issuers: {a b: {url: u}}", "is no name"),
        ("users: {a: {bindings: {b: {issuer: u}}}}", "says its subject"),
        ("users: {a: {tokens: {t: {}}}}", "token_file"),
        ("users: {a: {tokens: {t: {token_file: f, rights: []}}}}", "good for something"),
        ("users: {a: {tokens: {t: {token_file: f, rights: [{action: x:y}]}}}}", "an action and a resource"),
        ("users: {a: {tokens: {t: {token_file: f, rights: [{action: x:y, resource: t}]}}}}", "is no resource"),
        ("users: {a: {tokens: {t: {token_file: f, rights: [{action: x, resource: '*'}]}}}}", "is no action"),
        ("users: {a: {tokens: {t: {token_file: f, expires_on: soon}}}}", "is no time"),
        ("users: {a: {tokens: {t: {token_file: f, token: s3cret}}}}", "unknown key"),
        ("users: {a: {tokens: {t: {token_file: f}, u: {token_file: ./f}}}}", "gets another token already, at .*:1"),
    ],
)
def test_what_cannot_be_declared_is_said_with_its_line(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(BadDocument, match=rf"file.yaml:1: .*{reason}") as raised:
        declared(tmp_path, text)

    assert "s3cret" not in str(raised.value)


def test_the_plan_of_an_empty_service_makes_issuers_before_what_needs_them_and_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")

    steps = plan(declared(tmp_path), Existing())

    assert [(step.change, step.key) for step in steps] == [
        (Change.ADD, SENSOR),
        (Change.ADD, ISSUER),
        (Change.ADD, IDENTITY),
        (Change.ADD, TOKEN),
    ]
    assert "s3cret" not in "\n".join(lines(steps))


def test_what_is_there_as_declared_is_left_alone(tmp_path: Path) -> None:
    assert plan(declared(tmp_path), there()) == []
    assert plan(declared(tmp_path), there(), PlanOptions(prune=True, renew_tokens=True)) == []


@pytest.mark.parametrize(
    ("differs", "said"),
    [
        ({"rights": "all"}, "other rights"),
        ({"expires_on": ""}, "another end"),
        ({"rights": "all", "expires_on": ""}, "another end and other rights"),
    ],
)
def test_a_token_that_differs_is_made_anew_only_when_that_is_asked_for(
    tmp_path: Path, differs: Fields, said: str
) -> None:
    with pytest.raises(BadDocument, match=f"is there with {said}: give --renew-tokens"):
        plan(declared(tmp_path), there(**differs))

    [step] = plan(declared(tmp_path), there(**differs), PlanOptions(renew_tokens=True))

    assert (step.change, step.key) == (Change.ALTER, TOKEN)
    assert (step.fields["rights"], step.fields["expires_on"]) == ((PUBLISHING,), "2999-05-01T00:00:00Z")


def test_a_key_is_left_alone_and_not_declared(tmp_path: Path) -> None:
    key = there(key_id="00" * 20)
    everything = PlanOptions(prune=True, renew_tokens=True)
    others = "{tokens: {}, bindings: {checkin: {issuer: 'https://issuer.example', subject: s-7}}}"

    assert plan(declared(tmp_path, f"users: {{sensor: {others}}}"), key, everything) == []
    for options in (PlanOptions(), everything):
        with pytest.raises(BadDocument, match="token sensor/field is a key, which is made by ams token create"):
            plan(declared(tmp_path), key, options)


def test_what_is_not_said_of_a_token_made_anew_stays_as_it_was(tmp_path: Path) -> None:
    text = "users: {sensor: {tokens: {field: {token_file: f, expires_on: ~}}}}"

    [step] = plan(declared(tmp_path, text), there(), PlanOptions(renew_tokens=True))

    assert (step.fields["rights"], step.fields["expires_on"]) == ((PUBLISHING,), "")


def test_an_issuer_of_the_settings_is_left_alone_or_refused(tmp_path: Path) -> None:
    other = TEXT.replace("[ams]", "[other]")

    assert plan(declared(tmp_path), with_source("settings")) == []
    with pytest.raises(BadDocument, match=r"issuer checkin is of the service's settings .* its audiences must"):
        plan(declared(tmp_path, other), with_source("settings"))
    [step] = plan(declared(tmp_path, other), with_source("registry"))
    assert step == Step(Change.ALTER, ISSUER, {"audiences": ("other",)})


def test_secrets_of_issuers_are_set_again_when_that_is_asked_for(tmp_path: Path) -> None:
    [step] = plan(declared(tmp_path), there(), PlanOptions(set_secrets=True))

    assert step == Step(Change.ALTER, ISSUER, {"client_secret": {"file": str(tmp_path / "secret")}})


def test_what_is_not_declared_is_removed_where_its_section_is(tmp_path: Path) -> None:
    without = "users: {sensor: {bindings: {}, tokens: {}}}\nissuers: {}"
    pruned = plan(declared(tmp_path, without), there(), PlanOptions(prune=True))

    assert [(step.change, step.key) for step in pruned] == [
        (Change.REMOVE, TOKEN),
        (Change.REMOVE, IDENTITY),
        (Change.REMOVE, ISSUER),
    ]
    assert plan(declared(tmp_path, without), there()) == []
    assert plan(declared(tmp_path, "users: {sensor: {}}"), there(), PlanOptions(prune=True)) == []
    assert ISSUER not in [
        step.key for step in plan(declared(tmp_path, without), with_source("settings"), PlanOptions(prune=True))
    ]


def test_an_issuer_keeps_what_is_not_declared_when_it_is_altered(tmp_path: Path) -> None:
    found = wire.Issuer(name="checkin", url=URL, clients=["app"], client_secret="***", source="registry")
    sent: list[Call[Any]] = []

    def ask(call: Call[Any]) -> Any:
        sent.append(call)
        return found

    CarryingOut(ask, print).do(Step(Change.ALTER, ISSUER, {"audiences": ("ams",)}))
    looked, sent_then = sent

    assert looked.path == "/v1/issuers/checkin"
    body = json.loads(sent_then.body or b"")
    assert (sent_then.method, body["audiences"], body["clients"], body["client_secret"]) == (
        "PUT",
        ["ams"],
        ["app"],
        "***",
    )


class Service:
    """Answers what a test says, and remembers what it was asked."""

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, call: Call[Any]) -> Any:
        self.asked.append(f"{call.method} {call.path}")
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def nothing_more() -> Sequence[Step]:
    return []


def test_a_token_made_anew_is_revoked_first_and_its_secret_goes_to_the_file(tmp_path: Path) -> None:
    made = wire.NamedToken(name="field", user="sensor", token="s3cret")
    service = Service(AlreadyExists("Token already exists", 409), None, made)
    fields = {"token_file": str(tmp_path / "field.token"), "expires_on": "", "rights": "all"}

    carry_out([Step(Change.ALTER, TOKEN, fields)], service, KeptTokens(None), nothing_more, print)

    path = "/v1/users/sensor/tokens/field"
    assert service.asked == [f"POST {path}", f"DELETE {path}", f"POST {path}"]
    assert (tmp_path / "field.token").read_text() == "s3cret\n"
    assert stat.S_IMODE((tmp_path / "field.token").stat().st_mode) == 0o600


def test_a_token_that_cannot_be_made_anew_is_not_revoked(tmp_path: Path) -> None:
    service = Service(InvalidInput("invalid action: topics:publsh", 400))
    fields = {"token_file": str(tmp_path / "field.token"), "expires_on": "", "rights": ("topics:publsh=*",)}

    with pytest.raises(InvalidInput, match="publsh"):
        carry_out([Step(Change.ALTER, TOKEN, fields)], service, KeptTokens(None), nothing_more, print)

    assert service.asked == ["POST /v1/users/sensor/tokens/field"]
    assert not list(tmp_path.iterdir())


def test_tokens_whose_files_are_not_there_are_named(tmp_path: Path) -> None:
    said = declared(tmp_path)

    assert list(lost_tokens(said, [Step(Change.ADD, TOKEN, {})])) == []
    assert list(lost_tokens(said, [])) == [
        f"token sensor/field was made before, and {tmp_path}/field.token is not here; "
        "if it is lost: ams token revoke field --user sensor, and apply again"
    ]
    (tmp_path / "field.token").write_text("t0ken\n")
    assert list(lost_tokens(said, [])) == []


def test_an_identity_that_somebody_else_has_ends_it_with_the_reason() -> None:
    service = Service(AlreadyExists("Identity is already bound to a user", 409), wire.Bindings(bindings=[]))

    with pytest.raises(AlreadyExists, match="Identity is already bound"):
        carry_out(
            [Step(Change.ADD, IDENTITY, {"issuer": URL, "subject": "s"})],
            service,
            KeptTokens(None),
            nothing_more,
            print,
        )


def test_issuers_bindings_and_tokens_are_made_and_again_there_is_nothing_to_do(
    ams: Ams, files: Files, tmp_path: Path
) -> None:
    (tmp_path / "secret").write_text("s3cret\n")
    text = TEXT.replace("garden", "PROJECT").replace("checkin:", "PROJECT:").replace("sensor", "PROJECT-sensor")
    text = text.replace(URL, "https://PROJECT.example").replace("s-7", "PROJECT-s-7")
    readings = "{readings: {access: [PROJECT-sensor]}}"
    text += f"projects: {{PROJECT: {{topics: {readings}, members: {{PROJECT-sensor: [publisher]}}}}}}\n"

    said = files.settle(text)
    token = (tmp_path / "field.token").read_text().strip()

    assert "s3cret" not in said
    assert token not in said
    assert ams("publish", "readings", "--data", "dry", AMS_TOKEN=token).returncode == 0
    refused = files.apply(text.replace("2999", "2998"), "--yes")
    assert (refused.returncode, "--renew-tokens" in refused.stderr) == (2, True)
    key = str(tmp_path / "key.json")
    made = ams("token", "create", "key", "--user", f"{files.project}-sensor", "--google-file", key)
    assert made.returncode == 0, made.stderr
    renewed = files.apply(text.replace("2999", "2998"), "--yes", "--renew-tokens")
    assert renewed.returncode == 0, renewed.stderr
    assert (tmp_path / "field.token").read_text().strip() != token
    assert ams("token", "list", AMS_TOKEN=token).returncode == 3
    pruned = files.apply("users: {PROJECT-sensor: {tokens: {}, bindings: {}}}", "--yes", "--prune")
    assert [line[0] for line in pruned.stdout.splitlines()] == ["-", "-"]
    left = ams("token", "list", "--user", f"{files.project}-sensor", "-o", "json")
    assert [each["name"] for each in json.loads(left.stdout)["tokens"]] == ["key"]
    ams("issuers", "delete", files.project)
