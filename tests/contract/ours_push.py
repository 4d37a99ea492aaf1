"""This service's additions to the contract for push: delivery state, leases, secrets of signatures, dead letters."""

import hashlib
from typing import Any

from tests.contract.ours import limit, quota_error
from tests.contract.parallel import NOTHING, ack_ids, attempts, make_parallel, nack_ids, timeout
from tests.contract.push_words import *
from tests.contract.rows import *

STATUS = SUBSCRIPTION + ":pushStatus"
NO_PUSH = error("CO", "Subscription is not in push mode")
UNVERIFIED = (A_TOPIC, create(AN_ENDPOINT))
LISTED = modify_acl(SUBSCRIPTION, "con")

LOOKING = [
    row("ours push status", "an endpoint that has not shown its hash", get(STATUS),
        Answer({"pushStatus": "", "state": "unverified", "backlog": 0, "attempts": []}), UNVERIFIED),
    row("ours push status", "the backlog is counted when it is asked for", get(STATUS),
        Answer(Has(backlog=3)), (*UNVERIFIED, publish("MA==", "MQ==", "Mg=="))),
    row("ours push status", "without its topic there is no backlog", get(STATUS), Answer(Has(backlog=None)),
        (*UNVERIFIED, delete("/projects/$P/topics/T"))),
    row("ours push status", "a subscription that is pulled from", get(STATUS), NO_PUSH, BOTH),
    row("ours push status", "an unknown subscription", get(STATUS), NO_SUBSCRIPTION),
    row("ours push status", "a consumer that is not may not", get(STATUS, "con"), FORBIDDEN, (*UNVERIFIED, CON)),
]  # fmt: skip

WORKER = user("pw", "push_worker")
OF_NOTHING = hashlib.blake2b(b"[]", digest_size=16).hexdigest()


def heartbeat(by: str = "pw", **body: object) -> Request:
    """A heartbeat of a process that wants no subscription, so that it takes no lease from other rows."""
    return post("/push:lease", {"holder": "row", "leaving": True, **body}, by)


BAD_BODY = error("IA", "Invalid Push Lease Arguments")
BAD_STATES = error("IA", "Invalid push lease states")
FAILED = {"time": 1, "what": "send", "detail": "no", "status": 500}
ATTEMPT = {"time": 1, "messages": 1, "status": 500, "milliseconds": 1, "bytes": 1}

BEATING = [
    row("ours push lease", "who leaves gets nothing", heartbeat(),
        Answer({"leaseSeconds": 6.0, "beatSeconds": 2.0, "version": Like("[0-9a-f]{32}"), "targets": []}), (WORKER,)),
    row("ours push lease", "what it knows already is not repeated", heartbeat(version=OF_NOTHING),
        Answer(Has(version=OF_NOTHING, targets=None)), (WORKER,)),
    row("ours push lease", "states and subscriptions that nobody knows are passed over",
        heartbeat(held=["x"], states={"x": {"phase": "retrying", "failure": FAILED, "attempts": [ATTEMPT] * 100}}),
        Answer(Has(targets=[])), (WORKER,)),
    row("ours push lease", "push is disabled", heartbeat(), DISABLED, (WORKER,), served="usual"),
    *[row("ours push lease", f"no such body: {each!r}", post("/push:lease", each, "pw"), BAD_BODY, (WORKER,))
      for each in ([], {"holder": 1}, {"holder": "h", "held": [1]}, {"holder": "h", "states": {"x": 1}})],
    *[row("ours push lease", f"no name of a holder: {each!r}", heartbeat(holder=each),
          error("IA", "Invalid push lease holder"), (WORKER,)) for each in (None, "", "a b", "h" * 65)],
    *[row("ours push lease", says, heartbeat(held=each),
          error("IA", "A push lease holder may hold 10000 subscriptions"), (WORKER,))
      for says, each in (("too much is held", ["x"] * 10_001), ("what is held is no id", ["x" * 37]),
                         ("what is held is no text", ["x\0"]))],
    *[row("ours push lease", f"states that cannot be: {number}", heartbeat(states=each), BAD_STATES, (WORKER,))
      for number, each in enumerate((
          {str(name): {} for name in range(101)}, {"x": {"attempts": [ATTEMPT] * 101}},
          {"x": {"failure": {**FAILED, "detail": "d" * 65_536}}}, {"x": {"failure": {**FAILED, "time": -1}}},
          {"x": {"attempts": [{**ATTEMPT, "time": 10**18}]}}, {"x": {"nextAttempt": 253_402_300_800_000}}
      ))],
]  # fmt: skip


