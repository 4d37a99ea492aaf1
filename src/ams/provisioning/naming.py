"""What is made for an endpoint is called after it (authn contract 14.2, steps 5 and 11)."""

import re

from ams.provisioning.listing import Endpoint

SEPARATOR = "---"
_MADE = re.compile(r"(?!-).+?---.+?---.+")


def user_name(endpoint: Endpoint) -> str:
    """Return how the user of an endpoint, and its binding, are called."""
    return _dashed(SEPARATOR.join((endpoint.service_type, endpoint.host, endpoint.site)))


def type_topic(service_type: str) -> str:
    """Return the topic that all endpoints of a type publish to."""
    return _dashed(service_type)


def endpoint_topic(endpoint: Endpoint) -> str:
    """Return the topic, and the subscription, that an endpoint has for itself."""
    return f"SITE_{_dashed(endpoint.site)}_ENDPOINT_{''.join(endpoint.primary_key.split())}"


def is_endpoints_topic(name: str) -> bool:
    """Whether a topic is called as one that an endpoint has for itself."""
    return name.startswith("SITE_") and "_ENDPOINT_" in name


def is_of_endpoint(name: str) -> bool:
    """Whether a user or binding is called as those that provisioning makes, of whatever type.

    The API lets a project's administrator mark a user by nothing else.
    """
    return _MADE.fullmatch(name) is not None


def is_of_type(name: str, service_type: str) -> bool:
    """Whether a user or binding is called as those that provisioning makes for a type."""
    return is_of_endpoint(name) and name.startswith(_dashed(service_type) + SEPARATOR)


def _dashed(text: str) -> str:
    return text.replace(".", "-")
