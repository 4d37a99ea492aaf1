"""Projects over HTTP (contract 7)."""

from ams.core.errors import InvalidInput
from ams.core.names import ProjectName
from ams.http.routes import answers
from ams.http.routes.bodies import bad_request
from ams.http.routing import Call, Row
from ams.http.wire import Reader, Shape
from ams.service.projects import Projects


class NewProject(Shape):
    """What may be said of a new project; the path names it."""

    description: str | None = None


class ProjectChange(Shape):
    """What shall be new of a project; what is empty or absent stays."""

    name: str | None = None
    description: str | None = None


_create = Reader(NewProject, lambda: InvalidInput("Invalid Project Arguments"))
_update = Reader(ProjectChange, bad_request)


class ProjectRoutes:
    """The routes of projects."""

    def __init__(self, projects: Projects) -> None:
        self._projects = projects

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        return [
            Row("GET", "/projects", "projects:list", self.list, answers=answers.Projects),
            Row("GET", "/projects/{project}", "projects:show", self.show, answers=answers.Project),
            Row(
                "POST", "/projects/{project}", "projects:create", self.create, reads=NewProject, answers=answers.Project
            ),
            Row(
                "PUT",
                "/projects/{project}",
                "projects:update",
                self.update,
                reads=ProjectChange,
                answers=answers.Project,
            ),
            Row("DELETE", "/projects/{project}", "projects:delete", self.delete),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer all projects, oldest first."""
        return answers.encode(answers.Projects(await answers.each(await self._projects.list(), answers.project)))

    async def show(self, call: Call) -> bytes:
        """Answer a project."""
        return answers.encode(answers.project(await self._projects.show(call.caller)))

    async def create(self, call: Call) -> bytes:
        """Make a project; a body is required, `{}` is enough."""
        wanted = _create.read(await call.body())
        name = ProjectName(call.names["project"])
        return answers.encode(answers.project(await self._projects.create(call.caller, name, wanted.description or "")))

    async def update(self, call: Call) -> bytes:
        """Rename or describe a project."""
        wanted = _update.read(await call.body())
        project = await self._projects.update(call.caller, name=wanted.name or "", description=wanted.description or "")
        return answers.encode(answers.project(project))

    async def delete(self, call: Call) -> bytes:
        """Delete a project with all it owns."""
        await self._projects.delete(call.caller)
        return answers.EMPTY
