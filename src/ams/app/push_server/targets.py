"""Targets parsed from gRPC and HTTP, and validated (push contract 3, 7 and P4, P18, P32)."""

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from ams.client import wire
from ams.core import push_config
from ams.core.ack_ids import DEFAULT_ACK_DEADLINE
from ams.core.names import is_name, is_resource_name
from ams.core.parallel_options import PARALLEL
from ams.core.push_config import AUTOGEN, DISABLED, HTTP_ENDPOINT, MATTERMOST, SLOWSTART, PushConfig
from ams.core.urls import has_credentials
from ams.push.rpc import push_service_pb2 as pb
from ams.push.upstream import Target
from ams.wire.push import AuthorizationHeader, RetryPolicy
from ams.wire.push import PushConfig as ShownConfig

_PATH = re.compile(r"/projects/([^/]+)/subscriptions/([^/]+)")
_TYPES = {pb.HTTP_ENDPOINT: HTTP_ENDPOINT, pb.MATTERMOST: MATTERMOST}


class InvalidTarget(Exception):
    """The target cannot be delivered; the text has the reason, without secrets."""


def split_path(path: str) -> tuple[str, str]:
    """Return project and name of a subscription `/projects/P/subscriptions/S`. Raises `InvalidTarget`."""
    found = _PATH.fullmatch(path)
    if found is None or not is_name(found[1]) or not is_resource_name(found[2]):
        raise InvalidTarget(f"Invalid subscription, {path[:300]!r}")
    return found[1], found[2]


def of_message(activated: pb.Subscription) -> Target:
    """Return the target of an activation. Raises `InvalidTarget` with the texts of push contract 3."""
    config = activated.push_config
    if (kind := _TYPES.get(config.type)) is None:
        raise InvalidTarget(f"Invalid argument, push type {int(config.type)} not yet implemented")
    is_http = kind == HTTP_ENDPOINT
    made = _push_config(ShownConfig(
        type=kind, push_endpoint=config.push_endpoint if is_http else "",
        max_messages=config.max_messages if is_http else 1,
        authorization_header=AuthorizationHeader(value=config.authorization_header if is_http else ""),
        retry_policy=RetryPolicy(config.retry_policy.type, config.retry_policy.period),
        mattermost_url=config.mattermost_url, mattermost_username=config.mattermost_username,
        mattermost_channel=config.mattermost_channel, base64_decode=config.base_64_decode,
    ))  # fmt: skip
    split_path(activated.full_name)
    return Target(activated.full_name, activated.full_topic, made, DEFAULT_ACK_DEADLINE)


def of_subscription(shown: wire.Subscription) -> Target | None:
    """Return the target of a subscription; None without push. Raises `InvalidTarget` (P4)."""
    if (config := of_config(shown.push_config)) is None:
        return None
    split_path(shown.name)
    is_parallel = shown.type == PARALLEL
    return Target(shown.name, shown.topic, config, shown.ack_deadline_seconds, is_parallel=is_parallel)


def of_config(shown: Mapping[str, Any]) -> PushConfig | None:
    """Return a push configuration in a service's answer; None if it is empty. Raises `InvalidTarget`."""
    try:
        config = msgspec.convert(shown, ShownConfig)
    except msgspec.ValidationError as error:
        raise InvalidTarget(f"Invalid push configuration, {error}") from None
    if not config.type:
        return None
    if config.type not in (HTTP_ENDPOINT, MATTERMOST):
        raise InvalidTarget(f"Invalid argument, push type {config.type!r} not yet implemented")
    return _push_config(config, push_config.LINEAR)


def _push_config(sent: ShownConfig, usual_policy: str = "") -> PushConfig:
    policy = sent.retry_policy.type or usual_policy
    if sent.type == HTTP_ENDPOINT and not push_config.is_https(sent.push_endpoint):
        raise InvalidTarget(f"Invalid push endpoint, {_why_not_https(sent.push_endpoint)}")
    if sent.type == MATTERMOST and not sent.mattermost_url:
        raise InvalidTarget("Invalid mattermost url, it is empty")
    if sent.type == MATTERMOST and has_credentials(sent.mattermost_url):
        raise InvalidTarget("Invalid mattermost url, it has a user and password in it")
    if policy not in (push_config.LINEAR, SLOWSTART, push_config.EXPONENTIAL):
        raise InvalidTarget(f"Invalid argument, worker {policy[:100]} not yet implemented")
    if not 0 <= sent.max_messages <= push_config.MAX_MESSAGES:
        raise InvalidTarget(f"Invalid argument, max_messages must be between 1 and {push_config.MAX_MESSAGES}")
    header = sent.authorization_header.value
    return PushConfig(
        sent.type, sent.push_endpoint, max_messages=sent.max_messages or 1, header_value=header,
        header_type="" if sent.type == MATTERMOST else AUTOGEN if header else DISABLED, retry_policy=policy,
        retry_period=0 if policy == SLOWSTART else sent.retry_policy.period or push_config.DEFAULT_PERIOD,
        verified=True, mattermost_url=sent.mattermost_url, mattermost_username=sent.mattermost_username,
        mattermost_channel=sent.mattermost_channel, base64_decode=sent.base64_decode,
        dead_letter_topic=(sent.dead_letter_topic or "").rpartition("/")[2],
        max_delivery_attempts=sent.max_delivery_attempts or 0, max_outstanding=sent.max_outstanding or 0,
    )  # fmt: skip


def _why_not_https(endpoint: str) -> str:
    if has_credentials(endpoint):
        return "it has a user and password in it"
    if not endpoint:
        return 'parse "": empty url'
    is_word = "/" not in endpoint and ":" not in endpoint
    why = "invalid URI for request" if is_word else "not an absolute https URL with a host"
    return f'parse "{endpoint[:300]}": {why}'
