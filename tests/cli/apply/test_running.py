import pytest

from ams.cli.apply.plan import Change, Step
from ams.cli.apply.resources import Key, Kind
from ams.cli.apply.running import Tokens, carry_out
from ams.client.errors import Unavailable
from ams.client.wire import Call

STEPS = [
    Step(Change.ADD, Key(Kind.TOPIC, "p", "t"), {"retention": 60}),
    Step(Change.ADD, Key(Kind.TOPIC, "p", "u"), {}),
]


class Failing:
    """Answers so many calls, and no more."""

    def __init__(self, answers: int) -> None:
        self._left = answers

    def __call__(self, call: Call[object]) -> None:
        if self._left == 0:
            raise Unavailable("no more")
        self._left -= 1


@pytest.mark.parametrize(
    ("answers", "said"),
    [
        (0, ["not done: + topic p/t", "not done: + topic p/u"]),
        (1, ["half done: + topic p/t", "not done: + topic p/u"]),
        (2, ["done: + topic p/t", "not done: + topic p/u"]),
    ],
)
def test_a_step_of_which_a_call_succeeded_is_half_done(
    answers: int, said: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unavailable):
        carry_out(STEPS, Failing(answers), Tokens(None), list)

    assert capsys.readouterr().err.splitlines() == said
