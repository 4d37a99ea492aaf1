"""Projects and their members (contract 7), topics, except publishing (contract 8), and retention."""

from ams.core.clock import resource_date
from ams.core.errors import refuse_if
from ams.core.names import ProjectName, schema_path, subscription_path, topic_path
from ams.http import routing
from ams.http.bodies import strings
from ams.http.routes.users import grants, shown_user, versioned_user
from ams.http.routing import Call, Versioned
from ams.service import projects, topics
from ams.service.lookup import without_access_list
from ams.service.projects import Members, QuotaUse
from ams.service.retention import Retention
from ams.storage.registry import records
from ams.wire import projects as wire
from ams.wire.base import Nothing
from ams.wire.users import MemberBody, MemberRoles, User, Users

_BAD_MEMBER_TEXT = "Invalid User Arguments"
_BAD_QUOTAS_TEXT = "Invalid Quota Arguments"
_BAD_ACCESS_LIST_TEXT = "Invalid Topic ACL Arguments"


class ProjectRoutes:
    """The routes of projects, their members, and topics."""

    def __init__(
        self, projects: projects.Projects, members: Members, quotas: QuotaUse, topics: topics.Topics,
        retention: Retention,
    ) -> None:  # fmt: skip
        self._projects, self._members, self._quotas, self._retention = projects, members, quotas, retention
        self._topics = topics
        self.topics_delete = routing.forward(topics.delete, "topic")
        self.topics_acl = routing.forward(topics.access_list, "topic", show=routing.shown_acl)
        self.topics_modify_acl = routing.replace_acl(topics.change_access_list, "topic", _BAD_ACCESS_LIST_TEXT)
        self.topics_change_acl = routing.change_acl(topics.change_access_list, "topic", _BAD_ACCESS_LIST_TEXT)
        self.projects_quotas = routing.forward(quotas.show)
        self.projects_delete = routing.forward(projects.delete)
        self.projects_show_user = routing.forward(members.show, "user", show=versioned_user)
        self.projects_refresh_user_token = routing.forward(members.refresh_token, "user", show=shown_user)
        self.projects_remove_user = routing.forward(members.remove, "user", show=lambda _: Nothing())

    async def projects_modify_quotas(self, call: Call) -> wire.ProjectQuotas:
        changes = (await call.read(wire.QuotaChanges, _BAD_QUOTAS_TEXT)).quotas or {}
        refuse_if(not changes, _BAD_QUOTAS_TEXT)
        return await self._quotas.change(call.caller, changes)

    async def projects_list(self, call: Call) -> wire.Projects:
        return wire.Projects(await routing.shown_list(await self._projects.list(), shown_project))

    async def projects_show(self, call: Call) -> Versioned:
        return Versioned(shown_project(call.caller.here), call.caller.here)

    async def projects_create(self, call: Call) -> wire.Project:
        wanted = await call.read(wire.NewProject, "Invalid Project Arguments")
        name = ProjectName(call.variables["project"])
        return shown_project(await self._projects.create(call.caller, name, wanted.description or ""))

    async def projects_update(self, call: Call) -> wire.Project:
        wanted = await call.read(wire.ProjectChange)
        project = await self._projects.update(
            call.caller, name=wanted.name or "", description=wanted.description or "", strict_data=wanted.strict_data
        )
        return shown_project(project)

    async def projects_modify_retention(self, call: Call) -> wire.Project:
        return shown_project(await self._retention.of_project(call.caller, await _retention_seconds(call)))

    async def projects_list_users(self, call: Call) -> Users:
        wanted, details = routing.page_request(call), call.parameter("details") == "true"
        page = await self._members.list(call.caller, wanted, details=details)
        return await routing.shown_page(Users, "users", page, shown_user)

    async def projects_create_user(self, call: Call) -> User:
        wanted = await call.read(MemberBody, _BAD_MEMBER_TEXT)
        given, email = grants(wanted.projects or ()), wanted.email or ""
        return shown_user(await self._members.create(call.caller, call.user, grants=given, email=email))

    async def projects_update_user(self, call: Call) -> User:
        wanted = await call.read(MemberBody, _BAD_MEMBER_TEXT)
        return shown_user(await self._members.update(call.caller, call.user, grants(wanted.projects or ())))

    async def projects_add_user(self, call: Call) -> User:
        await self._members.find(call.user)
        wanted = await call.read(MemberRoles)
        return shown_user(await self._members.add(call.caller, call.user, wanted.roles or ()))

    async def topics_list(self, call: Call) -> wire.Topics:
        page = await self._topics.list(call.caller, routing.page_request(call))
        return await routing.shown_page(wire.Topics, "topics", page, lambda topic: shown_topic(call.project, topic))

    async def topics_show(self, call: Call) -> Versioned:
        topic = await self._topics.show(call.caller, call.topic)
        return Versioned(shown_topic(call.project, topic), without_access_list(topic))

    async def topics_create(self, call: Call) -> wire.Topic:
        schema = strings(await call.body()).get("schema", "")
        return shown_topic(call.project, await self._topics.create(call.caller, call.topic, schema))

    async def topics_modify_retention(self, call: Call) -> wire.Topic:
        topic = await self._retention.of_topic(call.caller, call.topic, await _retention_seconds(call))
        return shown_topic(call.project, topic)

    async def subscriptions_list_by_topic(self, call: Call) -> wire.SubscriptionNames:
        names = await self._topics.subscriptions_of(call.caller, call.topic)
        return wire.SubscriptionNames([subscription_path(call.project, name) for name in names])

    async def topics_attach_schema(self, call: Call) -> None:
        await self._topics.show(call.caller, call.topic)  # the topic is checked before the body (contract 8)
        await self._topics.attach_schema(call.caller, call.topic, strings(await call.body()).get("schema", ""))

    async def topics_detach_schema(self, call: Call) -> None:
        await self._topics.attach_schema(call.caller, call.topic, "")


def shown_project(project: records.Project) -> wire.Project:
    """Return a project for the wire."""
    return routing.wire_record(wire.Project, project, retention_seconds=(project.retention or 0) // 1000)


async def _retention_seconds(call: Call) -> int:
    return (await call.read(wire.NewRetention, "Invalid Retention Arguments")).retention_seconds or 0


def shown_topic(project: str, topic: records.Topic) -> wire.Topic:
    """Return a topic of a project for the wire."""
    schema = schema_path(project, topic.schema.name) if topic.schema else ""
    seconds = (topic.retention or 0) // 1000
    return wire.Topic(topic_path(project, topic.name), resource_date(topic.created_on), schema, seconds)
