"""Who is let in: by a token as on the HTTP API, or everybody on this machine where an emulator is wanted."""

import contextlib
from collections.abc import Mapping
from typing import Protocol

from ams.access.admission import Caller
from ams.access.permissions import SERVICE_ADMIN
from ams.core.errors import AlreadyExists, NotFound
from ams.core.names import ProjectName
from ams.http.fast import Gate
from ams.pubsub.errors import Missing
from ams.pubsub.metadata import Headers
from ams.service.projects import Projects
from ams.storage.registry.registry import Registry


class Door(Protocol):
    """Lets callers in."""

    def known(self, headers: Headers) -> str | None:
        """Return what `login` would return, if that takes no waiting; None says nothing. Raises `UnknownToken`."""
        ...

    async def login(self, headers: Headers) -> str:
        """Return the id of the user who calls, whatever its rights; empty for who is no user.

        Raises `NotAuthenticated` for nobody, and `UnknownToken`.
        """
        ...

    async def admit(self, action: str, names: Mapping[str, str], headers: Headers, *, counted: bool) -> Caller:
        """Return who calls; raise as `Admission.admit`, and `RateLimited`. A `counted` call does not count again."""
        ...

    async def know(self, headers: Headers) -> None:
        """Count a call of somebody, whatever their rights; raise as `login`, and `RateLimited`."""
        ...


class TokenDoor:
    """Lets in whose token allows it: a bearer token, or an API key, which is a token of AMS."""

    def __init__(self, gate: Gate) -> None:
        self._gate = gate

    def known(self, headers: Headers) -> str | None:
        """Return the user of a token that is in memory."""
        return self._gate.known(headers, b"")

    async def login(self, headers: Headers) -> str:
        """Return the user of a token."""
        return await self._gate.who(headers, b"")

    async def admit(self, action: str, names: Mapping[str, str], headers: Headers, *, counted: bool) -> Caller:
        """Let a caller in."""
        try:
            return await self._gate.admit(action, names, headers, b"", counted=counted)
        except NotFound as error:  # nothing else is looked for yet
            raise Missing(names["project"], error.message) from error

    async def know(self, headers: Headers) -> None:
        """Count a call of somebody."""
        await self._gate.know(headers, b"")


class EmulatorDoor:
    """Lets everybody on this machine in, as an administrator, and makes projects when they are first named."""

    def __init__(self, registry: Registry, projects: Projects) -> None:
        self._registry = registry
        self._projects = projects

    def known(self, headers: Headers) -> str | None:
        """Return that it is no user."""
        return ""

    async def login(self, headers: Headers) -> str:
        """Return that it is no user."""
        return ""

    async def admit(self, action: str, names: Mapping[str, str], headers: Headers, *, counted: bool) -> Caller:
        """Let a caller in."""
        name, roles = ProjectName(names["project"]), frozenset({SERVICE_ADMIN})
        nobody = Caller(None, None, roles, True, None)
        found = await self._registry.projects.find(name)
        if found is None:
            with contextlib.suppress(AlreadyExists):  # two calls may name it first
                await self._projects.create(nobody, name)
            found = await self._registry.projects.find(name)
        return Caller(None, None, roles, True, found)

    async def know(self, headers: Headers) -> None:
        """Do nothing: everybody on this machine is known."""
