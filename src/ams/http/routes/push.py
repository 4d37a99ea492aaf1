"""Push configurations over HTTP (HTTP contract 13)."""

from typing import Annotated, Any

import msgspec

from ams.core.clock import resource_date
from ams.core.errors import InvalidInput
from ams.core.push_config import AskedPush
from ams.http.routes import answers
from ams.http.routing import Call, Row
from ams.http.wire import Reader, Shape
from ams.service.push.pushing import Pushing
from ams.service.push.secrets import KEEP_SECONDS, PushSecrets

Integer = Annotated[int, msgspec.Meta(ge=-(2**63), le=2**63 - 1)]
"""What known clients can read."""


class AuthorizationHeaderBody(Shape):
    """`authorizationHeader` in a body; the value is ignored."""

    type: str | None = None
    value: str | None = None


class RetryPolicyBody(Shape):
    """`retryPolicy` in a body; the period in milliseconds."""

    type: str | None = None
    period: Integer | None = None


class PushConfigBody(Shape, rename="camel"):
    """`pushConfig` in a body (HTTP contract 13.1); the hash and `verified` are ignored, but they are not nothing."""

    type: str | None = None
    push_endpoint: str | None = None
    max_messages: Integer | None = None
    authorization_header: AuthorizationHeaderBody | None = None
    retry_policy: RetryPolicyBody | None = None
    verification_hash: str | None = None
    verified: bool | None = None
    mattermost_url: str | None = None
    mattermost_username: str | None = None
    mattermost_channel: str | None = None
    base64_decode: bool | None = None
    dead_letter_topic: str | None = None
    max_delivery_attempts: Integer | None = None


class NewPushConfig(Shape, rename="camel"):
    """The body of modifyPushConfig."""

    push_config: PushConfigBody | None = None


class SecretRotation(Shape, rename="camel"):
    """How long the secret before stays valid, 0 to 30 days; absent is one day."""

    keep_seconds: Integer | None = None


class NewSecret(msgspec.Struct, rename="camel", omit_defaults=True):
    """A secret, shown this once, and when the one before ends, if there is one."""

    secret: str
    previous_valid_until: str = ""


_rotation = Reader(SecretRotation, lambda: InvalidInput("Invalid Push Secret Arguments"))
_modify = Reader(NewPushConfig, lambda: InvalidInput("Invalid Subscription Arguments"))


class PushRoutes:
    """The routes of push configurations."""

    def __init__(self, pushing: Pushing, secrets: PushSecrets) -> None:
        self._pushing = pushing
        self._secrets = secrets

    def rows(self) -> list[Row]:
        """Return the rows of the route table."""
        one = "/projects/{project}/subscriptions/{subscription}"
        modify, verify = "subscriptions:modifyPushConfig", "subscriptions:verifyPushEndpoint"
        rotate = "subscriptions:rotatePushSecret"
        return [
            Row("POST", one + ":modifyPushConfig", modify, self.modify, reads=NewPushConfig),
            Row("POST", one + ":verifyPushEndpoint", verify, self.verify),
            Row("POST", one + ":rotatePushSecret", rotate, self.rotate, reads=SecretRotation, answers=NewSecret),
        ]

    async def modify(self, call: Call) -> bytes:
        """Replace a push configuration; an empty one makes it a pull subscription."""
        wanted = asked(_modify.read(await call.body()).push_config)
        await self._pushing.modify(call.caller, call.subscription, wanted)
        return answers.EMPTY

    async def verify(self, call: Call) -> bytes:
        """Ask the endpoint whether it wants the messages; what the body says does not matter."""
        await self._pushing.verify(call.caller, call.subscription)
        return answers.EMPTY

    async def rotate(self, call: Call) -> bytes:
        """Sign deliveries with a new secret from now on; nothing else ever shows it."""
        keep = _rotation.read(await call.body() or answers.EMPTY_OBJECT).keep_seconds
        made = await self._secrets.rotate(call.caller, call.subscription, KEEP_SECONDS if keep is None else keep)
        until = resource_date(made.previous_until) if made.previous_until is not None else ""
        return answers.encode(NewSecret(made.secret, until))


def asked(config: PushConfigBody | None) -> AskedPush | None:
    """Return what a body asks for; None when it is absent, or has only empty values (HTTP contract 9.3)."""
    if config is None or _is_empty(config):
        return None
    header = config.authorization_header or AuthorizationHeaderBody()
    retry = config.retry_policy or RetryPolicyBody()
    return AskedPush(
        type=config.type or "",
        endpoint=config.push_endpoint or "",
        max_messages=config.max_messages or 0,
        header_type=header.type or "",
        retry_policy=retry.type or "",
        retry_period=retry.period or 0,
        mattermost_url=config.mattermost_url or "",
        mattermost_username=config.mattermost_username or "",
        mattermost_channel=config.mattermost_channel or "",
        base64_decode=config.base64_decode,
        dead_letter_topic=config.dead_letter_topic or "",
        max_delivery_attempts=config.max_delivery_attempts or 0,
    )


def _is_empty(value: Any) -> bool:
    if isinstance(value, Shape):
        return all(_is_empty(member) for member in msgspec.structs.astuple(value))
    return not value
