"""Errors in the envelope of the API, and whom a request is from."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

Json = dict[str, Any]
STATUS = {
    400: "INVALID_ARGUMENT", 401: "UNAUTHORIZED", 403: "FORBIDDEN", 404: "NOT_FOUND", 408: "TIMEOUT", 409: "CONFLICT",
    500: "INTERNAL_SERVER_ERROR",
}  # fmt: skip
FORBIDDEN = "Access to this resource is forbidden"


class Refused(Exception):
    """An answer that is an error."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code
        self.body: Json = {"error": {"code": code, "message": message, "status": STATUS[code]}}


class Caller(NamedTuple):
    """Whom a request is from, and in which project."""

    user: Mapping[str, Any]
    project: Mapping[str, Any]
    """Empty outside of projects."""
    roles: frozenset[str]

    @property
    def uuid(self) -> str:
        """Return the uuid of the user."""
        return str(self.user["uuid"])

    @property
    def sees_all(self) -> bool:
        """Whether secrets of others are shown."""
        return "service_admin" in self.roles


def roles_in(user: Mapping[str, Any], project_uuid: str) -> frozenset[str]:
    """Return the roles of a user: those of the service, and in a project those of the last entry there is for it."""
    found: Sequence[str] = ()
    for each in user.get("projects") or ():
        if project_uuid and each.get("project_uuid") == project_uuid:
            found = each.get("roles") or ()
    return frozenset([*found, *(user.get("service_roles") or ())])
