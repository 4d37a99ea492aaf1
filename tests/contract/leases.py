"""Delivery of parallel subscriptions: pull, acknowledge, nack, and how long leases last (contract 19.4)."""

from typing import Any

from tests.contract.delivery import ACK, BAD_ACK, PULL, TOPIC_GONE
from tests.contract.parallel import NOT_PARALLEL, bad, parallel
from tests.contract.resources import DEADLINE
from tests.contract.rows import *

NACK = SUBSCRIPTION + ":nack"
MINE = "projects/$P/subscriptions/S:"
THREE = publish("MA==", "MQ==", "Mg==")
MINE_LIKE = r"projects/[\w-]+/subscriptions/S:"
PLAIN = (A_TOPIC, parallel(), THREE)
PULLED = (*PLAIN, pull())
DONE, NOTHING = Answer({}), Answer({"receivedMessages": []})
OVER = Wait(10.3)
"""A little more than the deadline of 10 s."""
STRANGER = member("stranger", "consumer")
BAD_SECONDS = bad("Seconds should be between 0 and 600")
BAD_PARAMETER = bad("Invalid ack parameter")
ANY_MESSAGE = {
    "messageId": Like(r"\d+"), "data": Like(r".*"), "publishTime": Like(r".*Z")
}  # fmt: skip
"""These fields and no others."""
HAND_OUT = r"\d+-\d+\.\d+\.\d+\.\d+\.[0-9a-f]{6}"


def given(*numbers: int) -> Answer:
    """A pull's answer with exactly these messages."""
    return Answer({"receivedMessages": [Has(message=Has(messageId=str(each))) for each in numbers]})


def again(number: int, name: str) -> Answer:
    """A pull's answer with this message under the id that is called so."""
    return Answer({"receivedMessages": [Has(ackId=f"${name}", message=Has(messageId=str(number)))]})


def attempts(*numbers: int) -> Answer:
    """A pull's answer with messages that are delivered for so many times each."""
    return Answer({"receivedMessages": [Has(deliveryAttempt=each, message=ANY_MESSAGE) for each in numbers]})


def acked(*ids: str, by: str = "admin") -> Ask:
    return post(ACK, {"ackIds": list(ids)}, by)


def nacked(*ids: str, by: str = "admin", **more: Any) -> Ask:
    return post(NACK, {"ackIds": list(ids), **more}, by)


def extended(seconds: int, *ids: str, by: str = "admin") -> Ask:
    return post(DEADLINE, {"ackIds": list(ids), "ackDeadlineSeconds": seconds}, by)


def late(*numbers: int) -> Answer:
    """What acknowledging these too late is answered."""
    text = ", ".join(HAND_OUT.replace(r"\d+-", f"{each}-") for each in numbers)
    return Answer({"error": {"code": 408, "message": Like(f"ack timeout: {text}"), "status": "TIMEOUT"}}, 408)


def keyed(*keys: str) -> Ask:
    return post(TOPIC + ":publish", {"messages": [{"data": "aGk=", "orderingKey": each} for each in keys]})


def marked(*names: str) -> Ask:
    """Messages that have an attribute of this name each."""
    return post(TOPIC + ":publish", {"messages": [{"data": "aGk=", "attributes": {each: "1"}} for each in names]})


