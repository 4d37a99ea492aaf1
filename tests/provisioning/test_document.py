import json
import textwrap
from pathlib import Path

import pytest

from ams.core.errors import BadDocument
from ams.core.yaml_tree import read_tree
from ams.provisioning.declarations import Declared, Fields, ResourceKey, ResourceKind
from ams.provisioning.document import push_fields, read_documents
from ams.provisioning.plan import same_push

GARDEN = """
users:
  keeper: {email: keeper@site.example, service_roles: [admin_viewer]}
projects:
  garden:
    description: What grows
    retention: 7d
    quotas: {topics: 50, schemaBytes: 16MiB, members: none}
    members:
      sensor: [publisher]
      keeper:
    schemas:
      reading: {type: JSON, schema: {type: object}, attributes: {required: [unit]}}
      grams: {type: avro, file: grams.avsc}
      ounces: {type: protobuf, file: ounces.proto}
    topics:
      readings: {schema: reading, retention: 12h, access: [sensor]}
      plain:
      bare: {schema: ~, retention: default, access: []}
    subscriptions:
      watering:
        topic: readings
        ackDeadline: 60
        push: {type: http_endpoint, pushEndpoint: "https://pump.example/in", maxMessages: 5}
        access: [keeper]
      pulled: {topic: plain, push: ~}
"""


def read_texts(folder: Path, text: str, *more: str) -> Declared:
    paths = [folder / f"{number}.yaml" for number in range(1 + len(more))]
    for path, each in zip(paths, (text, *more), strict=True):
        path.write_text(textwrap.dedent(each))
    return read_documents(map(str, paths))


def in_garden(text: str) -> str:
    return "projects:\n  garden:\n" + textwrap.indent(textwrap.dedent(text).strip("\n"), "    ")


def in_parallel(text: str) -> str:
    """Return a document with a parallel subscription that has this option on line 7."""
    if text.startswith("type"):
        return in_garden(f"subscriptions:\n  s:\n    topic: a\n    {text}")
    return in_garden("subscriptions:\n  s:\n    topic: a\n    type: parallel\n" + textwrap.indent(text, "    "))


def test_everything_that_can_be_declared_is_read_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "grams.avsc").write_text('{"type": "int"}')
    (tmp_path / "ounces.proto").write_text("message A {}")

    found = read_texts(tmp_path, GARDEN)

    assert found.fields == {
        ResourceKey(ResourceKind.USER, "", "keeper"): {"email": "keeper@site.example",
            "service_roles": ("admin_viewer",)},
        ResourceKey(ResourceKind.PROJECT, "", "garden"): {
            "description": "What grows", "retention": 604_800,
            "quotas": {"topics": 50, "schemaBytes": 2**24, "members": 0},
        },
        ResourceKey(ResourceKind.MEMBER, "garden", "sensor"): {"roles": ("publisher",)},
        ResourceKey(ResourceKind.MEMBER, "garden", "keeper"): {"roles": ()},
        ResourceKey(ResourceKind.SCHEMA, "garden", "reading"): {
            "type": "json", "schema": {"type": "object"}, "attributes": {"required": ["unit"]},
        },
        ResourceKey(ResourceKind.SCHEMA, "garden", "grams"): {"type": "avro", "schema": {"type": "int"},
            "attributes": {}},
        ResourceKey(ResourceKind.SCHEMA, "garden", "ounces"): {
            "type": "protobuf", "schema": {"definition": "message A {}"}, "attributes": {},
        },
        ResourceKey(ResourceKind.TOPIC, "garden", "readings"): {"schema": "reading", "retention": 43_200,
            "access": ("sensor",)},
        ResourceKey(ResourceKind.TOPIC, "garden", "plain"): {},
        ResourceKey(ResourceKind.TOPIC, "garden", "bare"): {"schema": "", "retention": 0, "access": ()},
        ResourceKey(ResourceKind.SUBSCRIPTION, "garden", "watering"): {
            "topic": "readings", "ackDeadline": 60, "access": ("keeper",),
            "push": {"type": "http_endpoint", "pushEndpoint": "https://pump.example/in", "maxMessages": 5},
        },
        ResourceKey(ResourceKind.SUBSCRIPTION, "garden", "pulled"): {"topic": "plain", "push": {}},
    }  # fmt: skip
    assert found.projects == ["garden"]
    assert {kind for _, kind in found.sections} == {
        ResourceKind.MEMBER,
        ResourceKind.SCHEMA,
        ResourceKind.TOPIC,
        ResourceKind.SUBSCRIPTION,
    }
    assert {str(each.target) for each in found.references} == {
        "schema garden/reading", "topic garden/readings", "topic garden/plain", "member garden/sensor",
        "member garden/keeper",
    }  # fmt: skip
    place = found.places[ResourceKey(ResourceKind.SUBSCRIPTION, "garden", "watering")]
    assert GARDEN.splitlines()[place.line - 1] == "      watering:"
    [place] = [each.place for each in found.references if each.target.name == "reading"]
    assert "schema: reading" in GARDEN.splitlines()[place.line - 1]


