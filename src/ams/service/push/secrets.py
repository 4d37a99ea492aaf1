"""Secrets of signatures: made, shown once to whoever asked for them, and replaced while receivers follow."""

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from ams.access.admission import Caller
from ams.core.clock import Milliseconds
from ams.core.errors import Conflict, InvalidInput
from ams.core.names import SubscriptionName
from ams.core.push_config import HTTP_ENDPOINT, PushConfig
from ams.push.delivery import new_secret
from ams.service.lookup import find_subscription
from ams.service.push.pushing import no_push_server
from ams.storage.registry.registry import Registry

KEEP_SECONDS = 86_400
"""How long the secret before stays valid when nobody says."""
MAX_KEEP_SECONDS = 30 * 86_400
BAD_KEEP = f"Field keepSeconds should be between 0 and {MAX_KEEP_SECONDS}"
NOT_HTTP = "Subscription is not in http push mode"


@dataclass(frozen=True, slots=True)
class Rotated:
    """A new secret."""

    secret: str = field(repr=False)
    previous_until: Milliseconds | None
    """When the one before ends; None when there is none any more."""


@dataclass(frozen=True, slots=True)
class PushSecrets:
    """Replaces what the deliveries of a subscription are signed with."""

    registry: Registry
    changed: Callable[[], Awaitable[None]] = no_push_server
    """Lets whoever delivers follow at once."""

    async def rotate(self, caller: Caller, name: SubscriptionName, keep_seconds: int = KEEP_SECONDS) -> Rotated:
        """Make a new secret, the first one too; deliveries are signed with the one before as well for a while.

        Raises, in this order: `InvalidInput` for `keep_seconds`, `NotFound`, `Conflict` unless messages of the
        subscription go to an endpoint.
        """
        if not 0 <= keep_seconds <= MAX_KEEP_SECONDS:
            raise InvalidInput(BAD_KEEP)
        subscription = await find_subscription(self.registry, caller, name)
        secret = new_secret()
        keep = Milliseconds(keep_seconds * 1000)
        until = await self.registry.push_secrets.rotate(subscription.id, secret, keep, _require_endpoint)
        await self.changed()
        return Rotated(secret, until)


def _require_endpoint(config: PushConfig | None) -> None:
    if config is None or config.type != HTTP_ENDPOINT:
        raise Conflict(NOT_HTTP)
