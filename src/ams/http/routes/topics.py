"""Topics over HTTP, but for publishing, which is a hot route (contract 8), and how long messages are kept."""

from ams.core.clock import resource_date
from ams.core.errors import InvalidInput
from ams.core.names import schema_path, subscription_path, topic_path
from ams.http.bodies import Reader, access_change_reader, access_list_reader, strings
from ams.http.routes import answers
from ams.http.routes.projects import shown_project
from ams.http.routing import PAGE, Call, Row, Versioned, page_request
from ams.service import topics
from ams.service.lookup import without_access_list
from ams.service.retention import Retention
from ams.storage.registry import records
from ams.wire.projects import (
    AccessListChange,
    Acl,
    NewAccessList,
    NewRetention,
    Project,
    SchemaReference,
    SubscriptionNames,
    Topic,
    Topics,
)

_access_list = access_list_reader("Invalid Topic ACL Arguments")
_access_change = access_change_reader("Invalid Topic ACL Arguments")
_retention = Reader(NewRetention, lambda: InvalidInput("Invalid Retention Arguments"))


class TopicRoutes:
    """The routes of topics."""

    def __init__(self, topics: topics.Topics) -> None:
        self._topics = topics

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        topics = "/projects/{project}/topics"
        return [
            Row("GET", topics, "topics:list", self.list, answers=Topics, parameters=PAGE),
            Row(
                "GET",
                topics + "/{topic}/subscriptions",
                "subscriptions:listByTopic",
                self.subscriptions,
                answers=SubscriptionNames,
            ),
            Row("GET", topics + "/{topic}:acl", "topics:acl", self.access_list, answers=Acl, versioned=True),
            Row(
                "POST",
                topics + "/{topic}:modifyAcl",
                "topics:modifyAcl",
                self.modify_access_list,
                reads=NewAccessList,
                versioned=True,
            ),
            Row(
                "POST",
                topics + "/{topic}:changeAcl",
                "topics:changeAcl",
                self.change_access_list,
                reads=AccessListChange,
                answers=Acl,
                versioned=True,
            ),
            Row(
                "POST",
                topics + "/{topic}:attachSchema",
                "topics:attachSchema",
                self.attach_schema,
                reads=SchemaReference,
                versioned=True,
            ),
            Row("POST", topics + "/{topic}:detachSchema", "topics:detachSchema", self.detach_schema, versioned=True),
            Row("GET", topics + "/{topic}", "topics:show", self.show, answers=Topic, versioned=True),
            Row("PUT", topics + "/{topic}", "topics:create", self.create, reads=SchemaReference, answers=Topic),
            Row("DELETE", topics + "/{topic}", "topics:delete", self.delete, versioned=True),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer a page of topics."""
        page = await self._topics.list(call.caller, page_request(call))
        project = call.caller.here.name
        return await answers.encode_page(Topics, "topics", page, lambda topic: shown_topic(project, topic))

    async def show(self, call: Call) -> Versioned:
        """Answer a topic."""
        topic = await self._topics.show(call.caller, call.topic)
        return answers.versioned(shown_topic(call.caller.here.name, topic), without_access_list(topic))

    async def create(self, call: Call) -> bytes:
        """Make a topic; the body may be empty."""
        schema = strings(await call.body()).get("schema", "")
        topic = await self._topics.create(call.caller, call.topic, schema)
        return answers.encode(shown_topic(call.caller.here.name, topic))

    async def delete(self, call: Call) -> bytes:
        """Delete a topic and its messages."""
        await self._topics.delete(call.caller, call.topic)
        return answers.EMPTY

    async def subscriptions(self, call: Call) -> bytes:
        """Answer the resource names of a topic's subscriptions, oldest first."""
        names = await self._topics.subscriptions_of(call.caller, call.topic)
        project = call.caller.here.name
        return answers.encode(SubscriptionNames([subscription_path(project, name) for name in names]))

    async def access_list(self, call: Call) -> Versioned:
        """Answer who is on a topic's access list."""
        listed = await self._topics.access_list(call.caller, call.topic)
        return answers.versioned(Acl(listed), listed)

    async def modify_access_list(self, call: Call) -> bytes:
        """Replace a topic's access list."""
        await self._topics.set_access_list(call.caller, call.topic, _access_list(await call.body()))
        return answers.EMPTY

    async def change_access_list(self, call: Call) -> bytes:
        """Add users to a topic's access list and remove others; answer the list."""
        add, remove = _access_change(await call.body())
        listed = await self._topics.change_access_list(call.caller, call.topic, add, remove)
        return answers.encode(Acl(listed))

    async def attach_schema(self, call: Call) -> bytes:
        """Attach a schema; a body that names none detaches."""
        await self._topics.show(call.caller, call.topic)  # the topic comes before the body (contract 8)
        schema = strings(await call.body()).get("schema", "")
        await self._topics.attach_schema(call.caller, call.topic, schema)
        return answers.EMPTY

    async def detach_schema(self, call: Call) -> bytes:
        """Detach the schema; the body is not read."""
        await self._topics.detach_schema(call.caller, call.topic)
        return answers.EMPTY


class RetentionRoutes:
    """The routes of retention."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        project, topic = "/projects/{project}:modifyRetention", "/projects/{project}/topics/{topic}:modifyRetention"
        return [
            Row(
                "POST", topic, "topics:modifyRetention", self.of_topic,
                reads=NewRetention, answers=Topic, versioned=True,
            ),
            Row(
                "POST", project, "projects:modifyRetention", self.of_project,
                reads=NewRetention, answers=Project, versioned=True,
            ),
        ]  # fmt: skip

    async def of_topic(self, call: Call) -> bytes:
        """Change how long a topic's messages are kept; answer the topic."""
        seconds = _seconds(await call.body())
        topic = await self._retention.of_topic(call.caller, call.topic, seconds)
        return answers.encode(shown_topic(call.caller.here.name, topic))

    async def of_project(self, call: Call) -> bytes:
        """Change how long messages are kept in topics without a time of their own; answer the project."""
        return answers.encode(shown_project(await self._retention.of_project(call.caller, _seconds(await call.body()))))


def _seconds(body: bytes) -> int:
    return _retention.read(body).retention_seconds or 0


def shown_topic(project: str, topic: records.Topic) -> Topic:
    """Show a topic of a project."""
    schema = schema_path(project, topic.schema.name) if topic.schema else ""
    return Topic(
        topic_path(project, topic.name), resource_date(topic.created_on), schema, (topic.retention or 0) // 1000
    )
