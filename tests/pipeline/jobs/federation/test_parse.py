"""Reading configurations and answers, and keeping their secrets out."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.federation.parse import parse, redacted

CONFIGURATION = {
    "id": 7,
    "deployment_type": "create",
    "tenant": "egi",
    "protocol": "oidc",
    "integration_environment": "demo",
    "external_id": 12,
    "service_name": "Seven",
    "client_id": "client-7",
    "client_secret": "secret-words",
    "token_endpoint_auth_method": "client_secret_basic",
    "access_token_validity_seconds": 3600,
}
ANSWER = {"id": "7", "state": "error", "status_code": 0, "deployer_name": "east", "error_description": "x" * 900}


def read(value: Any) -> dict[str, Any]:
    [record] = parse(json.dumps(value).encode(), {})
    return record


def test_a_configuration_is_kept_without_its_secret() -> None:
    record = read(CONFIGURATION)

    assert (record["id"], record["client"], record["external_id"]) == (7, "client-7", "12")
    assert "secret-words" not in repr(record)


def test_a_new_secret_alone_is_no_new_configuration_but_a_new_lifetime_is_one() -> None:
    digests = [
        read({**CONFIGURATION, **change})["digest"]
        for change in ({}, {"client_secret": "other"}, {"access_token_validity_seconds": 60})
    ]

    assert digests[0] == digests[1] != digests[2]


def test_an_answer_is_cut_to_a_readable_length() -> None:
    record = read(ANSWER)

    assert (record["id"], record["state"], record["status_code"], len(record["error"])) == (7, "error", 0, 500)


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"id": 7}, "neither a configuration nor an answer"),
        ({**CONFIGURATION, "id": None}, "id is missing"),
        ({**CONFIGURATION, "deployment_type": "explode"}, "deployment_type is none of create, edit, delete: 'explode'"),
        ({**CONFIGURATION, "protocol": ""}, "protocol is missing"),
        ({**ANSWER, "state": "fine"}, "state is none of deployed, error: 'fine'"),
    ],
)
def test_what_cannot_be_read_says_why(value: Any, reason: str) -> None:
    with pytest.raises(Broken) as broken:
        read(value)

    assert str(broken.value) == reason


def test_a_deletion_needs_no_protocol() -> None:
    assert read({"id": 7, "deployment_type": "delete"})["deployment_type"] == "delete"


def test_secrets_are_masked_at_any_depth_and_nothing_else_is_touched() -> None:
    told = {"a": [{"Client_Secret": "s", "jwks": {"keys": [1]}, "password": None}], "access_token_seconds": 5}

    assert json.loads(redacted(json.dumps(told).encode())) == {
        "a": [{"Client_Secret": "***", "jwks": "***", "password": None}],
        "access_token_seconds": 5,
    }
    assert redacted(b'{ "id" :  1 }') == b'{ "id" :  1 }'


@given(st.integers(min_value=0, max_value=400), st.text("abcdef0123", min_size=12))
def test_a_secret_is_not_kept_wherever_its_message_was_cut(length: int, secret: str) -> None:
    whole = json.dumps({**CONFIGURATION, "client_secret": f"#{secret}"}).encode()

    assert f"#{secret[:3]}".encode() not in redacted(whole[:length])
    assert f"#{secret[:3]}".encode() not in redacted(json.dumps(whole.decode()).encode())


@pytest.mark.parametrize(
    "data",
    [
        b'{"client_secret": "REAL", "client_secret": ""}',
        b'{"client\\u005fsecret": "REAL", "client_secret": null}',
        b'{"id": 7, "jwks": {"keys": [{"d": "REAL"}]}, ',
        b'{"registration_access_token": "REAL"',
        b'{"client_secret": "REAL", "x": ' + b"[" * 900 + b"]" * 900 + b"}",
        *('{"client_secret": "REAL"}'.encode(encoding) for encoding in ("utf-16", "utf-16-be", "utf-32")),
    ],
)
def test_a_secret_is_not_kept_of_a_message_of_an_odd_form_or_encoding(data: bytes) -> None:
    assert b"REAL" not in redacted(data).replace(b"\0", b"")


@pytest.mark.parametrize("field", ["x", "id", "external_id"])
def test_what_is_nested_too_deeply_is_broken(field: str) -> None:
    deep = b"[" * 900 + b"]" * 900
    with pytest.raises(Broken):
        parse(b'{"deployment_type": "create", "protocol": "oidc", "id": 7, "%s": %s}' % (field.encode(), deep), {})
