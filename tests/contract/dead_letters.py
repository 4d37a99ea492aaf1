"""Dead letters that a worker elsewhere puts aside: what no contract has."""

from typing import Any

from tests.contract.leases import NOTHING, acked, attempts, late, nacked
from tests.contract.parallel import parallel
from tests.contract.push_words import *
from tests.contract.rows import *

DEAD = "/projects/$P/topics/D"
LETTERS = get(DEAD + ":offsets")
THE_LETTERS = SUBSCRIPTIONS + "/R"
BAD_LETTER = error("IA", "Invalid Dead Letter Arguments")
BAD_ID = error("IA", "Invalid ack id")
NOT_NEXT = error("CO", "Message is not the next one of the subscription")
PUSHED = (
    A_TOPIC, put(DEAD), create(endpoint(deadLetterTopic="D")),
    put(THE_LETTERS, {"topic": "projects/$P/topics/D"}), publish("MA==", "MQ=="),
)  # fmt: skip


def dead_letter(number: object = 0, by: str = "worker", **fields: Any) -> Ask:
    letter = {"reason": "Bad Request", "attempts": 5, "status": 400}
    ack_id = f"projects/$P/subscriptions/S:{number}"
    return post(SUBSCRIPTION + ":deadLetter", {"ackId": ack_id, **letter, **fields}, by)


def count(letters: int) -> tuple[Ask, Answer]:
    return LETTERS, Answer({"min": 0, "max": letters})


def stands(at: int) -> tuple[Ask, Answer]:
    return get(SUBSCRIPTION + ":offsets"), Answer({"min": 0, "current": at, "max": 2})


UNCHANGED = (count(0), stands(0))

LETTER = {
    "deadLetterSubscription": "projects/$P/subscriptions/S", "deadLetterSourceTopic": "projects/$P/topics/T",
    "deadLetterMessageId": "0", "deadLetterReason": "Bad Request", "deadLetterAttempts": "5",
    "deadLetterStatus": "400",
}  # fmt: skip
PULLED = post(THE_LETTERS + ":pull", {"maxMessages": "9", "returnImmediately": "true"})
PARALLEL = (
    A_TOPIC, put(DEAD), put(THE_LETTERS, {"topic": "projects/$P/topics/D"}),
    parallel(deadLetterPolicy={"deadLetterTopic": "D"}), publish("MA=="),
)  # fmt: skip
EXTEND = SUBSCRIPTION + ":extendLeases"
MINE = "projects/$P/subscriptions/S:"


def refuse(by: str = "worker", **fields: Any) -> Ask:
    """Say that the message that was pulled last was refused."""
    return dead_letter(**{"ackId": "$ack_0", "by": by, **fields})


def extended(*ids: str, seconds: int = 600, by: str = "worker") -> Ask:
    return post(EXTEND, {"ackIds": list(ids), "ackDeadlineSeconds": seconds}, by)


OF_PARALLEL = [
    row("ours dead letters", "of a parallel one a message has failed, and waits", refuse(wait=5000), EMPTY,
        (*PARALLEL, pull(1)), ((pull(), NOTHING), (Wait(5.1), None), (pull(), attempts(2)))),
    row("ours dead letters", "without a wait it comes again at once", refuse(), EMPTY, (*PARALLEL, pull(1)),
        ((pull(), attempts(2)),)),
    row("ours dead letters", "what failed too often goes there with the last words", PULLED,
        Answer({"receivedMessages": [Has(message=Has(data="MA==", attributes=Has(**LETTER)))]}), (*PARALLEL,
        *[each for _ in range(5) for each in (pull(1), refuse())], *[post(THE_LETTERS + ":pull",
        {"maxMessages": 9})] * 20), ((pull(), NOTHING),)),
    row("ours dead letters", "an id of a parallel one that came late", refuse(), late(0),
        (*PARALLEL, pull(1), nacked("$ack_0"))),
    *[row("ours dead letters", f"no such id of a parallel one: {each!r}", refuse(ackId=each), BAD_ID,
          (*PARALLEL, pull(1)))
      for each in (None, "", MINE + "0", MINE + "1-$hand_out_0")],
    *[row("ours dead letters", f"no such wait: {each!r}", refuse(wait=each), BAD_LETTER, (*PARALLEL, pull(1)))
      for each in (-1, 600_001, "1")],
    row("ours leases", "a worker lets a lease go on", extended("$ack_0"), EMPTY, (*PARALLEL, pull(1)),
        ((Wait(590), None), (pull(), NOTHING), (acked("$ack_0"), Answer({})))),
    row("ours leases", "late", extended("$ack_0"), late(0), (*PARALLEL, pull(1), Wait(10.3))),
    row("ours leases", "no ids", extended(), BAD_ID, (*PARALLEL, pull(1))),
    row("ours leases", "601 seconds", extended("$ack_0", seconds=601),
        error("IA", "Seconds should be between 0 and 600"), (*PARALLEL, pull(1))),
    row("ours leases", "no such body", post(EXTEND, b"[", "worker"),
        error("IA", "Invalid ackDeadlineSeconds(needs value between 0 and 600) Arguments"), PARALLEL),
    row("ours leases", "of an ordered one", extended(MINE + "0-1.0.1.1.000000"),
        error("CO", "Subscription is not of type parallel"), (*BOTH, publish("MA=="))),
    row("ours leases", "of an unknown one", extended(MINE + "0-1.0.1.1.000000"), NO_SUBSCRIPTION, (A_TOPIC,)),
    row("ours leases", "not for consumers", extended("$ack_0", by="con"), FORBIDDEN, (*PARALLEL, CONSUMER, pull(1))),
]  # fmt: skip

