"""OpenID Connect (`docs/reference/openid-connect.md`): issuers, and bindings of users to identities at them."""

from typing import Any

import msgspec

from ams.core import issuer
from ams.core.clock import optional_date, resource_date
from ams.core.names import BindingName, IssuerName
from ams.http.bodies import Reader, bad_request
from ams.http.routing import Call, Row, Versioned, shown_list
from ams.service import issuers
from ams.storage.registry import records
from ams.wire.users import Binding, BindingBody, Bindings, Issuer, IssuerBody, IssuerKeys, Issuers, RoleRule

_SHOWN_ONLY = frozenset({"name", "source", "keys"})  # fields of answers: the path names an issuer
_decoder = msgspec.json.Decoder(dict[str, Any])
_binding = Reader(BindingBody, bad_request)


class IssuerRoutes:
    """The routes of issuers."""

    def __init__(self, issuers: issuers.Issuers) -> None:
        self._issuers = issuers

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/issuers/{issuer}"
        return [
            Row("GET", "/issuers", "issuers:list", self.list, answers=Issuers),
            Row("GET", one, "issuers:show", self.show, answers=Issuer, versioned=True),
            Row("POST", one, "issuers:create", self.create, IssuerBody, Issuer),
            Row("PUT", one, "issuers:update", self.update, IssuerBody, Issuer, versioned=True),
            Row("DELETE", one, "issuers:delete", self.delete, versioned=True),
        ]

    async def list(self, call: Call) -> Issuers:
        """Answer all issuers."""
        return Issuers(await shown_list(await self._issuers.list(), _shown_issuer))

    async def show(self, call: Call) -> Versioned:
        """Answer an issuer."""
        found = await self._issuers.show(_name(call))
        return Versioned(_shown_issuer(found), issuers.without_secret(found.issuer))

    async def create(self, call: Call) -> Issuer:
        """Accept the tokens of another issuer."""
        wanted = _read(_name(call), await call.body())
        return _shown_issuer(await self._issuers.create(call.caller, wanted))

    async def update(self, call: Call) -> Issuer:
        """Replace what is set of an issuer."""
        wanted = _read(_name(call), await call.body())
        return _shown_issuer(await self._issuers.update(call.caller, wanted))

    async def delete(self, call: Call) -> None:
        """Refuse the tokens of an issuer from now on."""
        await self._issuers.delete(call.caller, _name(call))


class BindingRoutes:
    """The routes of bindings."""

    def __init__(self, bindings: issuers.Bindings) -> None:
        self._bindings = bindings

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        all_ = "/users/{user}/bindings"
        one = all_ + "/{binding}"
        return [
            Row("GET", all_, "bindings:list", self.list, answers=Bindings),
            Row("POST", one, "bindings:create", self.create, BindingBody, Binding),
            Row("DELETE", one, "bindings:delete", self.delete),
        ]

    async def list(self, call: Call) -> Bindings:
        """Answer the bindings of a user."""
        found = await self._bindings.list(call.caller, call.user)
        return Bindings(await shown_list(found, _shown_binding))

    async def create(self, call: Call) -> Binding:
        """Let an identity at an issuer log in as a user."""
        wanted = _binding.read(await call.body())
        made = await self._bindings.create(
            call.caller, call.user, BindingName(call.names["binding"]), wanted.issuer or "", wanted.subject or ""
        )
        return _shown_binding(made)

    async def delete(self, call: Call) -> None:
        """Let an identity log in no more."""
        await self._bindings.delete(call.caller, call.user, BindingName(call.names["binding"]))


def _name(call: Call) -> IssuerName:
    return IssuerName(call.names["issuer"])


def _read(name: IssuerName, body: bytes) -> issuer.Issuer:
    """Read a body as the file of issuers is read: an unknown field is refused, as a misspelled one asks for nothing.

    What only answers say is passed over, so that an answer may be changed and sent back.
    """
    try:
        given = _decoder.decode(body)
    except (ValueError, RecursionError):
        raise bad_request() from None
    fields = {field: value for field, value in given.items() if value is not None and field not in _SHOWN_ONLY}
    return issuer.read_issuer({**fields, "name": name})


def _shown_issuer(listed: issuers.ListedIssuer) -> Issuer:
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
        keys=IssuerKeys(listed.keys.ids, optional_date(listed.keys.fetched_on), listed.keys.failure),
    )


def _shown_binding(binding: records.Binding) -> Binding:
    return Binding(
        name=binding.name,
        user=binding.user,
        issuer=binding.issuer,
        subject=binding.subject,
        created_on=resource_date(binding.created_on),
        created_by=binding.created_by or "",
        by_login=binding.by_login,
    )
