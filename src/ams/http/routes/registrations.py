"""Registrations over HTTP (contract 6)."""

from collections.abc import Sequence

import msgspec

from ams.core.clock import resource_date
from ams.core.errors import InvalidInput
from ams.core.names import RegistrationId
from ams.http.routes import answers
from ams.http.routes.bodies import first_value, strings
from ams.http.routing import Call, Row
from ams.http.wire import Reader, Shape
from ams.service import users
from ams.storage.registry import records
from ams.storage.registry.users import FILTERS


class ApplicantBody(Shape):
    """Somebody who wants to become a user; a name is required."""

    name: str | None = None
    email: str | None = None
    first_name: str | None = None
    last_name: str | None = None
    organization: str | None = None
    description: str | None = None


class DeclineBody(Shape):
    """Why a registration is refused; read as a map of texts (contract 1.2)."""

    comment: str | None = None


class Registration(msgspec.Struct, omit_defaults=True):
    """A registration (contract 6)."""

    uuid: str
    name: str
    first_name: str
    last_name: str
    organization: str
    description: str
    email: str
    status: str
    registered_at: str
    decline_comment: str = ""
    activation_token: str = ""
    modified_by: str = ""
    modified_at: str = ""


class Registrations(msgspec.Struct):
    """All registrations that were asked for, oldest first."""

    user_registrations: Sequence[Registration]


_applicant = Reader(ApplicantBody, lambda: InvalidInput("Invalid User Arguments"))


class RegistrationRoutes:
    """The routes of registrations."""

    def __init__(self, registrations: users.Registrations) -> None:
        self._registrations = registrations

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        all_, one = "/registrations", "/registrations/{uuid}"
        return [
            Row("POST", all_, "registrations:newUser", self.create, ApplicantBody, Registration),
            Row("GET", all_, "registrations:list", self.list, answers=Registrations, parameters=FILTERS),
            Row("POST", one + ":accept", "registrations:acceptNewUser", self.accept, answers=answers.User),
            Row("POST", one + ":decline", "registrations:declineNewUser", self.decline, DeclineBody, answers.Nothing),
            Row("GET", one, "registrations:show", self.show, answers=Registration),
            Row("DELETE", one, "registrations:delete", self.delete),
        ]

    async def create(self, call: Call) -> bytes:
        """Keep somebody's wish to become a user."""
        said = _applicant.read(await call.body())
        applicant = records.Applicant(**{name: value or "" for name, value in msgspec.structs.asdict(said).items()})
        return answers.encode(_shown(await self._registrations.register(applicant)))

    async def list(self, call: Call) -> bytes:
        """Answer registrations, oldest first."""
        found = await self._registrations.list({name: call.parameter(name) or "" for name in FILTERS})
        return answers.encode(Registrations(await answers.each(found, _shown)))

    async def show(self, call: Call) -> bytes:
        """Answer a registration."""
        return answers.encode(_shown(await self._registrations.show(_identity(call))))

    async def accept(self, call: Call) -> bytes:
        """Make the user a registration asks for; what the body says does not matter."""
        return answers.encode(answers.user(await self._registrations.accept(call.caller, _identity(call))))

    async def decline(self, call: Call) -> bytes:
        """Refuse a registration. It is looked for before the body is read, and only the first value of that counts."""
        await self._registrations.require_pending(_identity(call))
        comment = strings(first_value(await call.body())).get("comment", "")
        await self._registrations.decline(call.caller, _identity(call), comment)
        return answers.EMPTY_OBJECT

    async def delete(self, call: Call) -> bytes:
        """Forget a registration."""
        await self._registrations.delete(_identity(call))
        return answers.EMPTY


def _identity(call: Call) -> RegistrationId:
    return RegistrationId(call.names["uuid"])


def _shown(registration: records.Registration) -> Registration:
    applicant = registration.applicant
    return Registration(
        uuid=registration.id,
        name=applicant.name,
        first_name=applicant.first_name,
        last_name=applicant.last_name,
        organization=applicant.organization,
        description=applicant.description,
        email=applicant.email,
        status=registration.status,
        registered_at=resource_date(registration.registered_at),
        decline_comment=registration.decline_comment,
        activation_token=registration.activation_token,
        modified_by=registration.modified_by or "",
        modified_at=resource_date(registration.modified_at) if registration.modified_at is not None else "",
    )