def wait(by: str = "pw", **body: object) -> Request:
    return post("/push:wait", {"subscriptions": [], **body}, by)


WAITING = [
    row("ours push wait", "what nobody knows is ready at once", wait(subscriptions=["x"], seconds=30),
        Answer({"ready": ["x"]}), (WORKER,)),
    row("ours push wait", "push is disabled", wait(), DISABLED, (WORKER,), served="usual"),
    *[row("ours push wait", f"no such body: {each!r}", post("/push:wait", each, "pw"),
          error("IA", "Invalid Push Wait Arguments"), (WORKER,))
      for each in ([], {"subscriptions": [1]}, {"seconds": "1"})],
    *[row("ours push wait", says, wait(subscriptions=each), error("IA", "A push wait is for 1000 subscriptions"),
          (WORKER,)) for says, each in (
          ("too many", ["x"] * 1001), ("what is no identity", ["x" * 37]), ("what no database takes", ["x\0"]))],
    *[row("ours push wait", f"no time to wait: {each}", wait(seconds=each),
          error("IA", "A push wait is of 0 to 30 seconds"), (WORKER,)) for each in (-1, 31)],
]  # fmt: skip

# Secrets of signatures

ROTATE = SUBSCRIPTION + ":rotatePushSecret"
SECRET = Like(r"whsec_[A-Za-z0-9+/]{43}=")
FIRST = Answer({"secret": SECRET})
NEXT = Answer({"secret": SECRET, "previousValidUntil": DATE})
BAD_KEEP = error("IA", "Field keepSeconds should be between 0 and 2592000")
BAD_ROTATION = error("IA", "Invalid Push Secret Arguments")
WITH_ENDPOINT = (A_TOPIC, create(AN_ENDPOINT))
WITH_ONE = (*WITH_ENDPOINT, post(ROTATE))


def rotate_secret(seconds: object, by: str = "admin") -> Request:
    return post(ROTATE, {"keepSeconds": seconds}, by)


SECRETS = [
    row("ours secret", "the first one is alone", post(ROTATE), FIRST, WITH_ENDPOINT),
    row("ours secret", "the one before ends later", post(ROTATE), NEXT, WITH_ONE),
    row("ours secret", "or as asked", rotate_secret(30 * 86_400), NEXT, WITH_ONE),
    row("ours secret", "or at once", rotate_secret(0), FIRST, WITH_ONE),
    *[row("ours secret", f"no time to keep one: {each}", rotate_secret(each), BAD_KEEP, WITH_ENDPOINT)
      for each in (-1, 2_592_001, 2**62)],
    *[row("ours secret", f"no such body: {each!r}", post(ROTATE, each), BAD_ROTATION, WITH_ENDPOINT)
      for each in ({"keepSeconds": "1"}, {"keepSeconds": 1.5}, [], b"{", {"keepSeconds": 10**30})],
    row("ours secret", "an unknown subscription", post(ROTATE), NO_SUBSCRIPTION),
    row("ours secret", "a pull subscription", post(ROTATE), error("CO", "Subscription is not in http push mode"), BOTH),
    row("ours secret", "a pull subscription has lost them", modify(AN_ENDPOINT), Answer(b""), (*WITH_ONE, modify({})),
        ((post(ROTATE), FIRST),)),
    row("ours secret", "a subscription does not show it", SHOW, Answer(Has(secret=None, pushConfig=Has(secret=None))),
        WITH_ONE, show_step(Answer(Has(secret=None)))),
]  # fmt: skip

# Dead letters from a worker in another process

