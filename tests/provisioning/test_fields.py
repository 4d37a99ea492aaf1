from pathlib import Path

import pytest

from ams.core.errors import BadDocument
from ams.core.yaml_tree import read_tree
from ams.provisioning.fields import push_fields
from ams.provisioning.plan import same_push

ENDPOINT = "type: http_endpoint\npushEndpoint: https://pump.example/in\n"
SHOWN = {
    "type": "http_endpoint",
    "pushEndpoint": "https://pump.example/in",
    "maxMessages": 1,
    "authorizationHeader": {"type": "autogen", "value": "secret"},
    "retryPolicy": {"type": "linear", "period": 3000},
    "verified": True,
    "base64Decode": False,
}


def push(folder: Path, text: str) -> object:
    path = folder / "push.yaml"
    path.write_text(text)
    root = read_tree(str(path))
    assert root
    return push_fields(root)


def test_a_push_configuration_is_spelled_as_the_api_spells_it(tmp_path: Path) -> None:
    more = "authorizationHeader: {type: disabled}\nretryPolicy: {period: 500}\nbase64Decode: true\nmaxMessages: 3\n"

    assert push(tmp_path, ENDPOINT + more) == {
        "type": "http_endpoint",
        "pushEndpoint": "https://pump.example/in",
        "authorizationHeader": {"type": "disabled"},
        "retryPolicy": {"type": "linear", "period": 500},
        "base64Decode": True,
        "maxMessages": 3,
    }
    assert push(tmp_path, "type: mattermost\nmattermostUrl: https://chat.example/hook") == {
        "type": "mattermost",
        "mattermostUrl": "https://chat.example/hook",
    }


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("type: http_endpoint", ":1: a push configuration of this type has a pushEndpoint"),
        ("type: mattermost", ":1: a push configuration of this type has a mattermostUrl"),
        ("pushEndpoint: https://pump.example", "the type of a push configuration is http_endpoint or mattermost"),
        ("type: smoke", "the type of a push configuration is"),
        ("type: http_endpoint\npushEndpoint: http://pump.example", ":2: a push endpoint is an https address"),
        (ENDPOINT + "mattermostUrl: x", ":3: unknown key 'mattermostUrl'"),
        (ENDPOINT + "maxMessages: 0", ":3: a whole number from 1"),
        (ENDPOINT + "verified: true", ":3: unknown key 'verified'"),
        (ENDPOINT + "authorizationHeader: {value: x}", ":3: unknown key 'value'"),
        (ENDPOINT + "authorizationHeader: {type: basic}", ":3: 'basic' is none of autogen, disabled"),
        (ENDPOINT + "retryPolicy: {type: never}", ":3: 'never' is none of linear, slowstart, exponential"),
        (ENDPOINT + "maxDeliveryAttempts: 5", ":3: maxDeliveryAttempts needs a deadLetterTopic"),
        (ENDPOINT + "deadLetterTopic: dead\nmaxDeliveryAttempts: 1001", ":4: a whole number from 1 to 1000"),
        (ENDPOINT + "maxOutstanding: 1001", ":3: a whole number from 1 to 1000"),
        (ENDPOINT + "retryPolicy: {type: slowstart, period: 5}", ":3: slowstart has no period"),
    ],
)
def test_what_the_service_would_refuse_or_drop_is_refused(tmp_path: Path, text: str, reason: str) -> None:
    with pytest.raises(BadDocument, match=reason):
        push(tmp_path, text)


def test_only_what_is_declared_is_compared() -> None:
    declared = {"type": "http_endpoint", "pushEndpoint": "https://pump.example/in"}

    assert same_push(declared, SHOWN)
    assert same_push(declared | {"authorizationHeader": {"type": "autogen"}}, SHOWN)
    assert not same_push(declared | {"retryPolicy": {"type": "slowstart"}}, SHOWN)
    assert not same_push(declared, {})


def test_dead_letters_are_compared_by_the_name_of_their_topic() -> None:
    declared = {"type": "http_endpoint", "pushEndpoint": "https://pump.example/in", "deadLetterTopic": "dead"}
    shown = {**SHOWN, "deadLetterTopic": "/projects/P/topics/dead", "maxDeliveryAttempts": 5}

    assert same_push(declared, shown)
    assert same_push(declared | {"maxDeliveryAttempts": 5}, shown)
    assert not same_push(declared | {"maxDeliveryAttempts": 6}, shown)
    assert not same_push(declared | {"deadLetterTopic": "other"}, shown)
    assert not same_push(declared, SHOWN)


def test_deliveries_at_a_time_are_compared() -> None:
    declared = {"type": "http_endpoint", "pushEndpoint": "https://pump.example/in", "maxOutstanding": 7}

    assert same_push(declared, {**SHOWN, "maxOutstanding": 7})
    assert not same_push(declared, SHOWN)


def test_pull_is_the_absence_of_a_type() -> None:
    assert same_push({}, {"type": "", "pushEndpoint": ""})
    assert not same_push({}, SHOWN)
