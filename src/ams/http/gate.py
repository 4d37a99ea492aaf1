"""The gate every request passes: names, token, project, roles, in the order of contract 1.5, then its rate."""

from collections.abc import Mapping

from ams.access.admission import Admission, Caller, bearer_of
from ams.access.rates import Rates
from ams.core.names import ProjectName, checked_name
from ams.http.asgi import query_value

CREATE_PROJECT = "projects:create"
"""The one action whose project need not exist."""


class Gate:
    """Lets requests in."""

    def __init__(self, admission: Admission, auth_option: str, rates: Rates | None = None) -> None:
        self._admission = admission
        self._rates = rates
        self._reads_header = auth_option in ("both", "header")
        self._reads_query = auth_option in ("both", "key")

    def token(self, headers: list[tuple[bytes, bytes]], query: bytes) -> str | None:
        """Return the token of a request: that of the x-api-key header, else a `Bearer` of the Authorization header,
        else the query parameter `key` (contract 3.1; RFC 6750, 2.1).
        """
        if self._reads_header:
            authorization = b""
            for name, value in headers:
                if name == b"x-api-key" and value:
                    return value.decode("latin-1")
                if name == b"authorization" and not authorization:
                    authorization = value
            if authorization and (bearer := bearer_of(authorization)) is not None:
                return bearer
        return (query_value(query, "key") or None) if self._reads_query else None

    async def admit(
        self, action: str, names: Mapping[str, str], headers: list[tuple[bytes, bytes]], query: bytes
    ) -> Caller:
        """Check the request's names in alphabetical order of their variables, then who asks (contract 1.5).

        Raises `RateLimited` last, so that only requests which are let in count.
        """
        check_names(names)
        caller = await self.admit_again(action, names, headers, query)
        if self._rates is not None:
            self._rates.count(caller)
        return caller

    async def admit_again(
        self, action: str, names: Mapping[str, str], headers: list[tuple[bytes, bytes]], query: bytes
    ) -> Caller:
        """Ask once more who asks, after a while: a token may be dead by now. It is the same request to its rate."""
        project = names.get("project") if action != CREATE_PROJECT else None
        return await self._admission.admit(
            action, self.token(headers, query), ProjectName(project) if project is not None else None, names
        )

    async def name(self, headers: list[tuple[bytes, bytes]], query: bytes) -> str | None:
        """Return the name of the user who asks, whatever they may do; None for nobody known."""
        return await self._admission.name_of(self.token(headers, query))

    async def count(self, token: str | None) -> None:
        """Count a request to an open route that somebody asks of themselves; raise `RateLimited`.

        Raises `UnknownToken` too, which such a route would be answered with: so a bad token is looked at once.
        """
        if self._rates is None:
            return
        user = await self._admission.principal(token)
        if user is not None:
            self._rates.count_user(user.id)


def check_names(names: Mapping[str, str]) -> None:
    """Raise `InvalidInput` "Invalid VARIABLE name" for the first bad one in alphabetical order."""
    for variable in sorted(names):
        checked_name(variable, names[variable])
