"""Forwarding: a request about a subscription that another node owns goes to that node, over HTTP and over gRPC.

It goes as it came, with the token of its user: nodes have none between them. The owner lets it in and counts it as any
other, so what it answers is the answer. A forwarded request is marked, and a marked one is refused, not forwarded once
more: two nodes that take each other for the owner would ask for ever. The mark only takes something away, so it needs
no secret. An owner that is not reached, or refuses for a moment (503, UNAVAILABLE), is doubted: it is looked up anew,
over HTTP once for the same request; Google's clients try again by themselves.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ams.core.errors import OwnedElsewhere
from ams.core.names import SubscriptionId

MARK, FORWARDED_FOR = "x-ams-forwarded-by", "x-forwarded-for"
Headers = Sequence[tuple[str, Any]]  # names in lower case; a value is text, or bytes of gRPC's binary metadata


@dataclass(frozen=True, slots=True)
class OwnerRequests:
    """Decides whether an owner may be asked, and makes the headers."""

    node: str  # the name of this one
    doubt: Callable[[SubscriptionId], None]  # called when a node does not seem to own a subscription
    passed_on: Sequence[str]  # names of headers

    def headers(self, owner: OwnedElsewhere, address: str, given: Headers, client: str) -> list[tuple[str, Any]]:
        """Return what the owner at `address` gets of the headers `given`, with the client's address and the mark.

        Raises `owner` for a request that was forwarded already, or without an address.
        """
        if any(name == MARK for name, _ in given):
            self.doubt(SubscriptionId(owner.subscription))
            raise owner
        if not address:
            raise owner
        hops = ", ".join([*(value for name, value in given if name == FORWARDED_FOR), *([client] if client else ())])
        said = [field for field in given if field[0] in self.passed_on]
        return [*said, *([(FORWARDED_FOR, hops)] if hops else ()), (MARK, self.node)]
