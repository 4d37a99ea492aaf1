"""The page of the reference names every field of every request."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from ams.pubsub import protos
from ams.pubsub.resources import SUBSCRIPTION_REFUSED, TOPIC_REFUSED

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "pubsub.md").read_text()
NAMED = frozenset(re.findall(r"`([a-z_]+)`", PAGE))
REQUESTS = sorted({"Topic", "Subscription", *(name for name in vars(protos) if name.endswith("Request"))})
"""CreateTopic and CreateSubscription ask with the resource itself."""
PACKAGES = ("google.pubsub.v1", "google.iam.v1")
AS_A_WHOLE = {
    *TOPIC_REFUSED,
    *SUBSCRIPTION_REFUSED,
    "compiled_proto_schema",
    "analytics_hub_subscription_info",
    "audit_configs",
}
"""Refused or ignored whatever is in them."""


def fields_of(message: Any) -> Iterator[str]:
    """Yield the names of a message's fields, and of those of the messages in it."""
    if message.GetOptions().map_entry:  # a map has keys and values, not fields
        return
    for field in message.fields:
        yield field.name.rstrip("_")  # the library spells `type` with one
        inner = field.message_type
        if inner is not None and inner.file.package in PACKAGES and field.name not in AS_A_WHOLE:
            yield from fields_of(inner)


@pytest.mark.parametrize("request_type", REQUESTS)
def test_every_field_of_a_request_is_in_the_reference(request_type: str) -> None:
    fields = set(fields_of(getattr(protos, request_type).DESCRIPTOR))
    assert fields != set()
    assert fields - NAMED == set()
