"""Flow: how many messages go into one delivery. Pure: it doubles while all goes well, and halves when it does not.

A message that is refused is found by this too: halving ends with bodies of one message.
"""

FIRST = 100
"""Messages of the first delivery, where the configuration allows them: enough that a request's own cost does not count,
few enough that an endpoint nobody knows yet is not given much to do at once."""
MAX_BYTES = 256 * 1024
"""Of the messages of one delivery, but for a single one that is larger: this bounds the memory of a worker."""
SLOW_SECONDS = 5.0
"""An answer that took longer, or longer than a third of its time, asks for less."""


def first(most: int) -> int:
    """Return how many messages to begin with; `most` is what the configuration allows."""
    return max(1, min(most, FIRST))


def succeeded(batch: int, most: int, *, messages: int, seconds: float, limit: float) -> int:
    """Return how many messages the next delivery may have after one of `messages` that took `seconds` of `limit`.

    One that was not full tells nothing about more.
    """
    if seconds > min(SLOW_SECONDS, limit / 3):
        return halved(messages)
    return max(1, min(batch * 2, most)) if messages >= batch else batch


def halved(messages: int) -> int:
    """Return how many messages the next delivery may have after one of `messages` that failed, full or not."""
    return max(1, messages // 2)