GIVING = [
    Row("19.4", "a message is given to one consumer at a time", pull(2), given(0, 1), PLAIN,
        ((pull(), given(2)), (pull(), NOTHING))),
    Row("19.4", "a lease that is over lets it be given again, under another id", pull(1), given(0),
        (*PLAIN, pull(1), OVER), ((acked("$ack_0_before"), late(0)), (acked("$ack_0"), DONE))),
    Row("19.4", "an id says which hand-out it is of", pull(1),
        Answer({"receivedMessages": [Has(ackId=Like(MINE_LIKE + HAND_OUT))]}), PLAIN),
    Row("19.4", "beside a message stands how often it is delivered with this time", pull(), attempts(1, 1, 1), PLAIN,
        ((nacked("$ack_0", "$ack_2"), EMPTY), (pull(), attempts(2, 2)), (OVER, None), (pull(), attempts(3, 3, 2)))),
    Row("19.4", "of an ordered one no attempt is told", pull(1),
        Answer({"receivedMessages": [{"ackId": Like(MINE_LIKE + "0"), "message": ANY_MESSAGE}]}), (*BOTH, THREE)),
    Row("19.4", "the lease has the length of the deadline", acked("$ack_0"), DONE,
        (A_TOPIC, parallel(ackDeadlineSeconds=60), THREE, pull(), Wait(59.9))),
    Row("19.4", "a deadline that changes holds for what is given then", acked("$ack_0"), DONE,
        (A_TOPIC, parallel(ackDeadlineSeconds=60), THREE, pull(1), post(DEADLINE, {"ackDeadlineSeconds": 10}), OVER)),
    Row("19.4", "the service's limit of messages holds", pull(1000), given(0, 1, 2),
        (*PLAIN, publish("Mw==", "NA==")), ((pull(1000), given(3, 4)),), "small"),
    Row("19.4", "a consumer that is not on the list gets nothing", pull(by="stranger"), FORBIDDEN,
        (*PLAIN, CON, STRANGER, listed(SUBSCRIPTION, "con")), ((pull(by="con"), given(0, 1, 2)),)),
    Row("19.4", "without its topic there is nothing to give", pull(), TOPIC_GONE, (*PLAIN, delete(TOPIC))),
    Row("19.4", "a topic made again begins anew, and ids of the old one count no more", pull(), given(0), (*PULLED,
        delete(TOPIC), A_TOPIC, publish("MA==")), ((acked("$ack_0"), DONE), (acked("$ack_2"), late(2)))),
    Row("19.4", "a body that cannot be read is refused", post(PULL, b"["),
        bad("Invalid Pull Parameters Arguments"), PLAIN, ((pull(), given(0, 1, 2)),)),
    Row("19.4", "what the filter does not match is passed over", pull(), given(1, 3), (A_TOPIC,
        parallel(filter="attributes:a"), marked("b", "a", "b", "a")), ((acked("$ack_1", "$ack_3"), DONE), (pull(),
        NOTHING), (get(SUBSCRIPTION + ":offsets"), Answer(Has(current=4, acknowledged=0))))),
    Row("19.4", "of a key one message is under way at a time", pull(), given(0, 2), (A_TOPIC,
        parallel(enableMessageOrdering=True), keyed("k", "k", "l", "k")), ((pull(), NOTHING), (nacked("$ack_0"), EMPTY),
        (pull(), given(0)), (acked("$ack_0"), DONE), (pull(), given(1)), (acked("$ack_1"), DONE), (pull(), given(3)))),
    Row("19.4", "without the option keys do not matter", pull(), given(0, 1), (A_TOPIC, parallel(), keyed("k", "k"))),
]  # fmt: skip

OF_LETTERS = post(SUBSCRIPTIONS + "/L:pull", {"maxMessages": 10})
"""Waits a little for what is put aside by and by."""

