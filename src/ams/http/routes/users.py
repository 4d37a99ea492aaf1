"""Users (contract 5), their named tokens, and registrations (contract 6)."""

from collections.abc import Sequence
from dataclasses import asdict

import msgspec

from ams.access.admission import Admission
from ams.core.clock import Milliseconds, optional_date, resource_date
from ams.core.errors import InvalidInput
from ams.core.names import RegistrationId, TokenName, UserId
from ams.core.public_keys import PublicKey, client_email
from ams.http.bodies import BodyReader, first_value, strings
from ams.http.routing import Call, Versioned, page_request, shown_list, shown_page, wire_record
from ams.service import users
from ams.service.users import Tokens
from ams.storage.audit.event import moment
from ams.storage.registry import records
from ams.storage.registry.records import UserDetails
from ams.wire import users as wire
from ams.wire.base import Nothing

_user = BodyReader(wire.UserBody, lambda: InvalidInput("Invalid User Arguments"))
_new_token = msgspec.json.Decoder(wire.NewToken)
_applicant = BodyReader(wire.ApplicantBody, lambda: InvalidInput("Invalid User Arguments"))


class UserRoutes:
    """The routes of users."""

    def __init__(self, users: users.Users, admission: Admission) -> None:
        self._users, self._admission = users, admission

    async def users_list(self, call: Call) -> wire.Users:
        project = await self._users.project_filter(call.parameter("project") or "")
        page = await self._users.list(
            call.caller, page_request(call), project=project, details=call.parameter("details") == "true"
        )
        return await shown_page(wire.Users, "users", page, shown_user)

    async def users_show(self, call: Call) -> Versioned:
        user = await self._users.show(call.caller, call.user)
        return Versioned(shown_user(user), user)

    async def users_by_token(self, call: Call) -> wire.User:
        return shown_user(await self._users.by_token(call.caller, call.names["token"]))

    async def users_by_uuid(self, call: Call) -> wire.User:
        user = await self._users.by_uuid(call.caller, UserId(call.names["uuid"]))
        return shown_user(user)

    async def users_profile(self, call: Call) -> wire.User:
        caller = await self._admission.admit_oneself(call.token)
        return shown_user(await self._users.profile(caller))

    async def users_create(self, call: Call) -> wire.User:
        details = _details(_user.read(await call.body()))
        return shown_user(await self._users.create(call.caller, call.user, details))

    async def users_update(self, call: Call) -> wire.User:
        details = _details(_user.read(await call.body()))
        return shown_user(await self._users.update(call.caller, call.user, details))

    async def users_refresh_token(self, call: Call) -> wire.User:
        return shown_user(await self._users.refresh_token(call.caller, call.user))

    async def users_delete(self, call: Call) -> None:
        await self._users.delete(call.caller, call.user)


class TokenRoutes:
    """The routes of named tokens."""

    def __init__(self, tokens: Tokens) -> None:
        self._tokens = tokens

    async def tokens_list(self, call: Call) -> wire.NamedTokens:
        return wire.NamedTokens([_shown_token(each) for each in await self._tokens.list(call.caller, call.user)])

    async def tokens_show(self, call: Call) -> wire.Token:
        return _shown_token(await self._tokens.show(call.caller, call.user, TokenName(call.names["token"])))

    async def tokens_create(self, call: Call) -> wire.Token:
        wanted = _read_new_token(await call.body())
        given = wanted.rights
        made, text = await self._tokens.create(
            call.caller,
            call.user,
            TokenName(call.names["token"]),
            expires_on=_moment(wanted.expires_on),
            lifetime=None if wanted.expires_in is None else Milliseconds(wanted.expires_in * 1000),
            wanted=None if given is None else [(each.action or "", each.resource or "") for each in given],
            key=None if wanted.public_key is None else PublicKey.read(wanted.public_key),
        )
        return _shown_token(made, text)

    async def tokens_revoke(self, call: Call) -> None:
        await self._tokens.revoke(call.caller, call.user, TokenName(call.names["token"]))


class RegistrationRoutes:
    """The routes of registrations."""

    def __init__(self, registrations: users.Registrations) -> None:
        self._registrations = registrations

    async def registrations_new_user(self, call: Call) -> wire.Registration:
        wanted = _applicant.read(await call.body())
        applicant = records.Applicant(**{name: value or "" for name, value in msgspec.structs.asdict(wanted).items()})
        return _shown_registration(await self._registrations.register(applicant))

    async def registrations_list(self, call: Call) -> wire.Registrations:
        found = await self._registrations.list({name: call.parameter(name) or "" for name in wire.REGISTRATION_FILTERS})
        return wire.Registrations(await shown_list(found, _shown_registration))

    async def registrations_show(self, call: Call) -> wire.Registration:
        return _shown_registration(await self._registrations.show(_identity(call)))

    async def registrations_accept_new_user(self, call: Call) -> wire.User:
        return shown_user(await self._registrations.accept(call.caller, _identity(call)))

    async def registrations_decline_new_user(self, call: Call) -> Nothing:
        await self._registrations.require_pending(_identity(call))
        comment = strings(first_value(await call.body())).get("comment", "")
        await self._registrations.decline(call.caller, _identity(call), comment)
        return Nothing()

    async def registrations_delete(self, call: Call) -> None:
        await self._registrations.delete(_identity(call))


def shown_user(user: records.User) -> wire.User:
    """Return a user for the wire, with the fields that the use case left visible."""
    dates = {"created_on": resource_date(user.created_on), "modified_on": resource_date(user.modified_on)}
    places = [wire_record(wire.Membership, each) for each in user.memberships]
    names = {"token": user.token or "", "created_by": user.created_by or ""}
    return wire_record(wire.User, user, uuid=user.id, projects=places, **dates, **names)


def grants(entries: Sequence[wire.MembershipBody]) -> tuple[records.Grant, ...]:
    """Return the memberships in `entries`."""
    return tuple(records.Grant(entry.project or "", tuple(entry.roles or ())) for entry in entries)


def _details(body: wire.UserBody) -> UserDetails:
    texts = {name: getattr(body, name) or "" for name in wire.ApplicantBody.__struct_fields__}
    given = None if body.projects is None else grants(body.projects)
    roles = None if body.service_roles is None else tuple(body.service_roles)
    return UserDetails(**texts, grants=given, service_roles=roles)


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
    dates = {"expires_on": optional_date(token.expires_on), "last_used": optional_date(token.last_used)}
    rights = None if token.rights is None else [wire.Right(*each) for each in token.rights]
    email = client_email(token.name, token.key_id) if token.key_id else ""
    return wire_record(
        wire.Token, token, created_on=resource_date(token.created_on), created_by=token.created_by or "", **dates,
        rights=rights, key_id=token.key_id or "", client_email=email, token=text,
    )  # fmt: skip


def _identity(call: Call) -> RegistrationId:
    return RegistrationId(call.names["uuid"])


def _shown_registration(registration: records.Registration) -> wire.Registration:
    return wire.Registration(
        uuid=registration.id,
        **asdict(registration.applicant),
        status=registration.status,
        registered_at=resource_date(registration.registered_at),
        decline_comment=registration.decline_comment,
        activation_token=registration.activation_token,
        modified_by=registration.modified_by or "",
        modified_at=optional_date(registration.modified_at),
    )
