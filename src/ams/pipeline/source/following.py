"""The cursor of a subscription that a streaming query reads: it follows the checkpoint and is never ahead of it.

Spark keeps the place of a query in its checkpoint, and that alone says what is read next. The cursor is moved behind it
so that offsets, lag and doctor tell how far the query is. It only goes forward: where somebody else acknowledged more,
it stays, and where somebody moved it back, it comes forward again with the next batch.
"""

from ams.pipeline.options import Name
from ams.pipeline.service import Service


class Cursor:
    """The cursor of one subscription."""

    def __init__(self, service: Service, subscription: Name) -> None:
        self._service = service
        self._subscription = subscription
        self._seen: int | None = None

    def follow(self, offset: int) -> None:
        """Move the cursor to an offset before which everything is in the checkpoint."""
        if offset == self._seen:
            return
        found = self._service.offsets(self._subscription)
        if found.current < offset <= found.max:
            self._service.move(self._subscription, offset)
        self._seen = offset