ACKNOWLEDGING = [
    Row("19.4", "in any order, each for itself", acked("$ack_1"), DONE, PULLED,
        ((OVER, None), (pull(), given(0, 2)), (acked("$ack_2", "$ack_0"), DONE), (OVER, None), (pull(), NOTHING))),
    Row("19.4", "the last id of a batch acknowledges that message alone", acked("$ack_2"), DONE, PULLED,
        ((OVER, None), (pull(), given(0, 1)))),
    Row("19.4", "again, and twice in one request, is 200 and changes nothing", acked("$ack_0", "$ack_0"), DONE,
        (*PULLED, acked("$ack_0")), ((OVER, None), (pull(), given(1, 2)))),
    Row("19.4", "again, also after the deadline", acked("$ack_0"), DONE, (*PULLED, acked("$ack_0"), OVER)),
    Row("19.4", "late, the ids are named, and the others are done", acked("$ack_0", "$ack_2"), late(0),
        (*PLAIN, pull(1), Wait(6), pull(), Wait(5)), ((OVER, None), (pull(), given(0, 1)))),
    Row("19.4", "late ids are named in the order of the request", acked("$ack_2", "$ack_0"), late(2, 0),
        (*PULLED, OVER)),
    Row("19.4", "an id of before a seek comes late", acked("$ack_0"), late(0),
        (*PULLED, post(SUBSCRIPTION + ":seek", {"offset": 0})), ((pull(), given(0, 1, 2)),)),
    Row("19.4", "no ids", acked(), BAD_ACK, PULLED),
    Row("19.4", "ids that are absent", post(ACK, {}), BAD_ACK, PULLED),
    Row("19.4", "ids that are null", post(ACK, {"ackIds": None}), BAD_ACK, PULLED),
    Row("19.4", "ids that are no list", post(ACK, {"ackIds": "$ack_0"}), BAD_PARAMETER, PULLED),
    Row("19.4", "a body that is none", post(ACK, b"["), BAD_PARAMETER, PULLED),
    Row("19.4", "names in any spelling", post(ACK, {"ACKIDS": ["$ack_0"], "more": 1}), DONE, PULLED),
    *(Row("19.4", f"{says}: nothing is acknowledged", acked("$ack_0", wrong), BAD_ACK, PULLED,
          ((OVER, None), (pull(), given(0, 1, 2))))
      for says, wrong in (
          ("an id of an ordered subscription", MINE + "1"), ("an id of nothing", ""), ("an offset alone", "1"),
          ("garbage behind the dash", MINE + "1-x"), ("a hand-out without a message", MINE + "-$hand_out_1"),
          ("a part too few", MINE + "1-1.0.1.1"), ("a part too many", MINE + "1-$hand_out_1.1"),
          ("an offset below zero", MINE + "-1-$hand_out_1"), ("an offset with a sign", MINE + "+1-$hand_out_1"),
          ("an offset that was never given", MINE + "3-$hand_out_1"),
          ("an offset of 19 digits", MINE + "9" * 19 + "-$hand_out_1"),
          ("digits of another script", MINE + "\u0661-$hand_out_1"),
          ("a hand-out that was never made", MINE + "1-1.0.1.999999.000000"),
          ("an epoch that has not come", MINE + "1-1.9.1.1.000000"),
          ("another subscription", "projects/$P/subscriptions/Q:1-$hand_out_1"),
          ("another project", "projects/other/subscriptions/S:1-$hand_out_1"),
          ("a very long id", MINE + "1-" + "1" * 400))),
    Row("19.4", "the id of another subscription under the own name", acked("$ack_0"), BAD_ACK,
        (*PULLED, delete(SUBSCRIPTION), parallel())),
    Row("19.4", "an id of a parallel one is none of an ordered one", acked("$ack_0"), BAD_ACK,
        (*PULLED, delete(SUBSCRIPTION), BOTH[1], pull())),
    Row("19.4", "an unknown subscription", acked(MINE + "0-1.0.1.1.000000"), NO_SUBSCRIPTION, (A_TOPIC,)),
    Row("19.4", "who is not on its list acknowledges nothing", acked("$ack_0", by="stranger"), FORBIDDEN,
        (*PULLED, STRANGER), ((OVER, None), (pull(1), given(0)))),
    Row("19.4", "thousands of ids, once more and once more", acked(*["$ack_0", "$ack_1", "$ack_2"] * 2000), DONE,
        PULLED, ((OVER, None), (pull(), NOTHING))),
    Row("19.4", "a body over the limit", acked(*["$ack_0"] * 400), refused(413, "INVALID_ARGUMENT",
        "Message size is too large"), PULLED, ((acked("$ack_0"), DONE),), "small"),
    Row("19.4", "late, when another one acknowledged the message since, it changes nothing",
        acked("$ack_0_before"), DONE, (*PLAIN, pull(1), OVER, pull(1), acked("$ack_0"))),
    Row("19.4", "with exactly-once delivery it is late then", acked("$ack_0_before"), late(0),
        (A_TOPIC, parallel(enableExactlyOnceDelivery=True), THREE, pull(1), OVER, pull(1), acked("$ack_0")),
        ((acked("$ack_0"), DONE),)),
    Row("19.4", "the answer is the same for exactly-once delivery, but for what comes late", acked("$ack_0"), late(0),
        (A_TOPIC, parallel(enableExactlyOnceDelivery=True), THREE, pull(1), OVER),
        ((pull(1), given(0)), (acked("$ack_0_before"), late(0)), (acked("$ack_0"), DONE), (acked("$ack_0"), DONE))),
]  # fmt: skip

