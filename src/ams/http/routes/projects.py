"""Projects and their members over HTTP (contract 7)."""

from ams.core.clock import resource_date
from ams.core.errors import InvalidInput
from ams.core.names import ProjectName
from ams.http.bodies import Reader, bad_request
from ams.http.routes import answers
from ams.http.routes.users import grants, shown_user
from ams.http.routing import PAGE, Call, Row, Versioned, page_request
from ams.service import projects
from ams.service.projects import Members
from ams.storage.registry import records
from ams.wire.base import Nothing
from ams.wire.projects import NewProject, Project, ProjectChange, ProjectQuotas, Projects, QuotaChanges
from ams.wire.users import MemberBody, MemberRoles, User, Users

_create = Reader(NewProject, lambda: InvalidInput("Invalid Project Arguments"))
_update = Reader(ProjectChange, bad_request)
_member = Reader(MemberBody, lambda: InvalidInput("Invalid User Arguments"))
_quotas = Reader(QuotaChanges, lambda: InvalidInput("Invalid Quota Arguments"))
_add = Reader(MemberRoles, bad_request)


class ProjectRoutes:
    """The routes of projects."""

    def __init__(self, projects: projects.Projects) -> None:
        self._projects = projects

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [
            Row("GET", "/projects", "projects:list", self.list, answers=Projects),
            Row("GET", "/projects/{project}", "projects:show", self.show, answers=Project, versioned=True),
            Row("POST", "/projects/{project}", "projects:create", self.create, reads=NewProject, answers=Project),
            Row(
                "PUT",
                "/projects/{project}",
                "projects:update",
                self.update,
                reads=ProjectChange,
                answers=Project,
                versioned=True,
            ),
            Row("DELETE", "/projects/{project}", "projects:delete", self.delete, versioned=True),
        ]

    def quota_rows(self) -> list[Row]:
        """Return the rows of quotas."""
        quotas, change = "/projects/{project}:quotas", "/projects/{project}:modifyQuotas"
        return [
            Row("GET", quotas, "projects:quotas", self.quotas, answers=ProjectQuotas),
            Row(
                "POST", change, "projects:modifyQuotas", self.change_quotas, reads=QuotaChanges, answers=ProjectQuotas,
 versioned=True
            ),
        ]  # fmt: skip

    async def quotas(self, call: Call) -> bytes:
        """Answer the quotas of a project, and what it uses."""
        return answers.encode(await self._projects.quotas(call.caller))

    async def change_quotas(self, call: Call) -> bytes:
        """Change quotas of a project."""
        changes = _quotas.read(await call.body()).quotas
        if not changes:
            raise InvalidInput("Invalid Quota Arguments")
        return answers.encode(await self._projects.change_quotas(call.caller, changes))

    async def list(self, call: Call) -> bytes:
        """Answer all projects, oldest first."""
        return answers.encode(Projects(await answers.each(await self._projects.list(), shown_project)))

    async def show(self, call: Call) -> Versioned:
        """Answer a project."""
        project = await self._projects.show(call.caller)
        return answers.versioned(shown_project(project), project)

    async def create(self, call: Call) -> bytes:
        """Make a project; a body is required, `{}` is enough."""
        wanted = _create.read(await call.body())
        name = ProjectName(call.names["project"])
        return answers.encode(shown_project(await self._projects.create(call.caller, name, wanted.description or "")))

    async def update(self, call: Call) -> bytes:
        """Rename or describe a project."""
        wanted = _update.read(await call.body())
        project = await self._projects.update(
            call.caller,
            name=wanted.name or "",
            description=wanted.description or "",
            strict_data=wanted.strict_data,
        )
        return answers.encode(shown_project(project))

    async def delete(self, call: Call) -> bytes:
        """Delete a project with all it owns."""
        await self._projects.delete(call.caller)
        return answers.EMPTY


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
                answers=Users,
                parameters=(*PAGE, "details"),
            ),
            Row("POST", members + "/{user}:add", "projects:addUser", self.add, reads=MemberRoles, answers=User),
            Row(
                "POST", members + "/{user}:remove", "projects:removeUser", self.remove, answers=Nothing, versioned=True
            ),
            Row(
                "POST", members + "/{user}:refreshToken", "projects:refreshUserToken", self.refresh_token, answers=User
            ),
            Row("GET", members + "/{user}", "projects:showUser", self.show, answers=User, versioned=True),
            Row("POST", members + "/{user}", "projects:createUser", self.create, reads=MemberBody, answers=User),
            Row(
                "PUT",
                members + "/{user}",
                "projects:updateUser",
                self.update,
                reads=MemberBody,
                answers=User,
                versioned=True,
            ),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer a page of members, with their memberships if `details=true`."""
        page = await self._members.list(call.caller, page_request(call), details=call.parameter("details") == "true")
        return await answers.encode_page(Users, "users", page, shown_user)

    async def show(self, call: Call) -> Versioned:
        """Answer a member."""
        user = await self._members.show(call.caller, call.user)
        return answers.versioned(shown_user(user), user)

    async def create(self, call: Call) -> bytes:
        """Make a user who is a member here."""
        wanted = _member.read(await call.body())
        user = await self._members.create(
            call.caller, call.user, grants=grants(wanted.projects or ()), email=wanted.email or ""
        )
        return answers.encode(shown_user(user))

    async def update(self, call: Call) -> bytes:
        """Replace a member's roles."""
        wanted = _member.read(await call.body())
        user = await self._members.update(call.caller, call.user, grants(wanted.projects or ()))
        return answers.encode(shown_user(user))

    async def add(self, call: Call) -> bytes:
        """Make an existing user a member. The user is looked for before the body is read."""
        await self._members.find(call.user)
        wanted = _add.read(await call.body())
        return answers.encode(shown_user(await self._members.add(call.caller, call.user, wanted.roles or ())))

    async def refresh_token(self, call: Call) -> bytes:
        """Give a member who is nowhere else a new token; what the body says does not matter."""
        return answers.encode(shown_user(await self._members.refresh_token(call.caller, call.user)))

    async def remove(self, call: Call) -> bytes:
        """End a membership; what the body says does not matter."""
        await self._members.remove(call.caller, call.user)
        return answers.EMPTY_OBJECT


def shown_project(project: records.Project) -> Project:
    """Show a project."""
    return Project(
        name=project.name,
        created_on=resource_date(project.created_on),
        modified_on=resource_date(project.modified_on),
        created_by=project.created_by or "",
        description=project.description,
        retention_seconds=(project.retention or 0) // 1000,
        quotas=project.quotas,
        strict_data=project.strict_data,
    )
