"""How long messages are kept, over HTTP; no part of the contract."""

from ams.core.errors import InvalidInput
from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.http.wire import Reader, Shape
from ams.service.retention import Retention


class NewRetention(Shape, rename="camel"):
    """How long messages are kept; absent or 0: as the project or the setting says."""

    retention_seconds: int | None = None


_retention = Reader(NewRetention, lambda: InvalidInput("Invalid Retention Arguments"))


class RetentionRoutes:
    """The routes of retention."""

    def __init__(self, retention: Retention) -> None:
        self._retention = retention

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        project, topic = "/projects/{project}:modifyRetention", "/projects/{project}/topics/{topic}:modifyRetention"
        return [
            Row("POST", topic, "topics:modifyRetention", self.of_topic, reads=NewRetention, answers=answers.Topic),
            Row(
                "POST", project, "projects:modifyRetention", self.of_project,
                reads=NewRetention, answers=answers.Project,
            ),
        ]  # fmt: skip

    async def of_topic(self, call: Call) -> bytes:
        """Change how long a topic's messages are kept; answer the topic."""
        seconds = _seconds(await call.body())
        topic = await self._retention.of_topic(call.caller, call.topic, seconds)
        return answers.encode(answers.topic(call.caller.here.name, topic))

    async def of_project(self, call: Call) -> bytes:
        """Change how long messages are kept in topics without a time of their own; answer the project."""
        return answers.encode(
            answers.project(await self._retention.of_project(call.caller, _seconds(await call.body())))
        )


def _seconds(body: bytes) -> int:
    return _retention.read(body).retention_seconds or 0
