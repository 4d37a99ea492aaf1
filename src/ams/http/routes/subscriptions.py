"""Subscriptions over HTTP, but for pull and acknowledge, which are hot routes (contract 9)."""

from ams.core.errors import InvalidInput
from ams.http.routes import answers
from ams.http.routes.bodies import NewAccessList, access_list_reader
from ams.http.routes.push import PushConfigBody, asked
from ams.http.routing import PAGE, Call, Row, page_request
from ams.http.wire import Reader, Shape
from ams.service.push.pushing import Pushing
from ams.service.subscriptions import Subscriptions


class NewSubscription(Shape, rename="camel"):
    """A subscription to make (contract 9.3)."""

    topic: str | None = None
    ack_deadline_seconds: int | None = None
    push_config: PushConfigBody | None = None


class AckDeadline(Shape, rename="camel"):
    """Seconds, 0 to 600; absent is 0."""

    ack_deadline_seconds: int | None = None


_create = Reader(NewSubscription, lambda: InvalidInput("Invalid Subscription Arguments"))
_ack_deadline = Reader(
    AckDeadline, lambda: InvalidInput("Invalid ackDeadlineSeconds(needs value between 0 and 600) Arguments")
)
_access_list = access_list_reader("Invalid Subscription ACL Arguments")


class SubscriptionRoutes:
    """The routes of subscriptions."""

    def __init__(self, subscriptions: Subscriptions, pushing: Pushing) -> None:
        self._subscriptions = subscriptions
        self._pushing = pushing

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        subscriptions = "/projects/{project}/subscriptions"
        one = subscriptions + "/{subscription}"
        return [
            Row("GET", subscriptions, "subscriptions:list", self.list, answers=answers.Subscriptions, parameters=PAGE),
            Row("GET", one + ":acl", "subscriptions:acl", self.access_list, answers=answers.Acl),
            Row("POST", one + ":modifyAcl", "subscriptions:modifyAcl", self.modify_access_list, reads=NewAccessList),
            Row(
                "POST",
                one + ":modifyAckDeadline",
                "subscriptions:modifyAckDeadline",
                self.modify_ack_deadline,
                reads=AckDeadline,
            ),
            Row("GET", one, "subscriptions:show", self.show, answers=answers.Subscription),
            Row("PUT", one, "subscriptions:create", self.create, reads=NewSubscription, answers=answers.Subscription),
            Row("DELETE", one, "subscriptions:delete", self.delete),
        ]

    async def list(self, call: Call) -> bytes:
        """Answer a page of subscriptions."""
        page = await self._subscriptions.list(call.caller, page_request(call))
        project = call.caller.here.name
        return await answers.encode_page(
            answers.Subscriptions, "subscriptions", page, lambda each: answers.subscription(project, each)
        )

    async def show(self, call: Call) -> bytes:
        """Answer a subscription; here alone with the state of its delivery."""
        subscription = await self._subscriptions.show(call.caller, call.subscription)
        status = await self._pushing.status(call.caller.here.name, subscription)
        return answers.encode(answers.subscription(call.caller.here.name, subscription, status))

    async def create(self, call: Call) -> bytes:
        """Make a subscription at the present end of its topic."""
        wanted = _create.read(await call.body())
        subscription = await self._subscriptions.create(
            call.caller,
            call.subscription,
            wanted.topic or "",
            wanted.ack_deadline_seconds or 0,
            push=asked(wanted.push_config),
        )
        return answers.encode(answers.subscription(call.caller.here.name, subscription))

    async def delete(self, call: Call) -> bytes:
        """Delete a subscription; one that was delivered answers what becomes of that."""
        message = await self._subscriptions.delete(call.caller, call.subscription)
        return answers.encode({"message": message}) if message else answers.EMPTY

    async def modify_ack_deadline(self, call: Call) -> bytes:
        """Change the acknowledgement deadline; an absent one is 0."""
        seconds = _ack_deadline.read(await call.body()).ack_deadline_seconds or 0
        await self._subscriptions.modify_ack_deadline(call.caller, call.subscription, seconds)
        return answers.EMPTY

    async def access_list(self, call: Call) -> bytes:
        """Answer who is on a subscription's access list."""
        return answers.encode(answers.Acl(await self._subscriptions.access_list(call.caller, call.subscription)))

    async def modify_access_list(self, call: Call) -> bytes:
        """Replace a subscription's access list."""
        await self._subscriptions.set_access_list(call.caller, call.subscription, _access_list(await call.body()))
        return answers.EMPTY
