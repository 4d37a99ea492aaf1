"""Bindings of users to identities at issuers, over HTTP (docs/reference/openid-connect.md)."""

from collections.abc import Sequence

import msgspec

from ams.core.clock import resource_date
from ams.core.names import BindingName
from ams.http.routes import answers
from ams.http.routes.bodies import bad_request
from ams.http.routing import Call, Row
from ams.http.wire import Reader, Shape
from ams.service import issuers
from ams.storage.registry import records


class BindingBody(Shape):
    """By which identity the user logs in; both are required."""

    issuer: str | None = None
    subject: str | None = None


class Binding(msgspec.Struct, omit_defaults=True):
    """A binding; `by_login` is only there when user and binding were made at the first login."""

    name: str
    user: str
    issuer: str
    subject: str
    created_on: str
    created_by: str = ""
    by_login: bool = False


class Bindings(msgspec.Struct):
    """All bindings of a user, oldest first."""

    bindings: Sequence[Binding]


_binding = Reader(BindingBody, bad_request)


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

    async def list(self, call: Call) -> bytes:
        """Answer the bindings of a user."""
        found = await self._bindings.list(call.caller, call.user)
        return answers.encode(Bindings(await answers.each(found, _shown)))

    async def create(self, call: Call) -> bytes:
        """Let an identity at an issuer log in as a user."""
        said = _binding.read(await call.body())
        made = await self._bindings.create(call.caller, call.user, _name(call), said.issuer or "", said.subject or "")
        return answers.encode(_shown(made))

    async def delete(self, call: Call) -> bytes:
        """Let an identity log in no more."""
        await self._bindings.delete(call.caller, call.user, _name(call))
        return answers.EMPTY


def _name(call: Call) -> BindingName:
    return BindingName(call.names["binding"])


def _shown(binding: records.Binding) -> Binding:
    return Binding(
        name=binding.name,
        user=binding.user,
        issuer=binding.issuer,
        subject=binding.subject,
        created_on=resource_date(binding.created_on),
        created_by=binding.created_by or "",
        by_login=binding.by_login,
    )
