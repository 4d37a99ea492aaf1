"""OpenID Connect (`docs/reference/openid-connect.md`): issuers, and bindings of users to identities."""

from typing import Any

import msgspec

from ams.core import issuer
from ams.core.clock import optional_date, resource_date
from ams.core.names import BindingName, IssuerName
from ams.http.bodies import BodyReader, bad_request
from ams.http.routing import Call, Versioned, shown_list, wire_record
from ams.service import issuers
from ams.storage.registry import records
from ams.wire.users import Binding, BindingBody, Bindings, Issuer, IssuerKeys, Issuers, RoleRule

_ANSWER_FIELDS = frozenset({"name", "source", "keys"})  # fields of answers only: the path has the issuer's name
_decoder = msgspec.json.Decoder(dict[str, Any])
_binding = BodyReader(BindingBody, bad_request)


class IssuerRoutes:
    """The routes of issuers."""

    def __init__(self, issuers: issuers.Issuers) -> None:
        self._issuers = issuers

    async def issuers_list(self, call: Call) -> Issuers:
        return Issuers(await shown_list(await self._issuers.list(), _shown_issuer))

    async def issuers_show(self, call: Call) -> Versioned:
        found = await self._issuers.show(_name(call))
        return Versioned(_shown_issuer(found), issuers.without_secret(found.issuer))

    async def issuers_create(self, call: Call) -> Issuer:
        wanted = _read_issuer(_name(call), await call.body())
        return _shown_issuer(await self._issuers.create(call.caller, wanted))

    async def issuers_update(self, call: Call) -> Issuer:
        wanted = _read_issuer(_name(call), await call.body())
        return _shown_issuer(await self._issuers.update(call.caller, wanted))

    async def issuers_delete(self, call: Call) -> None:
        await self._issuers.delete(call.caller, _name(call))


class BindingRoutes:
    """The routes of bindings."""

    def __init__(self, bindings: issuers.IdentityBindings) -> None:
        self._bindings = bindings

    async def bindings_list(self, call: Call) -> Bindings:
        found = await self._bindings.list(call.caller, call.user)
        return Bindings(await shown_list(found, _shown_binding))

    async def bindings_create(self, call: Call) -> Binding:
        wanted = _binding.read(await call.body())
        made = await self._bindings.create(
            call.caller, call.user, BindingName(call.names["binding"]), wanted.issuer or "", wanted.subject or ""
        )
        return _shown_binding(made)

    async def bindings_delete(self, call: Call) -> None:
        await self._bindings.delete(call.caller, call.user, BindingName(call.names["binding"]))


def _name(call: Call) -> IssuerName:
    return IssuerName(call.names["issuer"])


def _read_issuer(name: IssuerName, body: bytes) -> issuer.Issuer:
    """Parse a body like the file of issuers: unknown fields are refused, because a misspelled one would have no effect.

    Fields of answers are ignored, so that an answer may be changed and sent back.
    """
    try:
        given = _decoder.decode(body)
    except (ValueError, RecursionError):
        raise bad_request() from None
    fields = {field: value for field, value in given.items() if value is not None and field not in _ANSWER_FIELDS}
    return issuer.read_issuer({**fields, "name": name})


def _shown_issuer(listed: issuers.ListedIssuer) -> Issuer:
    secret = issuers.KEPT if listed.issuer.client_secret else ""
    roles = [wire_record(RoleRule, rule) for rule in listed.issuer.roles]
    keys = wire_record(IssuerKeys, listed.keys, fetched_on=optional_date(listed.keys.fetched_on))
    return wire_record(Issuer, listed.issuer, source=listed.source, client_secret=secret, roles=roles, keys=keys)


def _shown_binding(binding: records.Binding) -> Binding:
    made_on = resource_date(binding.created_on)
    return wire_record(Binding, binding, created_on=made_on, created_by=binding.created_by or "")
