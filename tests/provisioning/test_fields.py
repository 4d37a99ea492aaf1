from pathlib import Path

import pytest

from ams.core.errors import BadDocument
from ams.core.yaml_tree import read_tree
from ams.provisioning.declared import Fields
from ams.provisioning.fields import push_fields
from ams.provisioning.plan import same_push

ENDPOINT = "type: http_endpoint\npushEndpoint: https://pump.example/in\n"
DECLARED = {"type": "http_endpoint", "pushEndpoint": "https://pump.example/in"}
SHOWN = DECLARED | {
    "maxMessages": 1, "authorizationHeader": {"type": "autogen", "value": "secret"},
    "retryPolicy": {"type": "linear", "period": 3000}, "verified": True, "base64Decode": False,
}  # fmt: skip
DEAD = {"deadLetterTopic": "/projects/P/topics/dead", "maxDeliveryAttempts": 5}


def push(folder: Path, text: str) -> object:
    path = folder / "push.yaml"
    path.write_text(text)
    root = read_tree(str(path))
    assert root
    return push_fields(root)


def test_a_push_configuration_is_spelled_as_the_api_spells_it(tmp_path: Path) -> None:
    more = "authorizationHeader: {type: disabled}\nretryPolicy: {period: 500}\nbase64Decode: true\nmaxMessages: 3\n"

    assert push(tmp_path, ENDPOINT + more) == {
        "type": "http_endpoint", "pushEndpoint": "https://pump.example/in", "base64Decode": True, "maxMessages": 3,
        "authorizationHeader": {"type": "disabled"}, "retryPolicy": {"type": "linear", "period": 500},
    }  # fmt: skip
    hook = {"type": "mattermost", "mattermostUrl": "https://chat.example/hook"}
    assert push(tmp_path, "type: mattermost\nmattermostUrl: https://chat.example/hook") == hook


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


@pytest.mark.parametrize(
    ("declared", "shown", "is_same"),
    [
        (DECLARED, SHOWN, True),
        (DECLARED | {"authorizationHeader": {"type": "autogen"}}, SHOWN, True),
        (DECLARED | {"retryPolicy": {"type": "slowstart"}}, SHOWN, False),
        (DECLARED, {}, False),
        (DECLARED | {"deadLetterTopic": "dead"}, SHOWN | DEAD, True),
        (DECLARED | {"deadLetterTopic": "dead", "maxDeliveryAttempts": 5}, SHOWN | DEAD, True),
        (DECLARED | {"deadLetterTopic": "dead", "maxDeliveryAttempts": 6}, SHOWN | DEAD, False),
        (DECLARED | {"deadLetterTopic": "other"}, SHOWN | DEAD, False),
        (DECLARED | {"deadLetterTopic": "dead"}, SHOWN, False),
        (DECLARED | {"maxOutstanding": 7}, SHOWN | {"maxOutstanding": 7}, True),
        (DECLARED | {"maxOutstanding": 7}, SHOWN, False),
        ({}, {"type": "", "pushEndpoint": ""}, True),
        ({}, SHOWN, False),
    ],
)
def test_only_what_is_declared_is_compared(declared: Fields, shown: Fields, is_same: bool) -> None:
    assert same_push(declared, shown) is is_same
