"""Push in the form of Google's Pub/Sub: what a subscription says of it besides its endpoint.

One message goes with one request, and every answer that is no good one counts as a nack (`docs/reference/pubsub.md`).
"""

from collections.abc import Mapping
from dataclasses import dataclass

from ams.core.errors import InvalidInput
from ams.core.urls import has_credentials

VERSION = "x-goog-version"
"""The one attribute that a push configuration may have."""
_VERSIONS = ("v1", "v1beta1", "v1beta2")
_LONGEST = 2048
"""Characters of an endpoint, an audience or an address."""


@dataclass(frozen=True, slots=True)
class GoogleForm:
    """How deliveries look."""

    is_wrapped: bool = True
    """Whether a body is JSON with the message in it; else it is the data alone."""
    write_metadata: bool = False
    """Whether headers say what the wrapper would, where there is none."""
    service_account: str = ""
    """The address of mail in the OpenID Connect token of a delivery; empty: deliveries have none."""
    audience: str = ""
    """Whom that token is for; empty: the endpoint."""
    version: str = ""
    """As asked for, one of three that look the same here; empty: not said."""


def version_of(attributes: Mapping[str, str]) -> str:
    """Return the version that attributes ask for, empty for none; raise `InvalidInput` for anything else in them."""
    version = attributes.get(VERSION, "")
    if set(attributes) - {VERSION} or (attributes and version not in _VERSIONS):
        raise InvalidInput(
            f"Invalid push endpoint version given in the attributes: {VERSION} is the only one, and v1, v1beta1 or"
            " v1beta2 its value."
        )
    return version


def check(form: GoogleForm, endpoint: str, *, is_permitted: bool) -> None:
    """Raise `InvalidInput` for what cannot be delivered."""
    if has_credentials(endpoint):
        raise InvalidInput(
            "Invalid push endpoint given: it has a user and password in it. Leave them out, and give an oidc_token."
        )
    if not is_permitted or len(endpoint) > _LONGEST:
        raise InvalidInput(
            f"Invalid push endpoint given (endpoint={endpoint[:_LONGEST]}). It must be a URL that begins with https."
        )
    for name, text in (("service_account_email", form.service_account), ("audience", form.audience)):
        if len(text) > _LONGEST or not text.isprintable():
            raise InvalidInput(f"Invalid oidc_token given: its {name} is too long or cannot be printed.")
    if form.audience and not form.service_account:
        raise InvalidInput("Invalid oidc_token given: it has no service_account_email.")