GIVING_BACK = [
    Row("19.4", "what is given back comes again at once, oldest first", nacked("$ack_2", "$ack_0"), EMPTY, PULLED,
        ((pull(), given(0, 2)),)),
    Row("19.4", "behind what comes again are new messages", nacked("$ack_0"), EMPTY, (*PLAIN, pull(1)),
        ((pull(2), given(0, 1)), (pull(), given(2)))),
    Row("19.4", "with a delay it comes again then, and the others go on", nacked("$ack_0", delaySeconds=5), EMPTY,
        (*PLAIN, pull(1)), ((pull(), given(1, 2)), (Wait(4.9), None), (pull(), NOTHING), (Wait(0.3), None),
                            (pull(), given(0)))),
    Row("19.4", "the delay is in the place of that of the policy", nacked("$ack_0", delaySeconds=0), EMPTY,
        (A_TOPIC, parallel(retryPolicy={"minimumBackoff": "60s"}), THREE, pull(1)), ((pull(1), given(0)),)),
    Row("19.4", "the policy says how long it waits, twice as long each time", nacked("$ack_0"), EMPTY,
        (A_TOPIC, parallel(retryPolicy={"minimumBackoff": "10s"}), publish(), pull(1)),
        ((pull(1), NOTHING), (OVER, None), (pull(1), given(0)), (nacked("$ack_0"), EMPTY), (OVER, None),
         (pull(1), NOTHING), (OVER, None), (pull(1), given(0)))),
    Row("19.4", "a failure by deadline waits likewise", pull(1), NOTHING,
        (A_TOPIC, parallel(retryPolicy={"minimumBackoff": "10s"}), publish(), pull(1), OVER),
        ((OVER, None), (pull(1), given(0)))),
    Row("19.4", "what was given back is not acknowledged by its old id", acked("$ack_0"), late(0),
        (*PULLED, nacked("$ack_0")), ((pull(), given(0)),)),
    Row("19.4", "late, the ids are named, and the others are given back", nacked("$ack_0", "$ack_2"), late(0),
        (*PLAIN, pull(1), Wait(6), pull(), Wait(5)), ((pull(), given(0, 2)),)),
    Row("19.4", "giving back what is acknowledged changes nothing", nacked("$ack_0"), EMPTY,
        (*PULLED, acked("$ack_0")), ((pull(), NOTHING),)),
    Row("19.4", "what has not failed comes again at once, whatever the policy says, and no failure is counted",
        nacked("$ack_1", "$ack_0", failed=False), EMPTY, (A_TOPIC, parallel(retryPolicy={"minimumBackoff": "60s"}),
        THREE, pull()), ((acked("$ack_0"), late(0)), (pull(), attempts(1, 1)), (acked("$ack_0", "$ack_1"), DONE))),
    Row("19.4", "a true or a null failed is a failure", nacked("$ack_0", failed=True), EMPTY, (*PLAIN, pull(1)),
        ((pull(1), attempts(2)), (nacked("$ack_0", failed=None, delaySeconds=0), EMPTY), (pull(1), attempts(3)))),
    Row("19.4", "late ids of what has not failed are named, and the others come again", nacked("$ack_0", "$ack_2",
        failed=False), late(0), (*PLAIN, pull(1), Wait(6), pull(), Wait(5)), ((pull(), given(0, 2)),)),
    Row("19.4", "what is acknowledged stays so", nacked("$ack_0", failed=False), EMPTY, (*PULLED, acked("$ack_0")),
        ((pull(), NOTHING),)),
    Row("19.4", "what has not failed has no delay", nacked("$ack_0", failed=False, delaySeconds=0),
        bad("A message that has not failed has no delaySeconds"), PULLED, ((acked("$ack_0"), DONE),)),
    Row("19.4", "that it has not failed is no text", nacked("$ack_0", failed="false"), BAD_PARAMETER, PULLED),
    Row("19.4", "no ids that have not failed", nacked(failed=False), BAD_ACK, PULLED),
    Row("19.4", "a wrong id among what has not failed", nacked("$ack_0", MINE + "7-$hand_out_0", failed=False), BAD_ACK,
        PULLED, ((pull(), NOTHING),)),
    Row("19.4", "of an ordered one nothing has not failed", nacked(MINE + "0-1.0.1.1.000000", failed=False),
        NOT_PARALLEL, (*BOTH, THREE, pull())),
    Row("19.4", "no ids to give back", nacked(), BAD_ACK, PULLED),
    Row("19.4", "absent ids to give back", post(NACK, {}), BAD_ACK, PULLED),
    Row("19.4", "a delay below zero", nacked("$ack_0", delaySeconds=-1), BAD_SECONDS, PULLED, ((pull(), NOTHING),)),
    Row("19.4", "a delay of 601 s", nacked("$ack_0", delaySeconds=601), BAD_SECONDS, PULLED),
    Row("19.4", "a delay that is no number", nacked("$ack_0", delaySeconds="5"), BAD_PARAMETER, PULLED),
    Row("19.4", "a wrong id among those to give back", nacked("$ack_0", MINE + "7-$hand_out_0"), BAD_ACK, PULLED,
        ((pull(), NOTHING),)),
    Row("19.4", "an ordered one takes nothing back", nacked("$ack_0"), BAD_ACK, (*BOTH, THREE, pull())),
    Row("19.4", "an ordered one takes nothing back, whatever the ids", nacked(MINE + "0-1.0.1.1.000000"), NOT_PARALLEL,
        (*BOTH, THREE, pull())),
    Row("19.4", "nothing to give back of an unknown one", nacked(MINE + "0-1.0.1.1.000000"), NO_SUBSCRIPTION),
    Row("19.4", "who is not on its list gives nothing back", nacked("$ack_0", by="stranger"), FORBIDDEN,
        (*PULLED, STRANGER)),
    Row("19.4", "after so many attempts a message is put aside", OF_LETTERS,
        Answer({"receivedMessages": [Has(message=Has(data="MA==", attributes=Has(
            deadLetterSubscription="projects/$P/subscriptions/S", deadLetterAttempts="5")))]}),
        (A_TOPIC, put(TOPICS + "/D"), put(SUBSCRIPTIONS + "/L", {"topic": "projects/$P/topics/D"}),
         parallel(deadLetterPolicy={"deadLetterTopic": "D"}), publish("MA=="),
         *[each for _ in range(5) for each in (pull(1), nacked("$ack_0"))], *[OF_LETTERS] * 20),
        ((pull(), NOTHING), (get(SUBSCRIPTION + ":offsets"), Answer(Has(current=1))))),
]  # fmt: skip

