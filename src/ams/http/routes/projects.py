"""Projects and their members (contract 7), topics, but for publishing (contract 8), and how long messages are kept."""

from ams.core.clock import resource_date
from ams.core.errors import InvalidInput
from ams.core.names import ProjectName, schema_path, subscription_path, topic_path
from ams.http.bodies import Reader, bad_request, read_access_change, read_access_list, strings
from ams.http.routes.users import grants, shown_user
from ams.http.routing import PAGE, Call, Row, Versioned, page_request, shown_list, shown_page
from ams.service import projects, topics
from ams.service.lookup import without_access_list
from ams.service.projects import Members
from ams.service.quota_use import QuotaUse
from ams.service.retention import Retention
from ams.storage.registry import records
from ams.wire import projects as wire
from ams.wire.base import Nothing
from ams.wire.users import MemberBody, MemberRoles, User, Users

_create = Reader(wire.NewProject, lambda: InvalidInput("Invalid Project Arguments"))
_update = Reader(wire.ProjectChange, bad_request)
_member = Reader(MemberBody, lambda: InvalidInput("Invalid User Arguments"))
_quotas = Reader(wire.QuotaChanges, lambda: InvalidInput("Invalid Quota Arguments"))
_add = Reader(MemberRoles, bad_request)
_BAD_ACCESS_LIST = "Invalid Topic ACL Arguments"
_retention = Reader(wire.NewRetention, lambda: InvalidInput("Invalid Retention Arguments"))


class ProjectRoutes:
    """The routes of projects."""

    def __init__(self, projects: projects.Projects, quotas: QuotaUse) -> None:
        self._projects = projects
        self._quotas = quotas

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/projects/{project}"
        return [
            Row("GET", one + ":quotas", "projects:quotas", self.quotas, answers=wire.ProjectQuotas),
            Row(
                "POST", one + ":modifyQuotas", "projects:modifyQuotas", self.change_quotas, wire.QuotaChanges,
                wire.ProjectQuotas, versioned=True,
            ),
            Row("GET", "/projects", "projects:list", self.list, answers=wire.Projects),
            Row("GET", one, "projects:show", self.show, answers=wire.Project, versioned=True),
            Row("POST", one, "projects:create", self.create, wire.NewProject, wire.Project),
            Row("PUT", one, "projects:update", self.update, wire.ProjectChange, wire.Project, versioned=True),
            Row("DELETE", one, "projects:delete", self.delete, versioned=True),
        ]  # fmt: skip

    async def quotas(self, call: Call) -> wire.ProjectQuotas:
        """Answer the quotas of a project, and what it uses."""
        return await self._quotas.show(call.caller)

    async def change_quotas(self, call: Call) -> wire.ProjectQuotas:
        """Change quotas of a project."""
        changes = _quotas.read(await call.body()).quotas
        if not changes:
            raise InvalidInput("Invalid Quota Arguments")
        return await self._quotas.change(call.caller, changes)

    async def list(self, call: Call) -> wire.Projects:
        """Answer all projects, oldest first."""
        return wire.Projects(await shown_list(await self._projects.list(), shown_project))

    async def show(self, call: Call) -> Versioned:
        """Answer a project."""
        project = await self._projects.show(call.caller)
        return Versioned(shown_project(project), project)

    async def create(self, call: Call) -> wire.Project:
        """Make a project; a body is required, `{}` is enough."""
        wanted = _create.read(await call.body())
        name = ProjectName(call.names["project"])
        return shown_project(await self._projects.create(call.caller, name, wanted.description or ""))

    async def update(self, call: Call) -> wire.Project:
        """Rename or describe a project."""
        wanted = _update.read(await call.body())
        project = await self._projects.update(
            call.caller, name=wanted.name or "", description=wanted.description or "", strict_data=wanted.strict_data
        )
        return shown_project(project)

    async def delete(self, call: Call) -> None:
        """Delete a project with all it owns."""
        await self._projects.delete(call.caller)


