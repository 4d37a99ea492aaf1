from tests.faults.attempts import Ack, Ending, Held, Outcome, Publish, Pull, Seek
from tests.faults.cluster.again import with_first_tries
from tests.faults.history import History
from tests.faults.parallel.attempts import NACK, Settle

ID = "projects/P/subscriptions/s:3-1.0.1.7.9f3c21"


def test_a_seek_that_was_sent_again_may_move_a_second_time_after_an_acknowledgement() -> None:
    a, b = Held(0, "a"), Held(1, "b")
    done = Outcome.DONE
    history = History(
        {"s": "t"},
        [
            Publish(request="p", started=0, ended=1, outcome=done, topic="t", names=("a", "b"), ids=(0, 1)),
            Seek(request="k", started=2, ended=9, outcome=done, subscription="s", offset=1),
            Pull(request="c1", started=3, ended=4, outcome=done, subscription="s", messages=(b,)),
            Ack(request="c2", started=5, ended=6, outcome=done, subscription="s", last=1),
            Pull(request="c3", started=7, ended=8, outcome=done, subscription="s", messages=(b,)),
            Pull(request="c4", started=10, ended=11, outcome=done, subscription="s", messages=(b,)),
        ],
    )
    ending = Ending({"t": [a, b]}, {"s": 1})
    twice = History(history.subscriptions, list(with_first_tries(history.attempts, {"k"})))

    assert any("pull c3 began" in each for each in history.violations(ending))
    assert twice.violations(ending) == []


def test_what_is_late_the_second_time_may_have_been_done_the_first_time() -> None:
    late = Settle(
        request="n", started=0, ended=1, outcome=Outcome.DONE, subscription="s", verb=NACK, ids=(ID,), late=(ID,)
    )

    [again] = with_first_tries([late], {"n"})

    assert isinstance(again, Settle)
    assert again.may_have_happened(ID)
    assert not again.is_confirmed(ID)
    assert list(with_first_tries([late], {"other"})) == [late]
