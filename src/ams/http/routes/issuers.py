"""OpenID Connect issuers over HTTP (docs/reference/openid-connect.md)."""

from collections.abc import Sequence
from typing import Any

import msgspec

from ams.core import issuer
from ams.core.clock import resource_date
from ams.core.names import IssuerName
from ams.http.routes import answers
from ams.http.routes.bodies import bad_request
from ams.http.routing import Call, Row
from ams.http.wire import Shape
from ams.identity.keys import KeysState
from ams.service import issuers


class RoleRuleBody(Shape):
    """Roles in a project for who has an entitlement."""

    entitlement: str | None = None
    project: str | None = None
    roles: list[str] | None = None


class IssuerBody(Shape):
    """All that is set of an issuer: what is not said gets its default. Names are spelled exactly so."""

    url: str | None = None
    audiences: list[str] | None = None
    clients: list[str] | None = None
    jwks_url: str | None = None
    introspect: str | None = None
    introspection_url: str | None = None
    client_id: str | None = None
    client_secret: str | None = None
    create_users: bool | None = None
    entitlement_claims: list[str] | None = None
    roles: list[RoleRuleBody] | None = None


class RoleRule(msgspec.Struct):
    """Roles in a project for who has an entitlement."""

    entitlement: str
    project: str
    roles: Sequence[str]


class IssuerKeys(msgspec.Struct, omit_defaults=True):
    """How it stands with an issuer's keys on the node that answers."""

    ids: Sequence[str]
    fetched_on: str = ""
    failure: str = ""


class Issuer(msgspec.Struct):
    """An issuer; its secret is shown as `***`."""

    name: str
    source: str
    url: str
    audiences: Sequence[str]
    clients: Sequence[str]
    jwks_url: str
    introspect: str
    introspection_url: str
    client_id: str
    client_secret: str
    create_users: bool
    entitlement_claims: Sequence[str]
    roles: Sequence[RoleRule]
    keys: IssuerKeys


class Issuers(msgspec.Struct):
    """All issuers, those of the settings first."""

    issuers: Sequence[Issuer]


_SHOWN_ONLY = frozenset({"name", "source", "keys"})
"""Fields of answers: the path names an issuer."""
_decoder = msgspec.json.Decoder(dict[str, Any])


class IssuerRoutes:
    """The routes of issuers."""

    def __init__(self, issuers: issuers.Issuers) -> None:
        self._issuers = issuers

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/issuers/{issuer}"
        return [
            Row("GET", "/issuers", "issuers:list", self.list, answers=Issuers),
            Row("GET", one, "issuers:show", self.show, answers=Issuer),
            Row("POST", one, "issuers:create", self.create, IssuerBody, Issuer),
            Row("PUT", one, "issuers:update", self.update, IssuerBody, Issuer),
            Row("DELETE", one, "issuers:delete", self.delete),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer all issuers."""
        return answers.encode(Issuers(await answers.each(await self._issuers.list(), _shown)))

    async def show(self, call: Call) -> bytes:
        """Answer an issuer."""
        return answers.encode(_shown(await self._issuers.show(_name(call))))

    async def create(self, call: Call) -> bytes:
        """Believe the tokens of another issuer."""
        said = _read(_name(call), await call.body())
        return answers.encode(_shown(await self._issuers.create(call.caller, said)))

    async def update(self, call: Call) -> bytes:
        """Replace what is set of an issuer."""
        said = _read(_name(call), await call.body())
        return answers.encode(_shown(await self._issuers.update(call.caller, said)))

    async def delete(self, call: Call) -> bytes:
        """Believe the tokens of an issuer no more."""
        await self._issuers.delete(call.caller, _name(call))
        return answers.EMPTY


def _name(call: Call) -> IssuerName:
    return IssuerName(call.names["issuer"])


def _read(name: IssuerName, body: bytes) -> issuer.Issuer:
    """Read a body as the file of issuers is read: an unknown field is refused, as a misspelled one asks for nothing.

    What only answers say is passed over, so that an answer may be changed and sent back.
    """
    try:
        said = _decoder.decode(body)
    except (ValueError, RecursionError):
        raise bad_request() from None
    fields = {field: value for field, value in said.items() if value is not None and field not in _SHOWN_ONLY}
    return issuer.read_issuer({**fields, "name": name})


def _shown(listed: issuers.Listed) -> Issuer:
    each = listed.issuer
    return Issuer(
        name=each.name,
        source=listed.source,
        url=each.url,
        audiences=each.audiences,
        clients=each.clients,
        jwks_url=each.jwks_url,
        introspect=each.introspect,
        introspection_url=each.introspection_url,
        client_id=each.client_id,
        client_secret=issuers.KEPT if each.client_secret else "",
        create_users=each.create_users,
        entitlement_claims=each.entitlement_claims,
        roles=[RoleRule(rule.entitlement, rule.project, rule.roles) for rule in each.roles],
        keys=_keys(listed.keys),
    )


def _keys(state: KeysState) -> IssuerKeys:
    fetched_on = resource_date(state.fetched_on) if state.fetched_on is not None else ""
    return IssuerKeys(state.ids, fetched_on, state.failure)
