"""What files declare of logging in: issuers, and of users their bindings to identities and their named tokens.

A secret is never in a file of declarations, nor in a plan: a file says where a secret is read from, and where that of a
new token is written to.
"""

import os
from collections.abc import Sequence
from typing import Any

from ams.cli import rights
from ams.cli.apply.authn import where
from ams.cli.apply.resources import Fields
from ams.cli.arguments import time_text
from ams.cli.exits import Usage
from ams.client import wire
from ams.client.wire.issuers import OF_SETTINGS
from ams.core.rights import is_resource
from ams.core.yaml_tree import Value, bad

CLIENT_SECRET = "client_secret"  # noqa: S105  # the name of a field
TOKEN_FILE = "token_file"  # noqa: S105  # the same

ALL = "all"
"""Of the user's rights: what a token has that is not reduced."""
Rights = tuple[str, ...] | str
"""As ACTION=RESOURCE, sorted; or `ALL`."""

_TEXTS = ("url", "jwks_url", "introspection_url", "client_id")
_LISTS = ("audiences", "clients", "entitlement_claims")
_INTROSPECT = ("never", "opaque", "always")
_ISSUER = (*_TEXTS, *_LISTS, "introspect", CLIENT_SECRET, "create_users", "roles")


def issuer_fields(value: Value, folder: str) -> Fields:
    """Return the fields of an issuer; names of files in them are relative to `folder`."""
    said = value.mapping(_ISSUER)
    if "url" not in said:
        raise bad(value.place, "an issuer says its url")
    fields: dict[str, Any] = {name: _text_or_none(said[name]) for name in _TEXTS if name in said}
    fields |= {name: said[name].texts() for name in _LISTS if name in said}
    if "introspect" in said:
        fields["introspect"] = said["introspect"].one_of(*_INTROSPECT)
    if CLIENT_SECRET in said:
        fields[CLIENT_SECRET] = where(said[CLIENT_SECRET], folder)
    if "create_users" in said:
        fields["create_users"] = said["create_users"].switch()
    if "roles" in said:
        fields["roles"] = _roles(said["roles"])
    return fields


def binding_fields(value: Value) -> Fields:
    """Return the fields of a binding of a user to an identity."""
    said = value.mapping(("issuer", "subject"))
    for name in ("issuer", "subject"):
        if name not in said:
            raise bad(value.place, f"a binding of a user says its {name}")
    return {name: each.text() for name, each in said.items()}


def token_fields(value: Value, folder: str) -> Fields:
    """Return the fields of a named token; `token_file` is relative to `folder`."""
    said = value.mapping(("expires_on", "rights", TOKEN_FILE))
    if TOKEN_FILE not in said:
        raise bad(value.place, f"a token says the {TOKEN_FILE} that gets it when it is made")
    fields: dict[str, Any] = {TOKEN_FILE: os.path.join(folder, said[TOKEN_FILE].text())}
    if "expires_on" in said:
        fields["expires_on"] = _time(said["expires_on"])
    if "rights" in said:
        fields["rights"] = _rights(said["rights"])
    return fields


def existing_issuer(found: wire.Issuer) -> Fields:
    """Return an issuer as it is there, spelled as files declare it."""
    fields: dict[str, Any] = {name: getattr(found, name) for name in (*_TEXTS, "introspect", "create_users", "source")}
    fields |= {name: tuple(sorted(set(getattr(found, name)))) for name in _LISTS}
    return {**fields, "roles": rights.rule_texts(found.roles), CLIENT_SECRET: bool(found.client_secret)}


def existing_token(found: wire.NamedToken) -> Fields:
    """Return a token as it is there, spelled as files declare it."""
    return {"expires_on": found.expires_on, "rights": rights_texts(found.rights)}


def is_of_settings(fields: Fields) -> bool:
    """Whether an issuer that is there cannot be changed over the API."""
    return fields.get("source") == OF_SETTINGS


def rights_texts(given: Sequence[wire.Right] | None) -> Rights:
    """Write rights as plans have them; None stands for all of the user's."""
    return ALL if given is None else tuple(sorted({rights.right_text(each) for each in given}))


def issuer(name: str, fields: Fields, there: wire.Issuer | None, secret: str | None) -> wire.Issuer:
    """Return an issuer as it is to be sent: what is declared, and what is there for the rest."""
    said = {field: fields[field] for field in fields if field not in (CLIENT_SECRET, "roles", *_LISTS)}
    said |= {field: list(fields[field]) for field in _LISTS if field in fields}
    if "roles" in fields:
        said["roles"] = rights.rules(fields["roles"])
    if secret is not None:
        said[CLIENT_SECRET] = secret
    before = {} if there is None else {each: getattr(there, each) for each in _ISSUER}
    return wire.Issuer(name=name, **(before | said))


def new_token(user: str, name: str, fields: Fields) -> wire.Call[wire.NamedToken]:
    """Return the call that makes a token."""
    said = fields.get("rights", ALL)
    given = None if said == ALL else [rights.right(each) for each in said]
    return wire.create_token(user, name, expires_on=fields.get("expires_on", ""), rights=given)


def _rights(value: Value) -> Rights:
    """Return rights as text; nothing said is all of the user's."""
    if value.is_null:
        return ALL
    found = [_right(each) for each in value.values()]
    if not found:
        raise bad(value.place, "a token is good for something; say ~ for all that its user may do")
    return tuple(sorted(set(found)))


def _right(value: Value) -> str:
    said = value.mapping(("action", "resource"))
    if len(said) != 2:
        raise bad(value.place, "a right has an action and a resource")
    action, resource = said["action"].text(), said["resource"].text().removeprefix("/")
    if not is_resource(resource):
        raise bad(said["resource"].place, f"{resource!r} is no resource such as projects/P/topics/T")
    if action != "*" and ":" not in action:
        raise bad(said["action"].place, f"{action!r} is no action such as topics:publish")
    return f"{action}={resource}"


def _roles(value: Value) -> tuple[str, ...]:
    return rights.rule_texts(_rule(each) for each in value.values())


def _rule(value: Value) -> wire.RoleRule:
    said = value.mapping(("entitlement", "project", "roles"))
    roles = [each.text() for each in said["roles"].values()] if "roles" in said else []
    if len(said) != 3 or not roles:
        raise bad(value.place, "a rule has an entitlement, a project and its roles there")
    return wire.RoleRule(entitlement=said["entitlement"].text(), project=said["project"].text(), roles=roles)


def _time(value: Value) -> str:
    """Return a time as the service writes it; empty for no end."""
    if value.is_null:
        return ""
    try:
        return time_text(value.text())
    except Usage as error:
        raise bad(value.place, str(error)) from None


def _text_or_none(value: Value) -> str:
    return "" if value.is_null else value.text()