EXTENDING = [
    Row("9.2, 19.4", "a lease goes on from now", extended(600, "$ack_0"), EMPTY, PULLED,
        ((OVER, None), (pull(), given(1, 2)), (Wait(580), None), (acked("$ack_0"), DONE))),
    Row("9.2, 19.4", "it may become shorter", extended(1, "$ack_0"), EMPTY, PULLED,
        ((Wait(1.3), None), (pull(), given(0)))),
    Row("9.2, 19.4", "0 gives back", extended(0, "$ack_0"), EMPTY, PULLED, ((pull(), given(0)),)),
    Row("9.2, 19.4", "absent seconds are 0", post(DEADLINE, {"ackIds": ["$ack_0"]}), EMPTY, PULLED,
        ((pull(), given(0)),)),
    Row("9.2, 19.4", "late, the ids are named, the others go on", extended(60, "$ack_0", "$ack_2"), late(0),
        (*PLAIN, pull(1), Wait(6), pull(), Wait(5)), ((OVER, None), (pull(), given(0, 1)))),
    Row("9.2, 19.4", "extending what is acknowledged changes nothing", extended(60, "$ack_0"), EMPTY,
        (*PULLED, acked("$ack_0"))),
    Row("9.2, 19.4", "seconds below zero", extended(-1, "$ack_0"), BAD_SECONDS, PULLED),
    Row("9.2, 19.4", "601 seconds", extended(601, "$ack_0"), BAD_SECONDS, PULLED, ((acked("$ack_0"), DONE),)),
    Row("9.2, 19.4", "no ids to extend", extended(60), BAD_ACK, PULLED),
    Row("9.2, 19.4", "ids that are null are none, and the subscription's own deadline stays",
        post(DEADLINE, {"ackIds": None, "ackDeadlineSeconds": 20}), BAD_ACK, PULLED,
        ((get(SUBSCRIPTION), Answer(Has(ackDeadlineSeconds=10))),)),
    Row("9.2, 19.4", "a wrong id among those to extend", extended(60, MINE + "9-$hand_out_0"), BAD_ACK, PULLED),
    Row("9.2, 19.4", "ids of an ordered one", extended(60, MINE + "0-1.0.1.1.000000"), NOT_PARALLEL,
        (*BOTH, THREE, pull())),
    Row("9.2, 19.4", "who is not on its list extends nothing", extended(60, "$ack_0", by="stranger"), FORBIDDEN,
        (*PULLED, STRANGER)),
]  # fmt: skip

ROWS = every(GIVING, ACKNOWLEDGING, GIVING_BACK, EXTENDING)
