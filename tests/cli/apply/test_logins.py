"""Issuers, bindings of users to identities, and named tokens in files of declarations."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest

from ams.cli.apply import KeptTokens, lines, lost_tokens
from ams.client import wire
from ams.client.errors import AlreadyExists, InvalidInput
from ams.client.wire import Call
from ams.core.errors import BadDocument
from ams.provisioning.declarations import Declared, Existing, Fields, ResourceKey, ResourceKind, Step, StepSign
from ams.provisioning.document import read_documents
from ams.provisioning.execution import CarryingOut, carry_out
from ams.provisioning.plan import PlanOptions, existing_issuer, plan
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
ISSUER, SENSOR = ResourceKey(ResourceKind.ISSUER, "", "checkin"), ResourceKey(ResourceKind.USER, "", "sensor")
IDENTITY, TOKEN = (
    ResourceKey(ResourceKind.IDENTITY, "sensor", "checkin"),
    ResourceKey(ResourceKind.TOKEN, "sensor", "field"),
)


def read_text_as_file(folder: Path, text: str = TEXT) -> Declared:
    (folder / "file.yaml").write_text(text)
    return read_documents([str(folder / "file.yaml")])


def existing_state(source: str = "registry", **token: Any) -> Existing:
    issuer = wire.Issuer(
        name="checkin", url=URL, audiences=["ams"], client_secret="***", create_users=True, source="registry",
        roles=[wire.RoleRule(entitlement=ENTITLEMENT, project="garden", roles=["consumer", "publisher"])],
    )  # fmt: skip
    fields: dict[ResourceKey, Fields] = {
        SENSOR: {}, ISSUER: {**existing_issuer(issuer), "source": source}, IDENTITY: {"issuer": URL, "subject": "s-7"},
        TOKEN: {"expires_on": "2999-05-01T00:00:00Z", "rights": (PUBLISHING,)} | token,
    }  # fmt: skip
    return Existing(fields)


def test_the_plan_of_an_empty_service_makes_issuers_before_what_needs_them_and_shows_no_secret(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s3cret")

    steps = plan(read_text_as_file(tmp_path), Existing())

    assert [(s.change, s.key) for s in steps] == [(StepSign.ADD, e) for e in (SENSOR, ISSUER, IDENTITY, TOKEN)]
    assert "s3cret" not in "\n".join(lines(steps))
    [secret] = plan(read_text_as_file(tmp_path), existing_state(), PlanOptions(set_secrets=True))
    assert secret == Step(StepSign.ALTER, ISSUER, {"client_secret": {"file": str(tmp_path / "secret")}})


NOTHING, PRUNE, RENEW = PlanOptions(), PlanOptions(prune=True), PlanOptions(renew_tokens=True)
EVERYTHING = PlanOptions(prune=True, renew_tokens=True)
KEY = existing_state(key_id="00" * 20)
OTHERS = "users: {sensor: {tokens: {}, bindings: {checkin: {issuer: 'https://issuer.example', subject: s-7}}}}"
WITHOUT = "users: {sensor: {bindings: {}, tokens: {}}}\nissuers: {}"
REMOVED = [Step(StepSign.REMOVE, TOKEN, {}), Step(StepSign.REMOVE, IDENTITY, {})]
OTHER_AUDIENCE = TEXT.replace("[ams]", "[other]")


@pytest.mark.parametrize(("text", "existing", "options", "steps"), [
    (TEXT, existing_state(), NOTHING, []), (TEXT, existing_state(), EVERYTHING, []), (OTHERS, KEY, EVERYTHING, []),
    (TEXT, existing_state("settings"), NOTHING, []),
    (OTHER_AUDIENCE, existing_state("registry"), NOTHING, [Step(StepSign.ALTER, ISSUER, {"audiences": ("other",)})]),
    (WITHOUT, existing_state(), NOTHING, []),
    (WITHOUT, existing_state(), PRUNE, [*REMOVED, Step(StepSign.REMOVE, ISSUER, {})]),
    (WITHOUT, existing_state("settings"), PRUNE, REMOVED), ("users: {sensor: {}}", existing_state(), PRUNE, []),
], ids=[
    "all is there", "all is there and anything may be done", "a key is no declared token",
    "an issuer of the settings", "another audience", "nothing is removed unasked", "what is not declared",
    "an issuer of the settings is not removed", "no section, no removal",
])  # fmt: skip
def test_a_plan_has_its_steps(tmp_path: Path, text: str, existing: Existing, options: PlanOptions, steps: list[Step]):
    assert plan(read_text_as_file(tmp_path, text), existing, options) == steps


def test_a_token_that_differs_is_made_anew_when_that_is_asked_for_and_what_is_not_said_stays(tmp_path: Path) -> None:
    for text, existing, end in (
        (TEXT, existing_state(rights="all"), "2999-05-01T00:00:00Z"),
        (TEXT, existing_state(expires_on=""), "2999-05-01T00:00:00Z"),
        ("users: {sensor: {tokens: {field: {token_file: f, expires_on: ~}}}}", existing_state(), ""),
    ):
        [step] = plan(read_text_as_file(tmp_path, text), existing, RENEW)
        assert (step.change, step.key) == (StepSign.ALTER, TOKEN)
        assert (step.fields["rights"], step.fields["expires_on"]) == ((PUBLISHING,), end)


ANEW = "is there with {}: give --renew-tokens"
A_KEY = "token sensor/field is a key, which is made by ams token create"


@pytest.mark.parametrize(("text", "existing", "options", "reason"), [
    (TEXT, existing_state(rights="all"), NOTHING, ANEW.format("other rights")),
    (TEXT, existing_state(expires_on=""), NOTHING, ANEW.format("another end")),
    (TEXT, existing_state(rights="all", expires_on=""), NOTHING, ANEW.format("another end and other rights")),
    (TEXT, KEY, NOTHING, A_KEY), (TEXT, KEY, EVERYTHING, A_KEY),
    (OTHER_AUDIENCE, existing_state("settings"), NOTHING,
     "issuer checkin is of the service's settings .* its audiences must"),
])  # fmt: skip
def test_bad_plans_are_refused(tmp_path: Path, text: str, existing: Existing, options: PlanOptions, reason: str):
    with pytest.raises(BadDocument, match=reason):
        plan(read_text_as_file(tmp_path, text), existing, options)


def test_an_issuer_keeps_what_is_not_declared_when_it_is_altered(tmp_path: Path) -> None:
    found = wire.Issuer(name="checkin", url=URL, clients=["app"], client_secret="***", source="registry")
    sent: list[Call[Any]] = []

    def ask(call: Call[Any]) -> Any:
        sent.append(call)
        return wire.Versioned(found, '"7"')

    CarryingOut(ask, print).do(Step(StepSign.ALTER, ISSUER, {"audiences": ("ams",)}))
    looked, put = sent

    assert (looked.path, put.method, put.headers) == ("/v1/issuers/checkin", "PUT", {"If-Match": '"7"'})
    body = json.loads(put.body or b"")
    assert (body["audiences"], body["clients"], body["client_secret"]) == (["ams"], ["app"], "***")


class Service:
    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.asked: list[str] = []

    def __call__(self, call: Call[Any]) -> Any:
        self.asked.append(f"{call.method} {call.path}")
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def test_a_token_made_anew_is_revoked_first_and_its_secret_goes_to_the_file(tmp_path: Path) -> None:
    made = wire.NamedToken(name="field", user="sensor", token="s3cret")
    service = Service(AlreadyExists("Token already exists", 409), None, made)
    fields = {"token_file": str(tmp_path / "field.token"), "expires_on": "", "rights": "all"}

    carry_out([Step(StepSign.ALTER, TOKEN, fields)], service, KeptTokens(None), list, print)

    path = "/v1/users/sensor/tokens/field"
    assert service.asked == [f"POST {path}", f"DELETE {path}", f"POST {path}"]
    assert (tmp_path / "field.token").read_text() == "s3cret\n"
    assert stat.S_IMODE((tmp_path / "field.token").stat().st_mode) == 0o600


def test_a_token_that_cannot_be_made_anew_is_not_revoked(tmp_path: Path) -> None:
    service = Service(InvalidInput("invalid action: topics:publsh", 400))
    fields = {"token_file": str(tmp_path / "field.token"), "expires_on": "", "rights": ("topics:publsh=*",)}

    with pytest.raises(InvalidInput, match="publsh"):
        carry_out([Step(StepSign.ALTER, TOKEN, fields)], service, KeptTokens(None), list, print)

    assert service.asked == ["POST /v1/users/sensor/tokens/field"]
    assert not list(tmp_path.iterdir())


def test_tokens_whose_files_are_not_there_are_named(tmp_path: Path) -> None:
    said = read_text_as_file(tmp_path)

    assert list(lost_tokens(said, [Step(StepSign.ADD, TOKEN, {})])) == []
    assert list(lost_tokens(said, [])) == [
        f"token sensor/field was made before, and {tmp_path}/field.token is not here; "
        "if it is lost: ams token revoke field --user sensor, and apply again"
    ]
    (tmp_path / "field.token").write_text("t0ken\n")
    assert list(lost_tokens(said, [])) == []


def test_an_identity_that_somebody_else_has_ends_it_with_the_reason() -> None:
    service = Service(AlreadyExists("Identity is already bound to a user", 409), wire.Bindings(bindings=[]))
    step = Step(StepSign.ADD, IDENTITY, {"issuer": URL, "subject": "s"})
    with pytest.raises(AlreadyExists, match="Identity is already bound"):
        carry_out([step], service, KeptTokens(None), list, print)


def test_issuers_bindings_and_tokens_are_made_once(ams: Ams, files: Files, tmp_path: Path) -> None:
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