ROWS = [
    *OF_PARALLEL,
    row("ours dead letters", "the next message goes there, is acknowledged, and tells why", dead_letter(), EMPTY,
        PUSHED, (stands(1), (PULLED, Answer({"receivedMessages": [Has(message=Has(data="MA==",
        attributes=Has(**LETTER)))]})))),
    row("ours dead letters", "once, however often it is asked", dead_letter(reason="other", status=0), EMPTY,
        (*PUSHED, dead_letter()), (stands(1), count(1))),
    row("ours dead letters", "then the one after it", dead_letter(1), EMPTY, (*PUSHED, dead_letter()),
        (stands(2), count(2))),
    row("ours dead letters", "what is acknowledged already is left alone", dead_letter(), EMPTY,
        (*PUSHED, pull(by="worker"), ack(1, by="worker")), (count(0),)),
    row("ours dead letters", "of an attempt nothing need be said but which message", post(SUBSCRIPTION + ":deadLetter",
        {"ackId": "projects/$P/subscriptions/S:0"}, "worker"), EMPTY, PUSHED, (stands(1), count(1))),
    *[row("ours dead letters", f"no such body: {body!r}", post(SUBSCRIPTION + ":deadLetter", body, "worker"),
        BAD_LETTER, PUSHED, UNCHANGED) for body in (b"", b"{", [], {"ackId": 1})],
    *[row("ours dead letters", f"no such verdict: {each!r}", dead_letter(**each), BAD_LETTER, PUSHED, UNCHANGED)
      for each in ({"attempts": -1}, {"attempts": "5"}, {"attempts": 2**31}, {"status": 1000}, {"status": -1},
          {"reason": 7})],
    *[row("ours dead letters", f"no such id: {each!r}", dead_letter(ackId=each), BAD_ID, PUSHED, UNCHANGED)
      for each in ("", "0", "projects/$P/subscriptions/R:0", "projects/$P/subscriptions/S:-1",
          "projects/$P/subscriptions/S:x", "projects/$P/subscriptions/S:99999999999999999999")],
    row("ours dead letters", "an absent id", dead_letter(ackId=None), BAD_ID, PUSHED, UNCHANGED),
    row("ours dead letters", "of an unknown subscription", dead_letter(), NO_SUBSCRIPTION, (A_TOPIC,)),
    row("ours dead letters", "not the next one", dead_letter(1), NOT_NEXT, PUSHED, UNCHANGED),
    row("ours dead letters", "not there", dead_letter(2), NOT_NEXT, PUSHED, UNCHANGED),
    *[row("ours dead letters", f"no place for it: {what}", dead_letter(),
        error("CO", "Subscription has no dead letter topic"), given, (stands(0),))
      for what, given in (("a pull subscription", (*BOTH, publish("MA==", "MQ=="))),
          ("an endpoint", (A_TOPIC, create(AN_ENDPOINT), publish("MA==", "MQ=="))))],
    row("ours dead letters", "a place that is gone: the message stays", dead_letter(),
        error("CO", "Dead letter topic doesn't exist"), (*PUSHED, delete(DEAD)), (stands(0),)),
    row("ours dead letters", "a topic that is gone", dead_letter(), error("CO", "Subscription's topic doesn't exist"),
        (*PUSHED, delete(TOPIC)), (count(0),)),
    row("ours dead letters", "not for administrators", dead_letter(by="adm"), FORBIDDEN, (*PUSHED, ADMIN), UNCHANGED),
    row("ours dead letters", "nor for consumers", dead_letter(by="con"), FORBIDDEN, (*PUSHED, CONSUMER), UNCHANGED),
]  # fmt: skip