def test_several_files_are_one_declaration(tmp_path: Path) -> None:
    found = read_texts(tmp_path, "projects: {garden: {description: What grows, topics: {a: }}}",
                       "projects: {garden: {retention: 365d, topics: {b: }}, shed: }")  # fmt: skip

    assert found.projects == ["garden", "shed"]
    assert found.fields[ResourceKey(ResourceKind.PROJECT, "", "garden")] == {
        "description": "What grows",
        "retention": 31_536_000,
    }
    assert {key.name for key in found.fields if key.kind is ResourceKind.TOPIC} == {"a", "b"}


def test_two_files_cannot_say_the_same_thing(tmp_path: Path) -> None:
    first = json.dumps({"projects": {"garden": {"description": "What grows", "topics": {"a": None}}}})
    for second, reason in (
        ("topics:\n      a:\n", "1.yaml:4: topic garden/a is declared already, at"),
        ("description: x\n", "1.yaml:2: description of project garden is declared already"),
    ):
        with pytest.raises(BadDocument, match=reason):
            read_texts(tmp_path, first, f"projects:\n  garden:\n    {second}")


WRONG = [
    ("topic: {}", ":1: unknown key 'topic'; there are users, projects"),
    ("projects: [garden]", ":1: names with values are expected here, not a list"),
    ("projects:\n  gar den:\n", ":2: 'gar den' is no name"),
    ("users:\n  keeper: {token: abc}\n", ":2: unknown key 'token'"),
    ("users:\n  keeper: {email: ''}\n", ":2: an empty text changes nothing"),
    ("users:\n  keeper:\n    service_roles: service_admin\n", ":3: a list is expected here, not 'service_admin'"),
    (in_garden("queues: {}"), ":3: unknown key 'queues'; there are description, retention, quotas, strictData, "),
    (in_garden("quotas:\n  pages: 1"), ":4: unknown key 'pages'; there are storedBytes, publishBytesPerSecond"),
    (in_garden("quotas:\n  topics: many"), ":4: 'many' is no limit such as 100 or 64MiB, nor 'none'"),
    (in_garden("retention: soon"), ":3: 'soon' is no duration of whole seconds such as 7d, 12h or 90s"),
    (in_garden("retention: 366d"), ":3: '366d' is too long: messages are kept for at most 365d"),
    (in_garden("members:\n  sensor:\n  - publisher\n  - gardener"),
     ":6: 'gardener' is no role in a project: consumer, "),
    (in_garden("members:\n  sensor: [publisher, publisher]"), ":4: 'publisher' is said twice"),
    (in_garden("topics:\n  a:\n  b:\n  a:"), ":6: 'a' is said twice"),
    (in_garden("subscriptions:\n  s:"), ":4: a subscription must name its topic"),
    (in_garden("subscriptions:\n  s:\n    topic: a\n    ackDeadline: 601"), ":6: a whole number from 0 to 600"),
    (in_parallel("type: Parallel"), ":6: 'Parallel' is none of ordered, parallel"),
    (in_garden("subscriptions:\n  s:\n    topic: a\n    filter: attributes:x"),
     ":6: filter is of parallel subscriptions: say type"),
    (in_parallel("ackDeadline: 9"), ":7: a parallel subscription has 10 seconds or more"),
    (in_parallel("retryPolicy: {minimumBackoff: 1}"), ":7: '1' is no span such as 10s"),
    (in_parallel("retryPolicy: {minimumBackoff: 20s, maximumBackoff: 19s}"),
     ":7: Field minimumBackoff (10s if absent) should not be more"),
    (in_parallel("deadLetterPolicy: {}"), ":7: Field deadLetterPolicy needs a deadLetterTopic"),
    (in_parallel("filter: a = b"), ":7: Invalid filter at character 1: expected NOT"),
    (in_parallel("enableMessageOrdering: 1"), ":7: true or false is expected here"),
    (in_parallel("expirationPolicy: {ttl: 1s}"), ":7: Field ttl of expirationPolicy should be 86400s or more"),
    (in_garden("schemas:\n  x: {type: xml, attributes: {a: 1}}"), ":4: the type of a schema is json, avro, protobuf"),
    (in_garden("schemas:\n  x: {schema: {}, file: y}"), ":4: give the schema here or in a file, not both"),
    (in_garden("schemas:\n  x: {file: nowhere.json}"), "nowhere.json: No such file"),
    (in_garden("schemas:\n  x:"), ":4: a schema says something: give it a schema, a file or attributes"),
    (in_garden("schemas:\n  x: {file: text.json}"), "text.json is not JSON"),
    (in_garden("schemas:\n  x: {file: deep.json}"), "deep.json is not JSON"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), WRONG, ids=[reason for _, reason in WRONG])
