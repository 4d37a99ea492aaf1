"""What the push configuration of a subscription in an export may say."""

from ams.core.errors import InvalidInput
from ams.core.names import checked_name
from ams.core.push_config import HTTP_ENDPOINT, MATTERMOST, MAX_ATTEMPTS, PushConfig, is_https
from ams.push import signing
from ams.storage.export_format import Subscription

MAX_SECRETS = 2
"""Of a subscription: the one that signs, and the one before for a while."""


def check_push(line: Subscription) -> None:
    """Raise `InvalidInput` for a push configuration, or secrets of one, that cannot be."""
    if line.push is not None:
        _check_config(line.push)
        if line.push.dead_letter_topic == line.topic:
            raise InvalidInput("a dead letter topic that is the subscription's own")
    _check_secrets(line)


def _check_config(push: PushConfig) -> None:
    if push.type not in (HTTP_ENDPOINT, MATTERMOST):
        raise InvalidInput(f"push of type {push.type!r}, which is none")
    if push.type == HTTP_ENDPOINT and not is_https(push.endpoint):
        raise InvalidInput("a push endpoint that is no https URL")
    _check_dead_letters(push)


def _check_dead_letters(push: PushConfig) -> None:
    if not push.dead_letter_topic:
        if push.max_delivery_attempts:
            raise InvalidInput("max_delivery_attempts without a dead_letter_topic")
        return
    checked_name("dead letter topic", push.dead_letter_topic)
    if not 1 <= push.max_delivery_attempts <= MAX_ATTEMPTS:
        raise InvalidInput(f"max_delivery_attempts {push.max_delivery_attempts}, and there are 1 to {MAX_ATTEMPTS}")


def _check_secrets(line: Subscription) -> None:
    if line.push_secrets and (line.push is None or line.push.type != HTTP_ENDPOINT):
        raise InvalidInput("push_secrets without a push endpoint")
    if len(line.push_secrets) > MAX_SECRETS:
        raise InvalidInput(f"more than {MAX_SECRETS} push_secrets")
    for each in line.push_secrets:
        try:
            signing.key(each.secret)
        except ValueError as error:
            raise InvalidInput(str(error)) from None
