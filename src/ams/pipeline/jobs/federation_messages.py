"""Parses messages between a federation registry and its deployers, and removes secrets before storage.

- A *configuration* goes from the registry to the deployers: the service `id` shall be created, edited or deleted. It
  travels with the secrets of the services it configures.
- An *answer* comes back from a deployer: what became of it.

A field that fills no column and is not known to fill none is named in `not_taken`: nothing is dropped without a word.
"""

import hashlib
import re
from collections.abc import Iterable, Mapping
from contextlib import suppress
from typing import Any

import msgspec

from ams.pipeline.errors import Broken
from ams.pipeline.jobs import fields

MASK = "***"
_WORDS = ("secret", "password", "private_key")
_WHOLE = ("jwks", "access_token", "registration_access_token")
"""Fields without such a word that may hold a key; lifetimes of tokens are none."""
_SECRET = re.compile(rf"{'|'.join(_WORDS)}|^({'|'.join(_WHOLE)})\Z", re.IGNORECASE)
_ANY = re.compile("|".join("\0*".join(word) for word in (*_WORDS, *_WHOLE)).encode(), re.IGNORECASE)
"""Any of these, also in an encoding of two or four bytes a letter."""


def mask_secrets(value: Any) -> Any:
    """Return a JSON value with every field that may hold a secret replaced by `MASK`, at any depth."""
    if isinstance(value, list):
        return [mask_secrets(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {name: MASK if inner and _SECRET.search(name) else mask_secrets(inner) for name, inner in value.items()}


def redact_payload(data: bytes) -> bytes:
    """Return a payload without secrets: JSON is masked; other data is cut before the first suspicious word."""
    with suppress(Broken):
        data = fields.in_utf8(data)
    try:
        value = msgspec.json.decode(data)
        safe = mask_secrets(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        value = None
    if not isinstance(value, dict | list):
        found = _ANY.search(data)
        return data[: found.start()] if found else data
    # A duplicate field: the decoded value lacks the first one.
    harmless = safe == value and not _ANY.search(data) and b"\\" not in data
    return data if harmless else msgspec.json.encode(safe)


CONFIGURATION = fields.names(
    text="tenant=tenant environment=integration_environment service_name=service_name protocol=protocol"
    " client=client_id|entity_id"
)
ANSWER = fields.names(whole="status_code=status_code", text="client=client_id")

TAKEN = {  # fields that fill columns, by the kind of a message
    "configuration": fields.field_names("id external_id deployment_type", CONFIGURATION),
    "answer": fields.field_names("id external_id state deployer_name error_description", ANSWER),
}
NOT_TAKEN = {  # fields that are known and fill no column; those of configurations make a new version all the same
    "configuration": fields.field_names(
        "service_description logo_uri policy_uri aup_uri website_url country contacts created_at application_type "
        "organization_id organization_name organization_url "
        "client_secret jwks jwks_uri redirect_uris post_logout_redirect_uris scope grant_types "
        "token_endpoint_auth_method token_endpoint_auth_signing_alg code_challenge_method allow_introspection "
        "reuse_refresh_token clear_access_tokens_on_refresh id_token_timeout_seconds "
        "access_token_validity_seconds refresh_token_validity_seconds device_code_validity_seconds "
        "metadata_url requested_attributes"
    ),
    "answer": fields.field_names("agent_id"),
}
_ERROR_CHARACTERS = 500


def parse(data: bytes, attributes: Mapping[str, str]) -> Iterable[fields.Record]:
    """Return the message's one configuration or answer, without secrets."""
    record = fields.json_object(data)
    if "deployment_type" not in record and "state" not in record:
        raise Broken("neither a configuration nor an answer")
    found = _configuration(record) if "deployment_type" in record else _answer(record)
    number, external = fields.whole(record, "id"), record.get("external_id")
    if number is None:
        raise Broken("id is missing")
    # The id that the identity server knows the service by is a number with some, a text with others.
    external = str(external) if type(external) is int else fields.text(record, "external_id")
    others = fields.unknown_fields(record, TAKEN[found["kind"]] | NOT_TAKEN[found["kind"]])
    return [{**found, "id": number, "external_id": external, "not_taken": others}]


def _configuration(record: fields.Record) -> fields.Record:
    kind = fields.one_of(fields.needed(record, "deployment_type"), "deployment_type", ("create", "edit", "delete"))
    if kind != "delete":
        fields.one_of(fields.needed(record, "protocol"), "protocol", ("oidc", "saml"))
    try:  # configurations are told apart by all but their secrets, of which not even a digest is kept
        told = msgspec.json.encode(mask_secrets(record), order="sorted")
    except RecursionError:
        raise Broken("nested too deeply") from None
    digest = hashlib.sha256(told).hexdigest()[:32]
    own = {"kind": "configuration", "deployment_type": kind, "digest": digest}
    return own | fields.read(record, CONFIGURATION)


def _answer(record: fields.Record) -> fields.Record:
    own = {
        "kind": "answer",
        "state": fields.one_of(fields.needed(record, "state"), "state", ("deployed", "error")),
        "deployer": fields.text(record, "deployer_name") or "",
        "error": (fields.free_text(record, "error_description") or "")[:_ERROR_CHARACTERS] or None,
    }
    return own | fields.read(record, ANSWER)
