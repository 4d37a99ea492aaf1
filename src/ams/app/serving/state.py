"""What the operations port looks at: whether clients may come, and the figures of the service."""

from collections.abc import Iterator
from dataclasses import dataclass

from ams.app.wiring import Service
from ams.core.observing import Figure, background_failures, figure
from ams.core.supervisor import Supervisor
from ams.push import figures as push_figures
from ams.storage.data_check import DataCheck

_LOST = "Messages that retention took before subscriptions had acknowledged them, ever."


@dataclass(slots=True)
class State:
    """A service from the first moment to the last; `service` is None until its engines are open."""

    supervisor: Supervisor
    service: Service | None = None
    data: DataCheck | None = None
    waiting_for: str = ""
    """What a start waits for."""
    draining: bool = False

    def tell(self, waiting_for: str) -> None:
        """Note what the start waits for; empty for nothing."""
        self.waiting_for = waiting_for

    def why_not_ready(self) -> str | None:
        """Return why clients should be sent elsewhere; None while they are welcome."""
        if self.supervisor.failure:
            return self.supervisor.failure
        if self.draining:
            return "stopping"
        if self.service is None:
            return f"starting: {self.waiting_for}" if self.waiting_for else "starting"
        trouble = self.data.trouble if self.data else None
        return self.service.away or trouble or _refusal(self.service)

    def gauges(self) -> Iterator[Figure]:
        """Yield what goes up and down."""
        if self.service is None:
            return
        made = self.service
        yield figure("ams_waiting_pulls", "Pulls that wait for a message now.", made.deliverer.waiting)
        if made.embedded:
            yield figure("ams_log_bytes", "Bytes of the log on disk.", made.embedded.usage())
        if made.push.runner:
            yield from push_figures.gauges(made.push.runner.workers.states(), by_path=made.settings.metrics_labels)
        refused = "1 while publishing is refused (disk full, failed sync; on Kafka too few brokers)."
        yield figure("ams_publishing_refused", refused, bool(made.log.refusal))

    def counters(self) -> Iterator[Figure]:
        """Yield what only grows while the service runs."""
        if self.service is None:
            return
        made, counted = self.service, self.service.counting.figures
        yield figure("ams_published_messages", "Messages published.", counted.messages)
        yield figure("ams_published_bytes", "Bytes of data published.", counted.bytes)
        yield figure("ams_delivered_messages", "Messages handed out by pulls, with repeats.", counted.delivered)
        yield figure("ams_acknowledgements", "Acknowledgements taken.", made.counts.acknowledgements)
        yield figure("ams_lost_messages", _LOST, made.losses.messages)
        classes = [({"status": f"{digit}xx"}, made.api.answered[digit]) for digit in (2, 3, 4, 5)]
        yield Figure("ams_requests", "Requests answered, by class of status.", classes)
        failed = "Logins that failed: requests with a token that is nobody's."
        yield figure("ams_failed_logins", failed, made.failed_logins.failures)
        unwritten = "Events of the audit log whose line could not be written; the table may have them."
        yield figure("ams_audit_failures", unwritten, made.trail.failures)
        yield background_failures(self.supervisor.survived)
        if made.push.runner:
            yield from push_figures.counters(made.push.runner.tally)
        if made.settings.metrics_labels:
            topics = [({"project": each[0], "topic": each[1]}, n) for each, n in counted.by_topic.items()]
            yield Figure("ams_topic_published_messages", "Messages published, by topic.", topics)


def _refusal(made: Service) -> str | None:
    """Return why publishing is refused here; on Kafka it is by all nodes alike, so another would serve no better."""
    refusal = made.embedded.refusal if made.embedded else None
    return f"publishing is refused: {refusal}" if refusal else None
