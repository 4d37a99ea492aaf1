"""Calls about named tokens of users; no part of the contract (docs/reference/tokens.md)."""

from collections.abc import Sequence

import msgspec

from ams.client.wire.call import Call, json_body, nothing, reader, segment, users_path
from ams.client.wire.values import Object


class Right(Object, frozen=True, kw_only=True, omit_defaults=True):
    """One thing a token is good for."""

    action: str
    """`KIND:VERB`, or `*`."""
    resource: str
    """`projects/P`, something in it such as `projects/P/topics/T`, or `*`."""


class NamedToken(Object, frozen=True, kw_only=True, omit_defaults=True):
    """A token of a user besides its own; `token` itself is told only when it is made."""

    name: str
    user: str
    created_on: str = ""
    created_by: str = ""
    expires_on: str = ""
    """Empty: never."""
    last_used: str = ""
    """To about a minute; empty: never."""
    rights: list[Right] | None = None
    """What it is good for, of what its user may do; None: all of it."""
    token: str = ""

    def __repr__(self) -> str:
        """Show no secret."""
        return f"NamedToken(name={self.name!r}, user={self.user!r})"


class NamedTokens(Object, frozen=True, kw_only=True, omit_defaults=True):
    """All named tokens of a user, oldest first."""

    tokens: list[NamedToken]


_token, _tokens = reader(NamedToken), reader(NamedTokens)


def list_tokens(user: str) -> Call[NamedTokens]:
    """Ask for the named tokens of a user."""
    return Call("GET", _path(user), _tokens)


def get_token(user: str, name: str) -> Call[NamedToken]:
    """Ask for one of them."""
    return Call("GET", _path(user, name), _token)


def create_token(
    user: str, name: str, *, expires_on: str = "", expires_in: int | None = None, rights: Sequence[Right] | None = None
) -> Call[NamedToken]:
    """Make a named token that is good until a time (RFC 3339), or for seconds; the answer holds it, this once.

    Without any of the two it never expires; without rights it is good for all that its user may do.
    """
    body: dict[str, object] = {}
    if expires_on:
        body["expires_on"] = expires_on
    if expires_in is not None:
        body["expires_in"] = expires_in
    if rights is not None:
        body["rights"] = [msgspec.structs.asdict(each) for each in rights]
    return Call("POST", _path(user, name), _token, json_body(body))


def revoke_token(user: str, name: str) -> Call[None]:
    """Take a named token away: it opens nothing any more."""
    return Call("DELETE", _path(user, name), nothing)


def _path(user: str, name: str | None = None) -> str:
    collection = f"{users_path(user)}/tokens"
    return collection if name is None else f"{collection}/{segment('token', name)}"
