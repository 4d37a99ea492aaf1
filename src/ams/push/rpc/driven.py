"""A push server that is driven: what the API asks of it, and what keeps it in step."""

from collections.abc import Awaitable, Callable, Sequence

from ams.core.supervisor import Supervisor
from ams.push.rpc.channel import Place
from ams.push.rpc.client import SECONDS, GrpcPushServer
from ams.push.rpc.driving import Driving
from ams.push.target import Target


class DrivenPushServer(GrpcPushServer):
    """A push server elsewhere that delivers what is wanted, as long as this runs. Raises as `GrpcPushServer` does."""

    def __init__(self, place: Place) -> None:
        super().__init__(place)
        self._driving: Driving | None = None

    async def start(
        self, targets: Callable[[], Awaitable[Sequence[Target]]], supervisor: Supervisor | None = None
    ) -> None:
        """Begin to keep it in step with `targets`, in the background.

        Those whose topic is gone are left out: a push server of another make would pull them for ever (P31).
        """

        async def with_topic() -> Sequence[Target]:
            return [each for each in await targets() if each.topic_id]

        self._driving = Driving(self, with_topic)
        await self._driving.start(supervisor)

    async def settle(self) -> None:
        """Bring it in step now, in a few seconds at most; what fails is tried again in the background."""
        if self._driving is not None:
            await self._driving.settle(SECONDS)

    async def close(self) -> None:
        """Let go of the connection; what the push server delivers goes on."""
        if self._driving is not None:
            await self._driving.close()
        await super().close()
