"""The figures of push, as Prometheus reads them."""

from prometheus_client import generate_latest

from ams.core.observing import metrics_of
from ams.push import report
from ams.push.report import RETRYING, SEND, Tally
from ams.wire.push import Attempt, Failure, WorkerState

S, R = "/projects/P/subscriptions/S", "/projects/P/subscriptions/R"
STATES = {
    S: WorkerState(last_success=1_700_000_000_500),
    R: WorkerState(phase=RETRYING, last_failure=Failure(1_700_000_001_000, SEND, "no")),
}


class Source:
    """Figures of a tally and states."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def gauges(self):
        return report.gauges(STATES, by_path=self.tally.by_path)

    def counters(self):
        return report.counters(self.tally)


def shown(tally: Tally) -> str:
    tally.attempted(S, Attempt(0, 3, 200, 250, 100))
    tally.attempted(R, Attempt(0, 1, 500, 750, 100, "HTTP 500"))
    tally.delivered(S, 3)
    tally.dead_lettered(R)
    tally.late(R)
    return generate_latest(metrics_of(Source(tally))).decode()


def test_all_subscriptions_together_are_told_by_default() -> None:
    text = shown(Tally())

    for line in (
        'ams_push_subscriptions{state="active"} 1.0',
        'ams_push_subscriptions{state="retrying"} 1.0',
        'ams_push_subscriptions{state="stopped"} 0.0',
        "ams_push_delivered_messages_total 3.0",
        "ams_push_dead_letters_total 1.0",
        "ams_push_late_acknowledgements_total 1.0",
        "ams_push_seconds_total 1.0",
        'ams_push_requests_total{outcome="succeeded"} 1.0',
        'ams_push_requests_total{outcome="failed"} 1.0',
    ):
        assert line in text.splitlines()
    assert "subscription=" not in text


def test_each_subscription_is_told_apart_where_names_may_be_shown() -> None:
    lines = shown(Tally(by_path=True)).splitlines()

    assert 'ams_push_delivered_messages_total{project="P",subscription="S"} 3.0' in lines
    assert 'ams_push_dead_letters_total{project="P",subscription="R"} 1.0' in lines
    assert 'ams_push_requests_total{outcome="failed",project="P",subscription="R"} 1.0' in lines
    assert 'ams_push_last_success_seconds{project="P",subscription="S"} 1.7000000005e+09' in lines
    assert 'ams_push_last_failure_seconds{project="P",subscription="R"} 1.700000001e+09' in lines
