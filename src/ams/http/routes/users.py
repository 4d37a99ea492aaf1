"""Users (contract 5), their named tokens, registrations (contract 6), and OpenID Connect: issuers, and bindings of
users to identities there (`docs/reference/openid-connect.md`).
"""

from collections.abc import Callable, Sequence
from dataclasses import asdict
from functools import partial
from typing import Any

import msgspec

from ams.access.admission import Admission
from ams.core import issuer
from ams.core.clock import Milliseconds
from ams.core.errors import InvalidInput
from ams.core.names import IssuerName
from ams.core.public_keys import PublicKey, client_email
from ams.http.bodies import bad_request, first_value, strings
from ams.http.routing import Call, Versioned, forward, page_request, shown_list, shown_page, wire_record
from ams.service import issuers
from ams.service.users import Registrations, Tokens, Users
from ams.storage.audit.event import moment
from ams.storage.registry import records
from ams.wire import users as wire
from ams.wire.base import Nothing

_BAD_USER_TEXT = "Invalid User Arguments"
_new_token = msgspec.json.Decoder(wire.NewToken)
_ANSWER_FIELDS = frozenset({"name", "source", "keys"})  # fields of answers only: the path has the issuer's name
_new_issuer = msgspec.json.Decoder(dict[str, Any])


class UserRoutes:
    """The routes of users, their named tokens, registrations, issuers, and bindings."""

    def __init__(
        self, users: Users, admission: Admission, tokens: Tokens, registrations: Registrations,
        issuers: issuers.Issuers, bindings: issuers.IdentityBindings,
    ) -> None:  # fmt: skip
        self._users, self._admission, self._tokens, self._registrations = users, admission, tokens, registrations
        self._issuers, self._bindings = issuers, bindings
        self.issuers_delete = forward(issuers.delete, "issuer")
        self.bindings_delete = forward(bindings.delete, "user", "binding")
        self.users_show = forward(users.show, "user", show=versioned_user)
        self.users_by_token = forward(users.by_token, "token", show=shown_user)
        self.users_by_uuid = forward(users.by_uuid, "uuid", show=shown_user)
        self.users_refresh_token = forward(users.refresh_token, "user", show=shown_user)
        self.users_delete = forward(users.delete, "user")
        self.tokens_list = forward(
            tokens.list, "user", show=lambda found: wire.NamedTokens([*map(_shown_token, found)])
        )
        self.tokens_show = forward(tokens.show, "user", "token", show=_shown_token)
        self.tokens_revoke = forward(tokens.revoke, "user", "token")
        self.registrations_accept_new_user = forward(registrations.accept, "uuid", show=shown_user)

    async def users_list(self, call: Call) -> wire.Users:
        project = await self._users.project_filter(call.parameter("project") or "")
        details = call.parameter("details") == "true"
        page = await self._users.list(call.caller, page_request(call), project=project, details=details)
        return await shown_page(wire.Users, "users", page, shown_user)

    async def users_profile(self, call: Call) -> wire.User:
        return shown_user(await self._users.profile(await self._admission.admit_oneself(call.token)))

    async def users_create(self, call: Call) -> wire.User:
        return shown_user(await self._users.create(call.caller, call.user, await _read_details(call)))

    async def users_update(self, call: Call) -> wire.User:
        return shown_user(await self._users.update(call.caller, call.user, await _read_details(call)))

    async def tokens_create(self, call: Call) -> wire.Token:
        wanted = _read_new_token(await call.body())
        given, expires_on = wanted.rights, _moment(wanted.expires_on)
        lifetime = None if wanted.expires_in is None else Milliseconds(wanted.expires_in * 1000)
        rights = None if given is None else [(each.action or "", each.resource or "") for each in given]
        key = None if wanted.public_key is None else PublicKey.read(wanted.public_key)
        made, text = await self._tokens.create(
            call.caller, call.user, call.named_token, expires_on=expires_on, lifetime=lifetime, wanted=rights, key=key
        )
        return _shown_token(made, text)

    async def registrations_new_user(self, call: Call) -> wire.Registration:
        wanted = await call.read(wire.ApplicantBody, _BAD_USER_TEXT)
        applicant = records.Applicant(**{name: value or "" for name, value in msgspec.structs.asdict(wanted).items()})
        return _shown_registration(await self._registrations.register(applicant))

    async def registrations_list(self, call: Call) -> wire.Registrations:
        found = await self._registrations.list({name: call.parameter(name) or "" for name in wire.REGISTRATION_FILTERS})
        return wire.Registrations(await shown_list(found, _shown_registration))

    async def registrations_show(self, call: Call) -> wire.Registration:
        return _shown_registration(await self._registrations.show(call.registration))

    async def registrations_decline_new_user(self, call: Call) -> Nothing:
        await self._registrations.require_pending(call.registration)
        comment = strings(first_value(await call.body())).get("comment", "")
        await self._registrations.decline(call.caller, call.registration, comment)
        return Nothing()

    async def registrations_delete(self, call: Call) -> None:
        await self._registrations.delete(call.registration)

    async def issuers_list(self, call: Call) -> wire.Issuers:
        return wire.Issuers(await shown_list(await self._issuers.list(), _shown_issuer))

    async def issuers_show(self, call: Call) -> Versioned:
        found = await self._issuers.show(call.issuer)
        return Versioned(_shown_issuer(found), issuers.without_secret(found.issuer))

    async def issuers_create(self, call: Call) -> wire.Issuer:
        wanted = _read_issuer(call.issuer, await call.body())
        return _shown_issuer(await self._issuers.create(call.caller, wanted))

    async def issuers_update(self, call: Call) -> wire.Issuer:
        wanted = _read_issuer(call.issuer, await call.body())
        return _shown_issuer(await self._issuers.update(call.caller, wanted))

    async def bindings_list(self, call: Call) -> wire.Bindings:
        return wire.Bindings(await shown_list(await self._bindings.list(call.caller, call.user), _shown_binding))

    async def bindings_create(self, call: Call) -> wire.Binding:
        wanted = await call.read(wire.BindingBody)
        identity = wanted.issuer or "", wanted.subject or ""
        return _shown_binding(await self._bindings.create(call.caller, call.user, call.binding, *identity))