DEAD = "/projects/$P/topics/D"
THE_LETTERS = SUBSCRIPTIONS + "/R"
BAD_LETTER = error("IA", "Invalid Dead Letter Arguments")
BAD_ID = error("IA", "Invalid ack id")
NOT_NEXT = error("CO", "Message is not the next one of the subscription")
PUSHED = (
    A_TOPIC, put(DEAD), create(endpoint(deadLetterTopic="D")),
    put(THE_LETTERS, {"topic": "projects/$P/topics/D"}), publish("MA==", "MQ=="),
)  # fmt: skip


def dead_letter(number: object = 0, by: str = "worker", **fields: Any) -> Request:
    letter = {"reason": "Bad Request", "attempts": 5, "status": 400}
    ack_id = f"projects/$P/subscriptions/S:{number}"
    return post(SUBSCRIPTION + ":deadLetter", {"ackId": ack_id, **letter, **fields}, by)


def letter_count(letters: int) -> tuple[Request, Answer]:
    return get(DEAD + ":offsets"), Answer({"min": 0, "max": letters})


def position(at: int) -> tuple[Request, Answer]:
    return get(SUBSCRIPTION + ":offsets"), Answer({"min": 0, "current": at, "max": 2})


UNCHANGED = (letter_count(0), position(0))

LETTER = {
    "deadLetterSubscription": "projects/$P/subscriptions/S", "deadLetterSourceTopic": "projects/$P/topics/T",
    "deadLetterMessageId": "0", "deadLetterReason": "Bad Request", "deadLetterAttempts": "5",
    "deadLetterStatus": "400",
}  # fmt: skip
PULLED = post(THE_LETTERS + ":pull", {"maxMessages": "9", "returnImmediately": "true"})
PARALLEL = (
    A_TOPIC, put(DEAD), put(THE_LETTERS, {"topic": "projects/$P/topics/D"}),
    make_parallel(deadLetterPolicy={"deadLetterTopic": "D"}), publish("MA=="),
)  # fmt: skip
EXTEND = SUBSCRIPTION + ":extendLeases"
MINE = "projects/$P/subscriptions/S:"


def refuse_letter(by: str = "worker", **fields: Any) -> Request:
    return dead_letter(**{"ackId": "$ack_0", "by": by, **fields})


def extend_leases(*ids: str, seconds: int = 600, by: str = "worker") -> Request:
    return post(EXTEND, {"ackIds": list(ids), "ackDeadlineSeconds": seconds}, by)


OF_PARALLEL = [
    row("ours dead letters", "of a parallel one a message has failed, and waits", refuse_letter(wait=5000), EMPTY,
        (*PARALLEL, pull(1)), ((pull(), NOTHING), (Wait(5.1), None), (pull(), attempts(2)))),
    row("ours dead letters", "what failed too often goes there with the last words", PULLED,
        Answer({"receivedMessages": [Has(message=Has(data="MA==", attributes=Has(**LETTER)))]}), (*PARALLEL,
        *[each for _ in range(5) for each in (pull(1), refuse_letter())], *[post(THE_LETTERS + ":pull",
        {"maxMessages": 9})] * 20), ((pull(), NOTHING),)),
    row("ours dead letters", "an id of a parallel one that came late", refuse_letter(), timeout(0),
        (*PARALLEL, pull(1), nack_ids("$ack_0"))),
    *[row("ours dead letters", f"no such id of a parallel one: {each!r}", refuse_letter(ackId=each), BAD_ID,
          (*PARALLEL, pull(1)))
      for each in (None, "", MINE + "0", MINE + "1-$hand_out_0")],
    *[row("ours dead letters", f"no such wait: {each!r}", refuse_letter(wait=each), BAD_LETTER, (*PARALLEL, pull(1)))
      for each in (-1, 600_001, "1")],
    row("ours leases", "a worker lets a lease go on", extend_leases("$ack_0"), EMPTY, (*PARALLEL, pull(1)),
        ((Wait(590), None), (pull(), NOTHING), (ack_ids("$ack_0"), Answer({})))),
    row("ours leases", "late", extend_leases("$ack_0"), timeout(0), (*PARALLEL, pull(1), Wait(10.3))),
    row("ours leases", "no ids", extend_leases(), BAD_ID, (*PARALLEL, pull(1))),
    row("ours leases", "601 seconds", extend_leases("$ack_0", seconds=601),
        error("IA", "Seconds should be between 0 and 600"), (*PARALLEL, pull(1))),
    row("ours leases", "no such body", post(EXTEND, b"[", "worker"),
        error("IA", "Invalid ackDeadlineSeconds(needs value between 0 and 600) Arguments"), PARALLEL),
    row("ours leases", "of an ordered one", extend_leases(MINE + "0-1.0.1.1.000000"),
        error("CO", "Subscription is not of type parallel"), (*BOTH, publish("MA=="))),
    row("ours leases", "of an unknown one", extend_leases(MINE + "0-1.0.1.1.000000"), NO_SUBSCRIPTION, (A_TOPIC,)),
]  # fmt: skip

