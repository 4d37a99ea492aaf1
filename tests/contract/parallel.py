"""Parallel subscriptions: their options (contract 19.1 and 19.2), and their delivery (19.4)."""

from typing import Any

from tests.contract.delivery import ACK, BAD_ACK, PULL, TOPIC_GONE
from tests.contract.resources import BAD_DEADLINE, BAD_TOPIC, DEADLINE, WHOLE
from tests.contract.rows import *

UPDATE = SUBSCRIPTION + ":update"
BAD_BODY = error("IA", "Invalid Subscription Arguments")
TAKEN = error("AE", "Subscription already exists")
D, DEAD_LETTERS = put(TOPICS + "/D"), {"deadLetterPolicy": {"deadLetterTopic": "D"}}
SHOWN_DEAD_LETTERS = {"deadLetterTopic": "/projects/$P/topics/D", "maxDeliveryAttempts": 5}
A_PARALLEL = put(SUBSCRIPTION, {"topic": "projects/$P/topics/T", "type": "parallel", "filter": "attributes:a"})
PARALLEL = (A_TOPIC, A_PARALLEL)
SHOWN = {**WHOLE.body, "type": "parallel"}
NOTHING_MADE = ((get(SUBSCRIPTION), NO_SUBSCRIPTION),)
AS_MADE = ((get(SUBSCRIPTION), Answer({**SHOWN, "filter": "attributes:a"})),)


def make_parallel(**options: Any) -> Request:
    return put(SUBSCRIPTION, {"topic": "projects/$P/topics/T", "type": "parallel", **options})


def make_ordered(**options: Any) -> Request:
    return put(SUBSCRIPTION, {"topic": "projects/$P/topics/T", **options})


def update(**changes: Any) -> Request:
    return post(UPDATE, changes)


def bad_argument(text: str) -> Answer:
    return error("IA", text)


def not_ordered(*names: str) -> Answer:
    return bad_argument(f"Only a subscription of type parallel has {', '.join(names)}")


def no_span(field: str) -> Answer:
    return bad_argument(f"Field {field} should be seconds such as 10s or 0.5s")


BAD_TYPE = bad_argument("Subscription type can only be of 'ordered' or 'parallel'")
BAD_BACKOFF = bad_argument("Fields minimumBackoff and maximumBackoff should be between 0s and 600s")
BAD_BACKOFFS = bad_argument("Field minimumBackoff (10s if absent) should not be more than maximumBackoff")
BAD_ATTEMPTS = bad_argument("Field maxDeliveryAttempts should be between 5 and 100")
NO_DEAD_LETTER_TOPIC = bad_argument("Field deadLetterPolicy needs a deadLetterTopic")
NO_FILTER = bad_argument('Invalid filter at character 1: expected NOT, "(", attributes or hasPrefix')
BAD_TTL = bad_argument("Field ttl of expirationPolicy should be 86400s or more")
BAD_RETENTION = bad_argument("Field messageRetentionDuration should be between 600s and 2678400s")
BAD_PARALLEL_DEADLINE = bad_argument("Invalid ackDeadlineSeconds(needs value between 10 and 600) Arguments")
OWN_TOPIC = bad_argument("A subscription's own topic cannot be its deadLetterTopic")
NOT_PARALLEL = error("CO", "Subscription is not of type parallel")

SAME_IN_BOTH: list[tuple[str, dict[str, Any], Answer]] = [
    ("a policy that is no object", {"retryPolicy": "10s"}, BAD_BODY),
    ("a switch that is none", {"retainAckedMessages": "yes"}, BAD_BODY),
    ("attempts that are a fraction", {"deadLetterPolicy": {"maxDeliveryAttempts": 5.5}}, BAD_BODY),
    ("a span that is a number", {"messageRetentionDuration": 600}, BAD_BODY),
    ("a span without a unit", {"retryPolicy": {"minimumBackoff": "10"}}, no_span("minimumBackoff")),
    ("a span below zero", {"retryPolicy": {"maximumBackoff": "-1s"}}, no_span("maximumBackoff")),
    ("a span in minutes", {"expirationPolicy": {"ttl": "9000m"}}, no_span("ttl")),
    ("a span with ten digits after the point", {"expirationPolicy": {"ttl": "1.0000000001s"}}, no_span("ttl")),
    ("a span of thirteen digits", {"messageRetentionDuration": "1" * 13 + "s"}, no_span("messageRetentionDuration")),
    ("digits of another script", {"messageRetentionDuration": "\u0661s"}, no_span("messageRetentionDuration")),
    ("a minimum over 600s", {"retryPolicy": {"minimumBackoff": "600.001s"}}, BAD_BACKOFF),
    ("a maximum over 600s", {"retryPolicy": {"maximumBackoff": "601s"}}, BAD_BACKOFF),
    ("a minimum above the maximum", {"retryPolicy": {"minimumBackoff": "1s", "maximumBackoff": "0.9s"}}, BAD_BACKOFFS),
    ("a maximum below the usual minimum", {"retryPolicy": {"maximumBackoff": "5s"}}, BAD_BACKOFFS),
    ("4 attempts", {"deadLetterPolicy": {"deadLetterTopic": "D", "maxDeliveryAttempts": 4}}, BAD_ATTEMPTS),
    ("101 attempts", {"deadLetterPolicy": {"deadLetterTopic": "D", "maxDeliveryAttempts": 101}}, BAD_ATTEMPTS),
    ("attempts below zero, before the topic", {"deadLetterPolicy": {"maxDeliveryAttempts": -1}}, BAD_ATTEMPTS),
    ("dead letters to nowhere", {"deadLetterPolicy": {}}, NO_DEAD_LETTER_TOPIC),
    ("a ttl below a day", {"expirationPolicy": {"ttl": "86399s"}}, BAD_TTL),
    ("a retention below ten minutes", {"messageRetentionDuration": "599.999s"}, BAD_RETENTION),
    ("a retention over 31 days", {"messageRetentionDuration": "2678401s"}, BAD_RETENTION),
    ("dead letters to what is no name", {"deadLetterPolicy": {"deadLetterTopic": "a@b"}}, BAD_TOPIC),
    ("dead letters to another project", {"deadLetterPolicy": {"deadLetterTopic": "projects/x/topics/D"}}, BAD_TOPIC),
    ("dead letters to its own topic", {"deadLetterPolicy": {"deadLetterTopic": "T"}}, OWN_TOPIC),
    ("dead letters to an unknown topic", DEAD_LETTERS, NO_TOPIC),
]
"""Options that are refused at creation and in a change."""

