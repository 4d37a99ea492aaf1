"""What the hot paths note of their work: as little as can be, to be worked up later (`ams.service.counting`).

Messages of topics are not counted here: the log knows how many there are. A publish leaves only its topic and what its
rate is made of; a pull leaves numbers, as nobody else knows what was handed out.
"""

from collections.abc import Set
from dataclasses import dataclass, field

from ams.core.clock import Clock, Milliseconds, SystemClock
from ams.core.names import ProjectId, SubscriptionId, TopicId
from ams.storage.log.base import Appended
from ams.storage.registry.records import Topic

PublishNote = tuple[ProjectId, Appended | None, Appended | None]
"""The project of a topic that may have grown, and its last two publishes; a plain tuple, as it is made by each."""


@dataclass(slots=True)
class Pulls:
    """What was pulled from a subscription since this was last stored."""

    messages: int = 0
    bytes: int = 0
    last_messages: int = 0
    """Of the last pull."""
    last: Milliseconds | None = None
    before: Milliseconds | None = None
    """When the pull before the last one was; None: not since this was last stored."""

    def follow(self, earlier: "Pulls") -> None:
        """Take in what was noted before this."""
        self.messages += earlier.messages
        self.bytes += earlier.bytes
        if self.before is None:
            self.before = earlier.last if self.last is not None else earlier.before
        if self.last is None:
            self.last, self.last_messages = earlier.last, earlier.last_messages


@dataclass(slots=True)
class Counts:
    """Notes since the last round of counting, and figures since the start."""

    clock: Clock = field(default_factory=SystemClock)
    published: dict[TopicId, PublishNote] = field(default_factory=dict)
    pulled: dict[SubscriptionId, Pulls] = field(default_factory=dict)
    acknowledgements: int = 0
    """Since the start."""
    acknowledged: dict[SubscriptionId, Milliseconds] = field(default_factory=dict)
    """When each subscription's last acknowledgement since the start was."""

    def note_publish(self, topic: Topic, appended: Appended) -> None:
        """Note a publish that was stored; one that was answered again, as its key was known, changes nothing."""
        known = self.published.get(topic.id)
        last = known[1] if known else None
        if last is None or appended.first > last.first:
            self.published[topic.id] = (topic.project_id, appended, last)

    def note_attempt(self, topic: Topic) -> None:
        """Note a publish that failed or was given up: its messages may be in the log all the same."""
        self.published.setdefault(topic.id, (topic.project_id, None, None))

    def note_pull(self, subscription: SubscriptionId, messages: int = 0, data_bytes: int = 0) -> None:
        """Note how much was handed out; nothing is a pull too."""
        pulls = self.pulled.get(subscription)
        if pulls is None:
            pulls = self.pulled[subscription] = Pulls()
        pulls.before, pulls.last = pulls.last, self.clock.wall()
        pulls.last_messages = messages
        pulls.messages += messages
        pulls.bytes += data_bytes

    def note_acknowledgement(self, subscription: SubscriptionId) -> None:
        """Note an acknowledgement that was stored."""
        self.acknowledgements += 1
        self.acknowledged[subscription] = self.clock.wall()

    def take_published(self) -> dict[TopicId, PublishNote]:
        """Return the notes about topics and begin anew."""
        taken, self.published = self.published, {}
        return taken

    def take_pulled(self) -> dict[SubscriptionId, Pulls]:
        """Return what subscriptions handed out and begin anew; mere looks, which gave nothing, wait for more."""
        taken = {subscription: pulls for subscription, pulls in self.pulled.items() if pulls.messages}
        for subscription in taken:
            del self.pulled[subscription]
        return taken

    def forget_gone(self, existing: Set[SubscriptionId]) -> None:
        """Forget subscriptions that are gone, but for what they handed out and nobody stored yet."""
        self.pulled = {each: pulls for each, pulls in self.pulled.items() if pulls.messages or each in existing}
        self.acknowledged = {each: when for each, when in self.acknowledged.items() if each in existing}

    @property
    def kept(self) -> int:
        """How many notes are kept."""
        return len(self.pulled) + len(self.acknowledged)

    def give_back(self, published: dict[TopicId, PublishNote], pulled: dict[SubscriptionId, Pulls]) -> None:
        """Take notes again that could not be stored."""
        self.published = published | self.published
        for subscription, earlier in pulled.items():
            self.pulled.setdefault(subscription, Pulls()).follow(earlier)
