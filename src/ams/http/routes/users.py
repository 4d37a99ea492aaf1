"""Users over HTTP (contract 5)."""

from ams.access.admission import Admission
from ams.core.errors import InvalidInput
from ams.core.names import UserId
from ams.http.routes import answers
from ams.http.routes.bodies import MembershipBody, grants
from ams.http.routing import PAGE, Call, Row, page_request
from ams.http.wire import Reader, Shape
from ams.service.users import Users
from ams.storage.registry.records import UserDetails


class UserBody(Shape):
    """What is said of a user (contract 5.3)."""

    name: str | None = None
    email: str | None = None
    first_name: str | None = None
    last_name: str | None = None
    organization: str | None = None
    description: str | None = None
    projects: list[MembershipBody] | None = None
    service_roles: list[str] | None = None


_user = Reader(UserBody, lambda: InvalidInput("Invalid User Arguments"))


class UserRoutes:
    """The routes of users."""

    def __init__(self, users: Users, admission: Admission) -> None:
        self._users = users
        self._admission = admission

    def rows(self) -> list[Row]:
        """Return the rows of the route table; `/users/profile` comes before `/users/{user}` (contract 1.3)."""
        return [
            Row("GET", "/users:byToken/{token}", "users:byToken", self.by_token, answers=answers.User),
            Row("GET", "/users:byUUID/{uuid}", "users:byUUID", self.by_uuid, answers=answers.User),
            Row(
                "GET",
                "/users",
                "users:list",
                self.list,
                answers=answers.Users,
                parameters=(*PAGE, "project", "details"),
            ),
            Row("GET", "/users/profile", None, self.profile, answers=answers.User, counted=True),
            Row("POST", "/users/{user}:refreshToken", "users:refreshToken", self.refresh_token, answers=answers.User),
            Row("GET", "/users/{user}", "users:show", self.show, answers=answers.User),
            Row("POST", "/users/{user}", "users:create", self.create, reads=UserBody, answers=answers.User),
            Row("PUT", "/users/{user}", "users:update", self.update, reads=UserBody, answers=answers.User),
            Row("DELETE", "/users/{user}", "users:delete", self.delete),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer a page of users; the project filter is checked before the page parameters."""
        project = await self._users.project_filter(call.parameter("project") or "")
        page = await self._users.list(
            call.caller, page_request(call), project=project, details=call.parameter("details") == "true"
        )
        return await answers.encode_page(answers.Users, "users", page, answers.user)

    async def show(self, call: Call) -> bytes:
        """Answer a user by name."""
        return answers.encode(answers.user(await self._users.show(call.caller, call.user)))

    async def by_token(self, call: Call) -> bytes:
        """Answer the owner of a token."""
        return answers.encode(answers.user(await self._users.by_token(call.caller, call.names["token"])))

    async def by_uuid(self, call: Call) -> bytes:
        """Answer a user by identity."""
        user = await self._users.by_uuid(call.caller, UserId(call.names["uuid"]))
        return answers.encode(answers.user(user))

    async def profile(self, call: Call) -> bytes:
        """Answer the caller's own user."""
        caller = await self._admission.oneself(call.token)
        return answers.encode(answers.user(await self._users.profile(caller)))

    async def create(self, call: Call) -> bytes:
        """Make a user; a name in the body is ignored, the path decides."""
        details = _details(_user.read(await call.body()))
        return answers.encode(answers.user(await self._users.create(call.caller, call.user, details)))

    async def update(self, call: Call) -> bytes:
        """Change what the body says about a user."""
        details = _details(_user.read(await call.body()))
        return answers.encode(answers.user(await self._users.update(call.caller, call.user, details)))

    async def refresh_token(self, call: Call) -> bytes:
        """Give a user a new token; what the body says does not matter."""
        return answers.encode(answers.user(await self._users.refresh_token(call.caller, call.user)))

    async def delete(self, call: Call) -> bytes:
        """Delete a user."""
        await self._users.delete(call.caller, call.user)
        return answers.EMPTY


def _details(body: UserBody) -> UserDetails:
    return UserDetails(
        name=body.name or "",
        email=body.email or "",
        first_name=body.first_name or "",
        last_name=body.last_name or "",
        organization=body.organization or "",
        description=body.description or "",
        grants=None if body.projects is None else grants(body.projects),
        service_roles=None if body.service_roles is None else tuple(body.service_roles),
    )
