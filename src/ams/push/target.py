"""The target: a subscription that shall be delivered, as far as whoever delivers needs to know it."""

from dataclasses import dataclass, field

from ams.core.push_config import PushConfig


@dataclass(frozen=True, slots=True)
class Target:
    """What a worker delivers where. Another value is another target: its worker starts anew."""

    path: str
    """Resource name of the subscription, `/projects/P/subscriptions/S`: the key of its worker."""
    topic: str
    """Resource name of its topic."""
    config: PushConfig
    ack_deadline_seconds: int
    """Seconds, 0 to 600."""
    secrets: tuple[str, ...] = field(default=(), repr=False)
    """What deliveries are signed with, newest first, as `whsec_...` (`ams.push.signing`); empty: they are not."""
    id: str = ""
    """Identity of the subscription; empty where the service does not tell it."""
    topic_id: str = ""
    """Identity of the topic, so that a topic made anew is another target; empty while there is none, or untold."""
    revision: int = 0
    """Of the configuration: what was modified is another target, also if it is the same, as after a 410."""