class MemberRoutes:
    """The routes of members."""

    def __init__(self, members: Members) -> None:
        self._members = members

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        every, one = "/projects/{project}/members", "/projects/{project}/members/{user}"
        return [
            Row("GET", every, "projects:listUsers", self.list, answers=Users, parameters=(*PAGE, "details")),
            Row("POST", one + ":add", "projects:addUser", self.add, MemberRoles, User),
            Row("POST", one + ":remove", "projects:removeUser", self.remove, answers=Nothing, versioned=True),
            Row("POST", one + ":refreshToken", "projects:refreshUserToken", self.refresh_token, answers=User),
            Row("GET", one, "projects:showUser", self.show, answers=User, versioned=True),
            Row("POST", one, "projects:createUser", self.create, MemberBody, User),
            Row("PUT", one, "projects:updateUser", self.update, MemberBody, User, versioned=True),
        ]

    async def list(self, call: Call) -> Users:
        """Answer a page of members, with their memberships if `details=true`."""
        page = await self._members.list(call.caller, page_request(call), details=call.parameter("details") == "true")
        return await shown_page(Users, "users", page, shown_user)

    async def show(self, call: Call) -> Versioned:
        """Answer a member."""
        user = await self._members.show(call.caller, call.user)
        return Versioned(shown_user(user), user)

    async def create(self, call: Call) -> User:
        """Make a user who is a member here."""
        wanted = _member.read(await call.body())
        user = await self._members.create(
            call.caller, call.user, grants=grants(wanted.projects or ()), email=wanted.email or ""
        )
        return shown_user(user)

    async def update(self, call: Call) -> User:
        """Replace a member's roles."""
        wanted = _member.read(await call.body())
        user = await self._members.update(call.caller, call.user, grants(wanted.projects or ()))
        return shown_user(user)

    async def add(self, call: Call) -> User:
        """Make an existing user a member. The user is looked for before the body is read."""
        await self._members.find(call.user)
        wanted = _add.read(await call.body())
        return shown_user(await self._members.add(call.caller, call.user, wanted.roles or ()))

    async def refresh_token(self, call: Call) -> User:
        """Give a member who is nowhere else a new token; what the body says does not matter."""
        return shown_user(await self._members.refresh_token(call.caller, call.user))

    async def remove(self, call: Call) -> Nothing:
        """End a membership; what the body says does not matter."""
        await self._members.remove(call.caller, call.user)
        return Nothing()


def shown_project(project: records.Project) -> wire.Project:
    """Show a project."""
    return wire.Project(
        name=project.name,
        created_on=resource_date(project.created_on),
        modified_on=resource_date(project.modified_on),
        created_by=project.created_by or "",
        description=project.description,
        retention_seconds=(project.retention or 0) // 1000,
        quotas=project.quotas,
        strict_data=project.strict_data,
    )


