"""Our values as messages of the wire, and the methods by their paths (push contract 2)."""

from typing import Generic, NamedTuple, TypeVar

from google.protobuf.message import Message

from ams.core.push_config import MATTERMOST, MOST_PERIOD, PushConfig
from ams.push.rpc import push_service_pb2 as pb
from ams.push.upstream import Target

SERVICE = "PushService"
HEALTH = "grpc.health.v1.Health"

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)


class Method(NamedTuple, Generic[Q, A]):
    """A method of the service: its name and the messages it takes and gives."""

    name: str
    request: type[Q]
    answer: type[A]

    @property
    def path(self) -> str:
        """What calls name; there is no package before the service."""
        return f"/{SERVICE}/{self.name}"


ACTIVATE = Method("ActivateSubscription", pb.ActivateSubscriptionRequest, pb.ActivateSubscriptionResponse)
DEACTIVATE = Method("DeactivateSubscription", pb.DeactivateSubscriptionRequest, pb.DeactivateSubscriptionResponse)
SUBSCRIPTION_STATUS = Method("SubscriptionStatus", pb.SubscriptionStatusRequest, pb.SubscriptionStatusResponse)
STATUS = Method("Status", pb.StatusRequest, pb.StatusResponse)


def subscription(target: Target) -> pb.Subscription:
    """Return what a push server gets of a target; the wire knows no secrets, dead letters or deadlines."""
    return pb.Subscription(full_name=target.path, full_topic=target.topic, push_config=_push_config(target.config))


def _push_config(config: PushConfig) -> pb.PushConfig:
    return pb.PushConfig(
        type=pb.MATTERMOST if config.type == MATTERMOST else pb.HTTP_ENDPOINT,
        push_endpoint=config.endpoint,
        max_messages=config.max_messages,
        authorization_header=config.header_value,
        retry_policy=pb.RetryPolicy(type=config.retry_policy, period=min(config.retry_period, MOST_PERIOD)),
        mattermost_url=config.mattermost_url,
        mattermost_username=config.mattermost_username,
        mattermost_channel=config.mattermost_channel,
        base_64_decode=config.base64_decode,
    )