MAKING = [
    Row("19.1", "a parallel one shows its type", make_parallel(), Answer(SHOWN), (A_TOPIC,),
        ((get(SUBSCRIPTION), Answer(SHOWN)), (get(SUBSCRIPTION[:-2]), Answer(Has(subscriptions=[SHOWN]))))),
    Row("19.1", "an ordered one shows nothing of it", make_ordered(type="ordered"), WHOLE, (A_TOPIC,)),
    Row("19.1", "an empty type is ordered", make_ordered(type=""), WHOLE, (A_TOPIC,)),
    Row("19.1", "options of an ordered one that say nothing", make_ordered(type=None, filter="", retryPolicy={},
        expirationPolicy={"ttl": ""}, retainAckedMessages=False, enableMessageOrdering=None), WHOLE, (A_TOPIC,)),
    Row("19.1", "all options", make_parallel(retryPolicy={"minimumBackoff": "0.5s", "maximumBackoff": "600s"},
        deadLetterPolicy={"deadLetterTopic": "projects/$P/topics/D", "maxDeliveryAttempts": 100},
        filter='attributes.a = "b"', enableMessageOrdering=True, enableExactlyOnceDelivery=True,
        retainAckedMessages=True, expirationPolicy={"ttl": "86400s"}, messageRetentionDuration="2678400s"),
        Answer({**SHOWN, "retryPolicy": {"minimumBackoff": "0.500s", "maximumBackoff": "600s"},
        "deadLetterPolicy": {"deadLetterTopic": "/projects/$P/topics/D", "maxDeliveryAttempts": 100},
        "filter": 'attributes.a = "b"', "enableMessageOrdering": True, "enableExactlyOnceDelivery": True,
        "retainAckedMessages": True, "expirationPolicy": {"ttl": "86400s"}, "messageRetentionDuration": "2678400s"}),
        (A_TOPIC, D)),
    Row("19.1", "what policies are when nothing is said", make_parallel(retryPolicy={}, expirationPolicy={},
        deadLetterPolicy={"deadLetterTopic": "/projects/$P/topics/D"}), Answer({**SHOWN,
        "retryPolicy": {"minimumBackoff": "10s", "maximumBackoff": "600s"}, "deadLetterPolicy": SHOWN_DEAD_LETTERS}),
        (A_TOPIC, D)),
    Row("19.1", "attempts of 0 are 5", make_parallel(deadLetterPolicy={"deadLetterTopic": "D",
        "maxDeliveryAttempts": 0}), Answer({**SHOWN, "deadLetterPolicy": SHOWN_DEAD_LETTERS}), (A_TOPIC, D)),
    Row("19.1", "the smallest of all", make_parallel(retryPolicy={"minimumBackoff": "0s", "maximumBackoff": "0s"},
        messageRetentionDuration="600s", ackDeadlineSeconds=10), Answer({**SHOWN,
        "retryPolicy": {"minimumBackoff": "0s", "maximumBackoff": "0s"}, "messageRetentionDuration": "600s"}),
        (A_TOPIC,)),
    Row("19.1", "what is finer than a millisecond is rounded up",
        make_parallel(retryPolicy={"minimumBackoff": "0.0001s"}), Answer(Has(retryPolicy={"minimumBackoff": "0.001s",
        "maximumBackoff": "600s"})), (A_TOPIC,)),
    Row("19.1", "names in any spelling", make_parallel(RETRYPOLICY={"MinimumBackoff": "1s"}),
        Answer(Has(retryPolicy={"minimumBackoff": "1s", "maximumBackoff": "600s"})), (A_TOPIC,)),
    Row("19.1", "a deadline of 0 is the default", make_parallel(ackDeadlineSeconds=0), Answer(SHOWN), (A_TOPIC,)),
    Row("19.1", "an unknown type, before the deadline", make_ordered(type="Parallel", ackDeadlineSeconds=-1), BAD_TYPE,
        (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "a type that is no text", make_ordered(type=1), BAD_BODY, (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "options of an ordered one, in the order of the table", make_ordered(retainAckedMessages=True,
        filter="attributes:a"), not_ordered("filter", "retainAckedMessages"), (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "policies of an ordered one, before what is wrong with them", make_ordered(type="ordered",
        retryPolicy={"minimumBackoff": "x"}, deadLetterPolicy={"maxDeliveryAttempts": 1},
        expirationPolicy={"ttl": "1s"}, enableMessageOrdering=True, enableExactlyOnceDelivery=True,
        messageRetentionDuration="1"), not_ordered("retryPolicy", "deadLetterPolicy", "enableMessageOrdering",
        "enableExactlyOnceDelivery", "expirationPolicy", "messageRetentionDuration"), (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "a filter that is none", make_parallel(filter="attributes"),
        bad_argument('Invalid filter at character 11: expected ":" or "." after attributes'), (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "a filter that is no text", make_parallel(filter=["attributes:a"]), BAD_BODY, (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "options before the deadline", make_parallel(filter="a", ackDeadlineSeconds=601), NO_FILTER,
        (A_TOPIC,)),
    Row("19.1", "a deadline of 9 s, before the topic", make_parallel(ackDeadlineSeconds=9), BAD_PARALLEL_DEADLINE),
    Row("19.1", "a deadline of 601 s", make_parallel(ackDeadlineSeconds=601), BAD_DEADLINE, (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "the topic before the dead letter topic", make_parallel(**DEAD_LETTERS), NO_TOPIC),
    Row("19.1", "the dead letter topic before a taken name", make_parallel(**DEAD_LETTERS), NO_TOPIC, BOTH,
        ((get(SUBSCRIPTION), WHOLE),)),
    Row("19.1", "a taken name, last", make_parallel(**DEAD_LETTERS), TAKEN, (*BOTH, D), ((get(SUBSCRIPTION), WHOLE),)),
    Row("9.2, 19.1", "its deadline cannot be below 10 s", post(DEADLINE, {"ackDeadlineSeconds": 9}),
        BAD_PARALLEL_DEADLINE, PARALLEL, (*AS_MADE, (post(DEADLINE, {"ackDeadlineSeconds": 11}), EMPTY))),
    Row("9.2, 19.1", "who is not on its list learns nothing of it", post(DEADLINE, {"ackDeadlineSeconds": 9}, "con"),
        FORBIDDEN, (*PARALLEL, member("con", "consumer"))),
    *(Row("19.1", says, make_parallel(**options), answer, (A_TOPIC,), NOTHING_MADE)
      for says, options, answer in SAME_IN_BOTH),
]  # fmt: skip

UPDATING = [
    Row("19.2", "what is absent stays", update(retainAckedMessages=True), Answer({**SHOWN, "filter": "attributes:a",
        "retainAckedMessages": True}), PARALLEL, ((update(enableExactlyOnceDelivery=True, **DEAD_LETTERS), NO_TOPIC),
        (D, Answer(Has())), (update(enableExactlyOnceDelivery=True, **DEAD_LETTERS), Answer({**SHOWN,
        "filter": "attributes:a", "retainAckedMessages": True, "enableExactlyOnceDelivery": True,
        "deadLetterPolicy": SHOWN_DEAD_LETTERS})))),
    Row("19.2", "null takes an option back", update(retryPolicy=None, deadLetterPolicy=None, expirationPolicy=None,
        messageRetentionDuration=None, retainAckedMessages=None, enableExactlyOnceDelivery=None), Answer(SHOWN),
        (A_TOPIC, D, make_parallel(retryPolicy={}, expirationPolicy={"ttl": "86400s"}, messageRetentionDuration="600s",
        retainAckedMessages=True, enableExactlyOnceDelivery=True, **DEAD_LETTERS))),
    Row("19.2", "a policy is replaced whole", update(retryPolicy={"minimumBackoff": "20s"}),
        Answer({**SHOWN, "retryPolicy": {"minimumBackoff": "20s", "maximumBackoff": "600s"}}),
        (A_TOPIC, make_parallel(retryPolicy={"minimumBackoff": "1s", "maximumBackoff": "30s"}))),
    Row("19.2", "a ttl that is not said is none", update(expirationPolicy={}), Answer(SHOWN),
        (A_TOPIC, make_parallel(expirationPolicy={"ttl": "86400s"}))),
    Row("19.2", "no changes change nothing", update(), AS_MADE[0][1], PARALLEL),
    Row("19.2", "names in any spelling, and unknown ones", update(RetainAckedMessages=True, labels={}),
        Answer(Has(retainAckedMessages=True)), PARALLEL),
    Row("19.2", "a body is needed", post(UPDATE), BAD_BODY, PARALLEL),
    *(Row("19.2", f"{field} never changes, before what else is wrong, and be it {value!r}",
          update(**{field: value}, retryPolicy={"minimumBackoff": "x"}),
          bad_argument(f"Field {field} of a subscription cannot change"), given, AS_MADE if given else ())
      for field, value, given in (
          ("type", "parallel", PARALLEL), ("type", None, PARALLEL), ("filter", "attributes:a", PARALLEL),
          ("filter", "", ()), ("enableMessageOrdering", True, PARALLEL))),
    *(Row("19.2", f"{field} is changed by {verb}, and be it {value!r}",
          update(**{field: value}, retryPolicy={"minimumBackoff": "x"}),
          bad_argument(f"Field {field} of a subscription is changed by {verb}"), given, AS_MADE if given else ())
      for field, verb, value, given in (
          ("ackDeadlineSeconds", ":modifyAckDeadline", 30, PARALLEL),
          ("ackDeadlineSeconds", ":modifyAckDeadline", None, ()),
          ("pushConfig", ":modifyPushConfig", {}, PARALLEL))),
    Row("19.2", "the options, before the subscription", update(expirationPolicy={"ttl": "1s"}), BAD_TTL),
    Row("19.2", "an unknown one", update(), NO_SUBSCRIPTION),
    Row("19.2", "an ordered one, before the dead letter topic", update(**DEAD_LETTERS), NOT_PARALLEL, BOTH,
        ((get(SUBSCRIPTION), WHOLE),)),
    *(Row("19.2", says, update(**options), answer, PARALLEL, AS_MADE) for says, options, answer in SAME_IN_BOTH),
]  # fmt: skip

# Delivery: pull, acknowledge, nack, and how long leases last

NACK = SUBSCRIPTION + ":nack"
MINE = "projects/$P/subscriptions/S:"
THREE = publish("MA==", "MQ==", "Mg==")
MINE_LIKE = r"projects/[\w-]+/subscriptions/S:"
PLAIN = (A_TOPIC, make_parallel(), THREE)
PULLED = (*PLAIN, pull())
DONE, NOTHING = Answer({}), Answer({"receivedMessages": []})
OVER = Wait(10.3)  # a little more than the deadline of 10 s
STRANGER = member("stranger", "consumer")
BAD_SECONDS = bad_argument("Seconds should be between 0 and 600")
BAD_PARAMETER = bad_argument("Invalid ack parameter")
ANY_MESSAGE = {
    "messageId": Like(r"\d+"), "data": Like(r".*"), "publishTime": Like(r".*Z")
}  # fmt: skip
"""Exactly these fields."""
HAND_OUT = r"\d+-\d+\.\d+\.\d+\.\d+\.[0-9a-f]{6}"


def batch(*numbers: int) -> Answer:
    """Return a pull's answer with exactly these messages."""
    return Answer({"receivedMessages": [Has(message=Has(messageId=str(each))) for each in numbers]})


def redelivery(number: int, name: str) -> Answer:
    return Answer({"receivedMessages": [Has(ackId=f"${name}", message=Has(messageId=str(number)))]})


def attempts(*numbers: int) -> Answer:
    """Return a pull's answer with these delivery attempts."""
    return Answer({"receivedMessages": [Has(deliveryAttempt=each, message=ANY_MESSAGE) for each in numbers]})


def ack_ids(*ids: str, by: str = "admin") -> Request:
    return post(ACK, {"ackIds": list(ids)}, by)


def nack_ids(*ids: str, by: str = "admin", **more: Any) -> Request:
    return post(NACK, {"ackIds": list(ids), **more}, by)


def extend_ids(seconds: int, *ids: str, by: str = "admin") -> Request:
    return post(DEADLINE, {"ackIds": list(ids), "ackDeadlineSeconds": seconds}, by)


def timeout(*numbers: int, reason: str = "ack timeout") -> Answer:
    text = ", ".join(HAND_OUT.replace(r"\d+-", f"{each}-") for each in numbers)
    return Answer({"error": {"code": 408, "message": Like(f"{reason}: {text}"), "status": "TIMEOUT"}}, 408)


def publish_keys(*keys: str) -> Request:
    return post(TOPIC + ":publish", {"messages": [{"data": "aGk=", "orderingKey": each} for each in keys]})


def publish_attributes(*names: str) -> Request:
    return post(TOPIC + ":publish", {"messages": [{"data": "aGk=", "attributes": {each: "1"}} for each in names]})


GIVING = [
    Row("19.4", "a message is given to one consumer at a time", pull(2), batch(0, 1), PLAIN,
        ((pull(), batch(2)), (pull(), NOTHING))),
    Row("19.4", "a lease that is over lets it be given again, under another id", pull(1), batch(0),
        (*PLAIN, pull(1), OVER), ((ack_ids("$ack_0_before"), timeout(0)), (ack_ids("$ack_0"), DONE))),
    Row("19.4", "an id says which hand-out it is of", pull(1),
        Answer({"receivedMessages": [Has(ackId=Like(MINE_LIKE + HAND_OUT))]}), PLAIN),
    Row("19.4", "beside a message stands how often it is delivered with this time", pull(), attempts(1, 1, 1), PLAIN,
        ((nack_ids("$ack_0", "$ack_2"), EMPTY), (pull(), attempts(2, 2)), (OVER, None), (pull(), attempts(3, 3, 2)))),
    Row("19.4", "of an ordered one no attempt is told", pull(1),
        Answer({"receivedMessages": [{"ackId": Like(MINE_LIKE + "0"), "message": ANY_MESSAGE}]}), (*BOTH, THREE)),
    Row("19.4", "the lease has the length of the deadline", ack_ids("$ack_0"), DONE,
        (A_TOPIC, make_parallel(ackDeadlineSeconds=60), THREE, pull(), Wait(59.9))),
    Row("19.4", "a deadline that changes holds for what is given then", ack_ids("$ack_0"), DONE, (A_TOPIC,
        make_parallel(ackDeadlineSeconds=60), THREE, pull(1), post(DEADLINE, {"ackDeadlineSeconds": 10}), OVER)),
    Row("19.4", "the service's limit of messages holds", pull(1000), batch(0, 1, 2),
        (*PLAIN, publish("Mw==", "NA==")), ((pull(1000), batch(3, 4)),), "small"),
    Row("19.4", "a consumer that is not on the list gets nothing", pull(by="stranger"), FORBIDDEN,
        (*PLAIN, CON, STRANGER, modify_acl(SUBSCRIPTION, "con")), ((pull(by="con"), batch(0, 1, 2)),)),
    Row("19.4", "without its topic there is nothing to give", pull(), TOPIC_GONE, (*PLAIN, delete(TOPIC))),
    Row("19.4", "a topic made again begins anew, and ids of the old one count no more", pull(), batch(0), (*PULLED,
        delete(TOPIC), A_TOPIC, publish("MA==")), ((ack_ids("$ack_0"), DONE), (ack_ids("$ack_2"), timeout(2)))),
    Row("19.4", "a body that cannot be read is refused", post(PULL, b"["),
        bad_argument("Invalid Pull Parameters Arguments"), PLAIN, ((pull(), batch(0, 1, 2)),)),
    Row("19.4", "what the filter does not match is passed over", pull(), batch(1, 3), (A_TOPIC,
        make_parallel(filter="attributes:a"), publish_attributes("b", "a", "b", "a")),
        ((ack_ids("$ack_1", "$ack_3"), DONE), (pull(),
        NOTHING), (get(SUBSCRIPTION + ":offsets"), Answer(Has(current=4, acknowledged=0))))),
    Row("19.4", "of a key one pull gets what follows each other, and another nothing before that is done", pull(2),
        batch(0, 1), (A_TOPIC, make_parallel(enableMessageOrdering=True), publish_keys("k", "k", "l", "k")),
        ((pull(), batch(2)),
        (ack_ids("$ack_1"), DONE), (pull(), NOTHING), (ack_ids("$ack_0"), DONE), (pull(), batch(3)))),
    Row("19.4", "an acknowledgement behind a message that is out is held", ack_ids("$ack_1"), DONE, (A_TOPIC,
        make_parallel(enableMessageOrdering=True), publish_keys("k", "k", "k"), pull()), ((nack_ids("$ack_1"), EMPTY),
        (get(SUBSCRIPTION + ":offsets"), Answer(Has(current=0, acknowledged=0, leased=3))), (ack_ids("$ack_0"), DONE),
        (get(SUBSCRIPTION + ":offsets"), Answer(Has(current=2, leased=1))))),
    Row("19.4", "what is held comes again when the message before it fails", ack_ids("$ack_1"), DONE, (A_TOPIC,
        make_parallel(enableMessageOrdering=True), publish_keys("k", "k"), pull()), ((nack_ids("$ack_0"), EMPTY),
        (ack_ids("$ack_1"), timeout(1)), (pull(), attempts(2, 1)), (ack_ids("$ack_1", "$ack_0"), DONE),
        (pull(), NOTHING))),
    Row("19.4", "with exactly-once delivery ids out of order are refused, and count later", ack_ids("$ack_1"),
        timeout(1, reason="ack out of order"), (A_TOPIC, make_parallel(enableMessageOrdering=True,
        enableExactlyOnceDelivery=True), publish_keys("k", "k"), pull()),
        ((ack_ids("$ack_0"), DONE), (ack_ids("$ack_1"), DONE))),
    Row("19.4", "a message that fails takes back what is out of its key behind it", nack_ids("$ack_0"), EMPTY, (A_TOPIC,
        make_parallel(enableMessageOrdering=True), publish_keys("k", "k", "l", "k"), pull()),
        ((ack_ids("$ack_1", "$ack_2"), timeout(1)),
        (pull(), attempts(2, 1, 1)), (ack_ids("$ack_0", "$ack_1", "$ack_3"), DONE), (pull(), NOTHING))),
    Row("19.4", "without the option keys do not matter", pull(), batch(0, 1), (A_TOPIC, make_parallel(),
        publish_keys("k", "k"))),
]  # fmt: skip

OF_LETTERS = post(SUBSCRIPTIONS + "/L:pull", {"maxMessages": 10})  # waits a little for what is put aside by and by

ACKNOWLEDGING = [
    Row("19.4", "in any order, each for itself", ack_ids("$ack_1"), DONE, PULLED,
        ((OVER, None), (pull(), batch(0, 2)), (ack_ids("$ack_2", "$ack_0"), DONE), (OVER, None), (pull(), NOTHING))),
    Row("19.4", "the last id of a batch acknowledges that message alone", ack_ids("$ack_2"), DONE, PULLED,
        ((OVER, None), (pull(), batch(0, 1)))),
    Row("19.4", "again, and twice in one request, is 200 and changes nothing", ack_ids("$ack_0", "$ack_0"), DONE,
        (*PULLED, ack_ids("$ack_0")), ((OVER, None), (pull(), batch(1, 2)))),
    Row("19.4", "again, also after the deadline", ack_ids("$ack_0"), DONE, (*PULLED, ack_ids("$ack_0"), OVER)),
    Row("19.4", "late, the ids are named, and the others are done", ack_ids("$ack_0", "$ack_2"), timeout(0),
        (*PLAIN, pull(1), Wait(6), pull(), Wait(5)), ((OVER, None), (pull(), batch(0, 1)))),
    Row("19.4", "late ids are named in the order of the request", ack_ids("$ack_2", "$ack_0"), timeout(2, 0),
        (*PULLED, OVER)),
    Row("19.4", "an id of before a seek comes late", ack_ids("$ack_0"), timeout(0),
        (*PULLED, post(SUBSCRIPTION + ":seek", {"offset": 0})), ((pull(), batch(0, 1, 2)),)),
    Row("19.4", "no ids", ack_ids(), BAD_ACK, PULLED),
    Row("19.4", "ids that are absent", post(ACK, {}), BAD_ACK, PULLED),
    Row("19.4", "ids that are null", post(ACK, {"ackIds": None}), BAD_ACK, PULLED),
    Row("19.4", "ids that are no list", post(ACK, {"ackIds": "$ack_0"}), BAD_PARAMETER, PULLED),
    Row("19.4", "a body that is none", post(ACK, b"["), BAD_PARAMETER, PULLED),
    Row("19.4", "names in any spelling", post(ACK, {"ACKIDS": ["$ack_0"], "more": 1}), DONE, PULLED),
    *(Row("19.4", f"{says}: nothing is acknowledged", ack_ids("$ack_0", wrong), BAD_ACK, PULLED,
          ((OVER, None), (pull(), batch(0, 1, 2))))
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
    Row("19.4", "the id of another subscription under the own name", ack_ids("$ack_0"), BAD_ACK,
        (*PULLED, delete(SUBSCRIPTION), make_parallel())),
    Row("19.4", "an id of a parallel one is none of an ordered one", ack_ids("$ack_0"), BAD_ACK,
        (*PULLED, delete(SUBSCRIPTION), BOTH[1], pull())),
    Row("19.4", "an unknown subscription", ack_ids(MINE + "0-1.0.1.1.000000"), NO_SUBSCRIPTION, (A_TOPIC,)),
    Row("19.4", "who is not on its list acknowledges nothing", ack_ids("$ack_0", by="stranger"), FORBIDDEN,
        (*PULLED, STRANGER), ((OVER, None), (pull(1), batch(0)))),
    Row("19.4", "thousands of ids, once more and once more", ack_ids(*["$ack_0", "$ack_1", "$ack_2"] * 2000), DONE,
        PULLED, ((OVER, None), (pull(), NOTHING))),
    Row("19.4", "a body over the limit", ack_ids(*["$ack_0"] * 400), custom_error(413, "INVALID_ARGUMENT",
        "Message size is too large"), PULLED, ((ack_ids("$ack_0"), DONE),), "small"),
    Row("19.4", "late, when another one acknowledged the message since, it changes nothing",
        ack_ids("$ack_0_before"), DONE, (*PLAIN, pull(1), OVER, pull(1), ack_ids("$ack_0"))),
    Row("19.4", "with exactly-once delivery it is late then", ack_ids("$ack_0_before"), timeout(0),
        (A_TOPIC, make_parallel(enableExactlyOnceDelivery=True), THREE, pull(1), OVER, pull(1), ack_ids("$ack_0")),
        ((ack_ids("$ack_0"), DONE),)),
    Row("19.4", "the answer is the same for exactly-once delivery, but for what comes late", ack_ids("$ack_0"),
        timeout(0), (A_TOPIC, make_parallel(enableExactlyOnceDelivery=True), THREE, pull(1), OVER), ((pull(1),
        batch(0)), (ack_ids("$ack_0_before"), timeout(0)), (ack_ids("$ack_0"), DONE), (ack_ids("$ack_0"), DONE))),
]  # fmt: skip

GIVING_BACK = [
    Row("19.4", "what is given back comes again at once, oldest first", nack_ids("$ack_2", "$ack_0"), EMPTY, PULLED,
        ((pull(), batch(0, 2)),)),
    Row("19.4", "behind what comes again are new messages", nack_ids("$ack_0"), EMPTY, (*PLAIN, pull(1)),
        ((pull(2), batch(0, 1)), (pull(), batch(2)))),
    Row("19.4", "with a delay it comes again then, and the others go on", nack_ids("$ack_0", delaySeconds=5), EMPTY,
        (*PLAIN, pull(1)), ((pull(), batch(1, 2)), (Wait(4.9), None), (pull(), NOTHING), (Wait(0.3), None),
                            (pull(), batch(0)))),
    Row("19.4", "the delay is in the place of that of the policy", nack_ids("$ack_0", delaySeconds=0), EMPTY,
        (A_TOPIC, make_parallel(retryPolicy={"minimumBackoff": "60s"}), THREE, pull(1)), ((pull(1), batch(0)),)),
    Row("19.4", "the policy says how long it waits, twice as long each time", nack_ids("$ack_0"), EMPTY, (A_TOPIC,
        make_parallel(retryPolicy={"minimumBackoff": "10s"}), publish(), pull(1)), ((pull(1), NOTHING), (OVER, None),
        (pull(1), batch(0)), (nack_ids("$ack_0"), EMPTY), (OVER, None), (pull(1), NOTHING), (OVER, None), (pull(1),
        batch(0)))),
    Row("19.4", "a failure by deadline waits likewise", pull(1), NOTHING,
        (A_TOPIC, make_parallel(retryPolicy={"minimumBackoff": "10s"}), publish(), pull(1), OVER),
        ((OVER, None), (pull(1), batch(0)))),
    Row("19.4", "what was given back is not acknowledged by its old id", ack_ids("$ack_0"), timeout(0),
        (*PULLED, nack_ids("$ack_0")), ((pull(), batch(0)),)),
    Row("19.4", "late, the ids are named, and the others are given back", nack_ids("$ack_0", "$ack_2"), timeout(0),
        (*PLAIN, pull(1), Wait(6), pull(), Wait(5)), ((pull(), batch(0, 2)),)),
    Row("19.4", "giving back what is acknowledged changes nothing", nack_ids("$ack_0"), EMPTY,
        (*PULLED, ack_ids("$ack_0")), ((pull(), NOTHING),)),
    Row("19.4", "what has not failed comes again at once, whatever the policy says, and no failure is counted",
        nack_ids("$ack_1", "$ack_0", failed=False), EMPTY,
        (A_TOPIC, make_parallel(retryPolicy={"minimumBackoff": "60s"}),
        THREE, pull()),
        ((ack_ids("$ack_0"), timeout(0)), (pull(), attempts(1, 1)), (ack_ids("$ack_0", "$ack_1"), DONE))),
    Row("19.4", "a true or a null failed is a failure", nack_ids("$ack_0", failed=True), EMPTY, (*PLAIN, pull(1)),
        ((pull(1), attempts(2)), (nack_ids("$ack_0", failed=None, delaySeconds=0), EMPTY), (pull(1), attempts(3)))),
    Row("19.4", "late ids of what has not failed are named, and the others come again", nack_ids("$ack_0", "$ack_2",
        failed=False), timeout(0), (*PLAIN, pull(1), Wait(6), pull(), Wait(5)), ((pull(), batch(0, 2)),)),
    Row("19.4", "what is acknowledged stays so", nack_ids("$ack_0", failed=False), EMPTY, (*PULLED, ack_ids("$ack_0")),
        ((pull(), NOTHING),)),
    Row("19.4", "what has not failed has no delay", nack_ids("$ack_0", failed=False, delaySeconds=0),
        bad_argument("A message that has not failed has no delaySeconds"), PULLED, ((ack_ids("$ack_0"), DONE),)),
    Row("19.4", "that it has not failed is no text", nack_ids("$ack_0", failed="false"), BAD_PARAMETER, PULLED),
    Row("19.4", "no ids that have not failed", nack_ids(failed=False), BAD_ACK, PULLED),
    Row("19.4", "a wrong id among what has not failed", nack_ids("$ack_0", MINE + "7-$hand_out_0", failed=False),
        BAD_ACK, PULLED, ((pull(), NOTHING),)),
    Row("19.4", "of an ordered one nothing has not failed", nack_ids(MINE + "0-1.0.1.1.000000", failed=False),
        NOT_PARALLEL, (*BOTH, THREE, pull())),
    Row("19.4", "no ids to give back", nack_ids(), BAD_ACK, PULLED),
    Row("19.4", "absent ids to give back", post(NACK, {}), BAD_ACK, PULLED),
    Row("19.4", "a delay below zero", nack_ids("$ack_0", delaySeconds=-1), BAD_SECONDS, PULLED, ((pull(), NOTHING),)),
    Row("19.4", "a delay of 601 s", nack_ids("$ack_0", delaySeconds=601), BAD_SECONDS, PULLED),
    Row("19.4", "a delay that is no number", nack_ids("$ack_0", delaySeconds="5"), BAD_PARAMETER, PULLED),
    Row("19.4", "a wrong id among those to give back", nack_ids("$ack_0", MINE + "7-$hand_out_0"), BAD_ACK, PULLED,
        ((pull(), NOTHING),)),
    Row("19.4", "an ordered one takes nothing back", nack_ids("$ack_0"), BAD_ACK, (*BOTH, THREE, pull())),
    Row("19.4", "an ordered one takes nothing back, whatever the ids", nack_ids(MINE + "0-1.0.1.1.000000"),
        NOT_PARALLEL, (*BOTH, THREE, pull())),
    Row("19.4", "nothing to give back of an unknown one", nack_ids(MINE + "0-1.0.1.1.000000"), NO_SUBSCRIPTION),
    Row("19.4", "who is not on its list gives nothing back", nack_ids("$ack_0", by="stranger"), FORBIDDEN,
        (*PULLED, STRANGER)),
    Row("19.4", "after so many attempts a message is put aside", OF_LETTERS,
        Answer({"receivedMessages": [Has(message=Has(data="MA==",
        attributes=Has( deadLetterSubscription="projects/$P/subscriptions/S", deadLetterAttempts="5")))]}), (A_TOPIC,
        put(TOPICS + "/D"), put(SUBSCRIPTIONS + "/L", {"topic": "projects/$P/topics/D"}),
        make_parallel(deadLetterPolicy={"deadLetterTopic": "D"}), publish("MA=="),
        *[each for _ in range(5) for each in (pull(1), nack_ids("$ack_0"))], *[OF_LETTERS] * 20), ((pull(), NOTHING),
        (get(SUBSCRIPTION + ":offsets"), Answer(Has(current=1))))),
]  # fmt: skip

EXTENDING = [
    Row("9.2, 19.4", "a lease goes on from now", extend_ids(600, "$ack_0"), EMPTY, PULLED,
        ((OVER, None), (pull(), batch(1, 2)), (Wait(580), None), (ack_ids("$ack_0"), DONE))),
    Row("9.2, 19.4", "it may become shorter", extend_ids(1, "$ack_0"), EMPTY, PULLED,
        ((Wait(1.3), None), (pull(), batch(0)))),
    Row("9.2, 19.4", "0 gives back", extend_ids(0, "$ack_0"), EMPTY, PULLED, ((pull(), batch(0)),)),
    Row("9.2, 19.4", "absent seconds are 0", post(DEADLINE, {"ackIds": ["$ack_0"]}), EMPTY, PULLED,
        ((pull(), batch(0)),)),
    Row("9.2, 19.4", "late, the ids are named, the others go on", extend_ids(60, "$ack_0", "$ack_2"), timeout(0),
        (*PLAIN, pull(1), Wait(6), pull(), Wait(5)), ((OVER, None), (pull(), batch(0, 1)))),
    Row("9.2, 19.4", "extending what is acknowledged changes nothing", extend_ids(60, "$ack_0"), EMPTY,
        (*PULLED, ack_ids("$ack_0"))),
    Row("9.2, 19.4", "seconds below zero", extend_ids(-1, "$ack_0"), BAD_SECONDS, PULLED),
    Row("9.2, 19.4", "601 seconds", extend_ids(601, "$ack_0"), BAD_SECONDS, PULLED, ((ack_ids("$ack_0"), DONE),)),
    Row("9.2, 19.4", "no ids to extend", extend_ids(60), BAD_ACK, PULLED),
    Row("9.2, 19.4", "ids that are null are none, and the subscription's own deadline stays",
        post(DEADLINE, {"ackIds": None, "ackDeadlineSeconds": 20}), BAD_ACK, PULLED,
        ((get(SUBSCRIPTION), Answer(Has(ackDeadlineSeconds=10))),)),
    Row("9.2, 19.4", "a wrong id among those to extend", extend_ids(60, MINE + "9-$hand_out_0"), BAD_ACK, PULLED),
    Row("9.2, 19.4", "ids of an ordered one", extend_ids(60, MINE + "0-1.0.1.1.000000"), NOT_PARALLEL,
        (*BOTH, THREE, pull())),
    Row("9.2, 19.4", "who is not on its list extends nothing", extend_ids(60, "$ack_0", by="stranger"), FORBIDDEN,
        (*PULLED, STRANGER)),
]  # fmt: skip

ROWS = join_rows(MAKING, UPDATING, GIVING, ACKNOWLEDGING, GIVING_BACK, EXTENDING)