class TopicRoutes:
    """The routes of topics."""

    def __init__(self, topics: topics.Topics) -> None:
        self._topics = topics

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        every, one = "/projects/{project}/topics", "/projects/{project}/topics/{topic}"
        listed = "subscriptions:listByTopic"
        return [
            Row("GET", every, "topics:list", self.list, answers=wire.Topics, parameters=PAGE),
            Row("GET", one + "/subscriptions", listed, self.subscriptions, answers=wire.SubscriptionNames),
            Row("GET", one + ":acl", "topics:acl", self.acl, answers=wire.Acl, versioned=True),
            Row("POST", one + ":modifyAcl", "topics:modifyAcl", self.modify_acl, wire.NewAccessList, versioned=True),
            Row(
                "POST",
                one + ":changeAcl",
                "topics:changeAcl",
                self.change_acl,
                wire.AccessListChange,
                wire.Acl,
                versioned=True,
            ),
            Row(
                "POST", one + ":attachSchema", "topics:attachSchema", self.attach, wire.SchemaReference, versioned=True
            ),
            Row("POST", one + ":detachSchema", "topics:detachSchema", self.detach, versioned=True),
            Row("GET", one, "topics:show", self.show, answers=wire.Topic, versioned=True),
            Row("PUT", one, "topics:create", self.create, wire.SchemaReference, wire.Topic),
            Row("DELETE", one, "topics:delete", self.delete, versioned=True),
        ]

    async def list(self, call: Call) -> wire.Topics:
        """Answer a page of topics."""
        page = await self._topics.list(call.caller, page_request(call))
        return await shown_page(wire.Topics, "topics", page, lambda topic: shown_topic(call.project, topic))

    async def show(self, call: Call) -> Versioned:
        """Answer a topic."""
        topic = await self._topics.show(call.caller, call.topic)
        return Versioned(shown_topic(call.project, topic), without_access_list(topic))

    async def create(self, call: Call) -> wire.Topic:
        """Make a topic; the body may be empty."""
        schema = strings(await call.body()).get("schema", "")
        topic = await self._topics.create(call.caller, call.topic, schema)
        return shown_topic(call.project, topic)

    async def delete(self, call: Call) -> None:
        """Delete a topic and its messages."""
        await self._topics.delete(call.caller, call.topic)

    async def subscriptions(self, call: Call) -> wire.SubscriptionNames:
        """Answer the resource names of a topic's subscriptions, oldest first."""
        names = await self._topics.subscriptions_of(call.caller, call.topic)
        return wire.SubscriptionNames([subscription_path(call.project, name) for name in names])

    async def acl(self, call: Call) -> Versioned:
        """Answer who is on a topic's access list."""
        listed = await self._topics.access_list(call.caller, call.topic)
        return Versioned(wire.Acl(listed), listed)

    async def modify_acl(self, call: Call) -> None:
        """Replace a topic's access list."""
        names = read_access_list(await call.body(), _BAD_ACCESS_LIST)
        await self._topics.set_access_list(call.caller, call.topic, names)

    async def change_acl(self, call: Call) -> wire.Acl:
        """Add users to a topic's access list and remove others; answer the list."""
        add, remove = read_access_change(await call.body(), _BAD_ACCESS_LIST)
        return wire.Acl(await self._topics.change_access_list(call.caller, call.topic, add, remove))

    async def attach(self, call: Call) -> None:
        """Attach a schema; a body that names none detaches."""
        await self._topics.show(call.caller, call.topic)  # the topic comes before the body (contract 8)
        schema = strings(await call.body()).get("schema", "")
        await self._topics.attach_schema(call.caller, call.topic, schema)

    async def detach(self, call: Call) -> None:
        """Detach the schema; the body is not read."""
        await self._topics.detach_schema(call.caller, call.topic)


class RetentionRoutes:
    """The routes of retention."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one, topic = "/projects/{project}:modifyRetention", "/projects/{project}/topics/{topic}:modifyRetention"
        return [
            Row("POST", topic, "topics:modifyRetention", self.of_topic, wire.NewRetention, wire.Topic, versioned=True),
            Row(
                "POST",
                one,
                "projects:modifyRetention",
                self.of_project,
                wire.NewRetention,
                wire.Project,
                versioned=True,
            ),
        ]

    async def of_topic(self, call: Call) -> wire.Topic:
        """Change how long a topic's messages are kept; answer the topic."""
        seconds = _retention.read(await call.body()).retention_seconds or 0
        topic = await self._retention.of_topic(call.caller, call.topic, seconds)
        return shown_topic(call.project, topic)

    async def of_project(self, call: Call) -> wire.Project:
        """Change how long messages are kept in topics without a time of their own; answer the project."""
        seconds = _retention.read(await call.body()).retention_seconds or 0
        return shown_project(await self._retention.of_project(call.caller, seconds))


def shown_topic(project: str, topic: records.Topic) -> wire.Topic:
    """Show a topic of a project."""
    schema = schema_path(project, topic.schema.name) if topic.schema else ""
    return wire.Topic(
        topic_path(project, topic.name), resource_date(topic.created_on), schema, (topic.retention or 0) // 1000
    )
