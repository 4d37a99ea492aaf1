"""A project's members over HTTP (contract 7.1)."""

from ams.core.errors import InvalidInput
from ams.http.routes import answers
from ams.http.routes.bodies import MembershipBody, bad_request, grants
from ams.http.routing import PAGE, Call, Row, page_request
from ams.http.wire import Reader, Shape
from ams.service.members import Members


class MemberBody(Shape):
    """A member; of `projects` only the entry of this project counts."""

    projects: list[MembershipBody] | None = None
    email: str | None = None


class MemberRoles(Shape):
    """The roles of a new member."""

    roles: list[str] | None = None


_member = Reader(MemberBody, lambda: InvalidInput("Invalid User Arguments"))
_add = Reader(MemberRoles, bad_request)


class MemberRoutes:
    """The routes of members."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        members = "/projects/{project}/members"
        return [
            Row(
                "GET",
                members,
                "projects:listUsers",
                self.list,
                answers=answers.Users,
                parameters=(*PAGE, "details"),
            ),
            Row("POST", members + "/{user}:add", "projects:addUser", self.add, reads=MemberRoles, answers=answers.User),
            Row("POST", members + "/{user}:remove", "projects:removeUser", self.remove, answers=answers.Nothing),
            Row("GET", members + "/{user}", "projects:showUser", self.show, answers=answers.User),
            Row(
                "POST", members + "/{user}", "projects:createUser", self.create, reads=MemberBody, answers=answers.User
            ),
            Row("PUT", members + "/{user}", "projects:updateUser", self.update, reads=MemberBody, answers=answers.User),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer a page of members, with their memberships if `details=true`."""
        page = await self._members.list(call.caller, page_request(call), details=call.parameter("details") == "true")
        return await answers.encode_page(answers.Users, "users", page, answers.user)

    async def show(self, call: Call) -> bytes:
        """Answer a member."""
        return answers.encode(answers.user(await self._members.show(call.caller, call.user)))

    async def create(self, call: Call) -> bytes:
        """Make a user who is a member here."""
        wanted = _member.read(await call.body())
        user = await self._members.create(
            call.caller, call.user, grants=grants(wanted.projects or ()), email=wanted.email or ""
        )
        return answers.encode(answers.user(user))

    async def update(self, call: Call) -> bytes:
        """Replace a member's roles."""
        wanted = _member.read(await call.body())
        user = await self._members.update(call.caller, call.user, grants(wanted.projects or ()))
        return answers.encode(answers.user(user))

    async def add(self, call: Call) -> bytes:
        """Make an existing user a member. The user is looked for before the body is read."""
        await self._members.find(call.user)
        wanted = _add.read(await call.body())
        return answers.encode(answers.user(await self._members.add(call.caller, call.user, wanted.roles or ())))

    async def remove(self, call: Call) -> bytes:
        """End a membership; what the body says does not matter."""
        await self._members.remove(call.caller, call.user)
        return answers.EMPTY_OBJECT
