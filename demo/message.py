"""What a publisher hands to the service and a consumer gets back."""

from typing import NamedTuple


class Message(NamedTuple):
    """Attributes and payload, as one application gives them to another."""

    attributes: dict[str, str]
    data: bytes
