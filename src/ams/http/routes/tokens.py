"""Named tokens of users over HTTP; no part of the contract."""

from collections.abc import Sequence

import msgspec

from ams.core.clock import Milliseconds, resource_date
from ams.core.errors import InvalidInput
from ams.core.names import TokenName
from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.http.wire import Shape
from ams.service.tokens import Tokens
from ams.storage.audit.event import moment
from ams.storage.registry import records


class RightBody(Shape):
    """One thing the token is good for; both are required."""

    action: str | None = None
    resource: str | None = None


class NewToken(Shape):
    """What a token is good for, and how long; absent: everything, for ever."""

    expires_on: str | None = None
    expires_in: int | None = None
    rights: list[RightBody] | None = None


class Right(msgspec.Struct):
    """One thing a token is good for: an action, and the resource it is for."""

    action: str
    resource: str


class Token(msgspec.Struct, omit_defaults=True):
    """A named token; `token` is its text, only in the answer that made it."""

    name: str
    user: str
    created_on: str
    created_by: str = ""
    expires_on: str = ""
    last_used: str = ""
    rights: Sequence[Right] | msgspec.UnsetType = msgspec.UNSET
    token: str = ""


class NamedTokens(msgspec.Struct):
    """The named tokens of a user, oldest first."""

    tokens: Sequence[Token]


_new_token = msgspec.json.Decoder(NewToken)


class TokenRoutes:
    """The routes of named tokens."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        all_, one = "/users/{user}/tokens", "/users/{user}/tokens/{token}"
        return [
            Row("GET", all_, "tokens:list", self.list, answers=NamedTokens),
            Row("GET", one, "tokens:show", self.show, answers=Token),
            Row("POST", one, "tokens:create", self.create, reads=NewToken, answers=Token),
            Row("DELETE", one, "tokens:revoke", self.revoke),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer the named tokens of a user, without their texts."""
        return answers.encode(NamedTokens([_shown(each) for each in await self._tokens.list(call.caller, call.user)]))

    async def show(self, call: Call) -> bytes:
        """Answer a named token, without its text."""
        return answers.encode(_shown(await self._tokens.show(call.caller, call.user, _name(call))))

    async def create(self, call: Call) -> bytes:
        """Make a named token; its text is in this answer and nowhere else."""
        wanted = _read(await call.body())
        given = wanted.rights
        made, text = await self._tokens.create(
            call.caller,
            call.user,
            _name(call),
            expires_on=_moment(wanted.expires_on),
            lifetime=None if wanted.expires_in is None else Milliseconds(wanted.expires_in * 1000),
            wanted=None if given is None else [(each.action or "", each.resource or "") for each in given],
        )
        return answers.encode(_shown(made, text))

    async def revoke(self, call: Call) -> bytes:
        """Remove a named token: it is dead at once."""
        await self._tokens.revoke(call.caller, call.user, _name(call))
        return answers.EMPTY


def _name(call: Call) -> TokenName:
    return TokenName(call.names["token"])


def _read(body: bytes) -> NewToken:
    """Read what is wanted; an empty body wants nothing.

    Names must be spelled as they are and unknown ones are refused, other than elsewhere: a misspelled `rights` would
    make a token that is good for everything.
    """
    if not body.strip():
        return NewToken()
    try:
        return _new_token.decode(body)
    except (ValueError, RecursionError):
        raise InvalidInput("Invalid Token Arguments") from None


def _moment(text: str | None) -> Milliseconds | None:
    if text is None:
        return None
    try:
        return moment(text)
    except (ValueError, OverflowError):
        raise InvalidInput("Invalid expires_on") from None


def _shown(token: records.NamedToken, text: str = "") -> Token:
    return Token(
        name=token.name,
        user=token.user,
        created_on=resource_date(token.created_on),
        created_by=token.created_by or "",
        expires_on=_date(token.expires_on),
        last_used=_date(token.last_used),
        rights=msgspec.UNSET if token.rights is None else [Right(*each) for each in token.rights],
        token=text,
    )


def _date(time: Milliseconds | None) -> str:
    return "" if time is None else resource_date(time)
