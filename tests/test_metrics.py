import pytest

from ams.clock import Milliseconds
from ams.metrics import NEVER, Point, rate
from ams.registry.tallies import Rate

NOW = Milliseconds(1_700_000_000_000)
SHOWN = "2023-11-14T22:13:20Z"


@pytest.mark.parametrize(
    ("made_of", "shown"),
    [
        (Rate(), Point(NEVER, 0.0)),
        (Rate(5, NOW), Point(SHOWN, 5.0)),
        (Rate(5, NOW, Milliseconds(NOW - 2_000)), Point(SHOWN, 2.5)),
        (Rate(5, NOW, NOW), Point(SHOWN, 5_000.0)),
        (Rate(5, NOW, Milliseconds(NOW + 60_000)), Point(SHOWN, 5_000.0)),
        (Rate(0, NOW, Milliseconds(NOW - 500)), Point(SHOWN, 0.0)),
    ],
    ids=["never", "the first", "two seconds", "at once", "the clock was set back", "nothing"],
)
def test_o5_a_rate_is_messages_by_the_seconds_between(made_of: Rate, shown: Point) -> None:
    assert rate(made_of) == shown