def shown_user(user: records.User) -> wire.User:
    """Return a user for the wire, with the fields that the use case left visible."""
    places = [wire_record(wire.Membership, each) for each in user.memberships]
    return wire_record(wire.User, user, uuid=user.id, projects=places)


def versioned_user(user: records.User) -> Versioned:
    """Return a user for the wire, with its version."""
    return Versioned(shown_user(user), user)


def grants(entries: Sequence[wire.MembershipBody]) -> tuple[records.Grant, ...]:
    """Return the memberships in `entries`."""
    return tuple(records.Grant(entry.project or "", tuple(entry.roles or ())) for entry in entries)


async def _read_details(call: Call) -> records.UserDetails:
    body = await call.read(wire.UserBody, _BAD_USER_TEXT)
    texts = {name: getattr(body, name) or "" for name in wire.ApplicantBody.__struct_fields__}
    given = None if body.projects is None else grants(body.projects)
    roles = None if body.service_roles is None else tuple(body.service_roles)
    return records.UserDetails(**texts, grants=given, service_roles=roles)


def _read_new_token(body: bytes) -> wire.NewToken:
    """Parse a request for a token; an empty body is valid.

    Only here names must be exact, and unknown ones are refused: a misspelled `rights` would create a token with all
    rights.
    """
    if not body.strip():
        return wire.NewToken()
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


def _shown_token(token: records.NamedToken, text: str = "") -> wire.Token:
    rights = None if token.rights is None else [wire.Right(*each) for each in token.rights]
    email = client_email(token.name, token.key_id) if token.key_id else ""
    return wire_record(wire.Token, token, rights=rights, client_email=email, token=text)


def _shown_registration(registration: records.Registration) -> wire.Registration:
    return wire_record(wire.Registration, registration, uuid=registration.id, **asdict(registration.applicant))


_shown_binding: Callable[[records.Binding], wire.Binding] = partial(wire_record, wire.Binding)


def _read_issuer(name: IssuerName, body: bytes) -> issuer.Issuer:
    """Parse a body like the file of issuers: unknown fields are refused, because a misspelled one would have no effect.

    Fields of answers are ignored, so that an answer may be changed and sent back.
    """
    try:
        given = _new_issuer.decode(body)
    except (ValueError, RecursionError):
        raise bad_request() from None
    fields = {field: value for field, value in given.items() if value is not None and field not in _ANSWER_FIELDS}
    return issuer.read_issuer({**fields, "name": name})


def _shown_issuer(listed: issuers.ListedIssuer) -> wire.Issuer:
    secret = issuers.KEPT if listed.issuer.client_secret else ""
    roles = [wire_record(wire.RoleRule, rule) for rule in listed.issuer.roles]
    keys = wire_record(wire.IssuerKeys, listed.keys)
    return wire_record(wire.Issuer, listed.issuer, source=listed.source, client_secret=secret, roles=roles, keys=keys)