def test_what_is_wrong_is_said_with_file_and_line(tmp_path: Path, text: str, reason: str) -> None:
    (tmp_path / "text.json").write_text("{")
    (tmp_path / "deep.json").write_text("[" * 100_000)

    with pytest.raises(BadDocument) as raised:
        read_texts(tmp_path, text)

    assert reason in str(raised.value)
    assert str(raised.value).startswith(str(tmp_path))


def test_options_are_read_as_the_service_shows_them(tmp_path: Path) -> None:
    text = in_parallel(
        "retryPolicy: {minimumBackoff: 0.5s}\ndeadLetterPolicy: {deadLetterTopic: b}\nfilter: attributes:a\n"
        "retainAckedMessages: true\nexpirationPolicy: {ttl: 86400.0s}\nmessageRetentionDuration: ~"
    )
    found = read_texts(tmp_path, text)

    assert found.fields[ResourceKey(ResourceKind.SUBSCRIPTION, "garden", "s")] == {
        "topic": "a", "type": "parallel", "retryPolicy": {"minimumBackoff": "0.500s", "maximumBackoff": "600s"},
        "deadLetterPolicy": {"deadLetterTopic": "b", "maxDeliveryAttempts": 5}, "filter": "attributes:a",
        "retainAckedMessages": True, "expirationPolicy": {"ttl": "86400s"}, "messageRetentionDuration": "",
    }  # fmt: skip
    assert ResourceKey(ResourceKind.TOPIC, "garden", "b") in {each.target for each in found.references}


METHODS = "service_types: {{a: {{hosts: [h], auth_methods: {{{}}}}}}}"
TOKENS = "users: {{a: {{tokens: {{{}}}}}}}"
ON_ONE_LINE = [
    ("issuers: {a: {audiences: [x]}}", "says its url"),
    ("issuers: {a: {url: u, client_secret: s3cret}}", "not in this file"),
    ("issuers: {a: {url: u, introspect: often}}", "is none of never"),
    ("issuers: {a: {url: u, roles: [{entitlement: e, project: p, roles: []}]}}", "a rule has"),
    ("users: {a: {bindings: {b: {issuer: u}}}}", "says its subject"), (TOKENS.format("t: {}"), "token_file"),
    (TOKENS.format("t: {token_file: f, rights: []}"), "good for something"),
    (TOKENS.format("t: {token_file: f, rights: [{action: x:y}]}"), "an action and a resource"),
    (TOKENS.format("t: {token_file: f, rights: [{action: x:y, resource: t}]}"), "is no resource"),
    (TOKENS.format("t: {token_file: f, rights: [{action: x, resource: '*'}]}"), "is no action"),
    (TOKENS.format("t: {token_file: f, expires_on: soon}"), "is no time"),
    (TOKENS.format("t: {token_file: f, token: s3cret}"), "unknown key"),
    (TOKENS.format("t: {token_file: f}, u: {token_file: ./f}"), "gets another token already, at .*:1"),
    ("service_types: {a/b: {hosts: [h]}}", "is no name"), ("service_types: {a: {}}", "names its hosts"),
    ("service_types: {a: {hosts: [h], auth_method: x}}", "none of headers, api-key"),
    (METHODS.format("i: {access_key: {env: X}}"), "i is no host"),
    (METHODS.format("h: {port: 1}"), "has headers, or an access_key"),
    (METHODS.format("h: {access_key: s3cret}"), "is not in this file"),
    ("bindings: {a: {host: h, auth_identifier: /CN=x, user: u}}", "says its service_type"),
    ("bindings: {a: {service_type: t, host: h, auth_identifier: x, user: u}}", "distinguished name"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), ON_ONE_LINE)