DEAD_LETTERS = [
    row("ours dead letters", "the next message goes there, is acknowledged, and tells why", dead_letter(), EMPTY,
        PUSHED, (position(1), (PULLED, Answer({"receivedMessages": [Has(message=Has(data="MA==",
        attributes=Has(**LETTER)))]})))),
    row("ours dead letters", "once, however often it is asked", dead_letter(reason="other", status=0), EMPTY,
        (*PUSHED, dead_letter()), (position(1), letter_count(1))),
    row("ours dead letters", "what is acknowledged already is left alone", dead_letter(), EMPTY,
        (*PUSHED, pull(by="worker"), ack(1, by="worker")), (letter_count(0),)),
    *[row("ours dead letters", f"no such body: {body!r}", post(SUBSCRIPTION + ":deadLetter", body, "worker"),
        BAD_LETTER, PUSHED, UNCHANGED) for body in (b"", b"{", [], {"ackId": 1})],
    *[row("ours dead letters", f"no such verdict: {each!r}", dead_letter(**each), BAD_LETTER, PUSHED, UNCHANGED)
      for each in ({"attempts": -1}, {"attempts": "5"}, {"attempts": 2**31}, {"status": 1000}, {"status": -1},
          {"reason": 7})],
    *[row("ours dead letters", f"no such id: {each!r}", dead_letter(ackId=each), BAD_ID, PUSHED, UNCHANGED)
      for each in ("", "0", "projects/$P/subscriptions/R:0", "projects/$P/subscriptions/S:-1",
          "projects/$P/subscriptions/S:x", "projects/$P/subscriptions/S:99999999999999999999")],
    row("ours dead letters", "of an unknown subscription", dead_letter(), NO_SUBSCRIPTION, (A_TOPIC,)),
    row("ours dead letters", "not the next one", dead_letter(1), NOT_NEXT, PUSHED, UNCHANGED),
    *[row("ours dead letters", f"no place for it: {what}", dead_letter(),
        error("CO", "Subscription has no dead letter topic"), given, (position(0),))
      for what, given in (("a pull subscription", (*BOTH, publish("MA==", "MQ=="))),
          ("an endpoint", (A_TOPIC, create(AN_ENDPOINT), publish("MA==", "MQ=="))))],
    row("ours dead letters", "a place that is gone: the message stays", dead_letter(),
        error("CO", "Dead letter topic doesn't exist"), (*PUSHED, delete(DEAD)), (position(0),)),
    row("ours dead letters", "the project has no room: the message stays", dead_letter(), quota_error("storedBytes",
        60), (*PUSHED, limit(storedBytes=60)), (position(0), letter_count(0), (limit(storedBytes=None), OK),
        (dead_letter(), EMPTY), position(1))),
    row("ours dead letters", "a topic that is gone", dead_letter(), error("CO", "Subscription's topic doesn't exist"),
        (*PUSHED, delete(TOPIC)), (letter_count(0),)),
]  # fmt: skip

ROWS = join_rows(LOOKING, BEATING, WAITING, SECRETS, OF_PARALLEL, DEAD_LETTERS)