def test_what_is_wrong_with_logins_is_said_with_its_line_and_no_secret(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(BadDocument, match=rf"0.yaml:1: .*{reason}") as raised:
        read_texts(tmp_path, text)
    assert "s3cret" not in str(raised.value)


ENDPOINT = "type: http_endpoint\npushEndpoint: https://pump.example/in\n"
PUSH = {"type": "http_endpoint", "pushEndpoint": "https://pump.example/in"}
SHOWN_PUSH = PUSH | {
    "maxMessages": 1, "authorizationHeader": {"type": "autogen", "value": "secret"},
    "retryPolicy": {"type": "linear", "period": 3000}, "verified": True, "base64Decode": False,
}  # fmt: skip
DEAD = {"deadLetterTopic": "/projects/P/topics/dead", "maxDeliveryAttempts": 5}


def read_push(folder: Path, text: str) -> object:
    (folder / "push.yaml").write_text(text)
    root = read_tree(str(folder / "push.yaml"))
    assert root
    return push_fields(root)


def test_a_push_configuration_is_spelled_as_the_api_spells_it(tmp_path: Path) -> None:
    more = "authorizationHeader: {type: disabled}\nretryPolicy: {period: 500}\nbase64Decode: true\nmaxMessages: 3\n"

    assert read_push(tmp_path, ENDPOINT + more) == {
        "type": "http_endpoint", "pushEndpoint": "https://pump.example/in", "base64Decode": True, "maxMessages": 3,
        "authorizationHeader": {"type": "disabled"}, "retryPolicy": {"type": "linear", "period": 500},
    }  # fmt: skip


@pytest.mark.parametrize(("text", "reason"), [
    ("type: http_endpoint", ":1: a push configuration of this type has a pushEndpoint"),
    ("type: mattermost", ":1: a push configuration of this type has a mattermostUrl"),
    ("pushEndpoint: https://pump.example", "the type of a push configuration is http_endpoint or mattermost"),
    ("type: http_endpoint\npushEndpoint: http://pump.example", ":2: a push endpoint is an https address"),
    (ENDPOINT + "mattermostUrl: x", ":3: unknown key 'mattermostUrl'"),
    (ENDPOINT + "maxMessages: 0", ":3: a whole number from 1"),
    (ENDPOINT + "authorizationHeader: {value: x}", ":3: unknown key 'value'"),
    (ENDPOINT + "authorizationHeader: {type: basic}", ":3: 'basic' is none of autogen, disabled"),
    (ENDPOINT + "retryPolicy: {type: never}", ":3: 'never' is none of linear, slowstart, exponential"),
    (ENDPOINT + "maxDeliveryAttempts: 5", ":3: maxDeliveryAttempts needs a deadLetterTopic"),
    (ENDPOINT + "deadLetterTopic: dead\nmaxDeliveryAttempts: 1001", ":4: a whole number from 1 to 1000"),
    (ENDPOINT + "retryPolicy: {type: slowstart, period: 5}", ":3: slowstart has no period"),
])  # fmt: skip
def test_what_the_service_would_refuse_or_drop_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(BadDocument, match=reason):
        read_push(tmp_path, text)


@pytest.mark.parametrize(("said", "shown", "is_same"), [
    (PUSH, SHOWN_PUSH, True), (PUSH | {"authorizationHeader": {"type": "autogen"}}, SHOWN_PUSH, True),
    (PUSH | {"retryPolicy": {"type": "slowstart"}}, SHOWN_PUSH, False),
    (PUSH | {"deadLetterTopic": "dead"}, SHOWN_PUSH | DEAD, True),
    (PUSH | {"deadLetterTopic": "dead", "maxDeliveryAttempts": 6}, SHOWN_PUSH | DEAD, False),
    (PUSH | {"deadLetterTopic": "dead"}, SHOWN_PUSH, False),
    (PUSH | {"maxOutstanding": 7}, SHOWN_PUSH | {"maxOutstanding": 7}, True),
    ({}, {"type": "", "pushEndpoint": ""}, True), ({}, SHOWN_PUSH, False),
])  # fmt: skip
def test_only_what_is_declared_is_compared(said: Fields, shown: Fields, is_same: bool) -> None:
    assert same_push(said, shown) is is_same
