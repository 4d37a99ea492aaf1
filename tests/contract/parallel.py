"""Options of parallel subscriptions (contract 19.1 and 19.2)."""

from typing import Any

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


def parallel(**options: Any) -> Ask:
    return put(SUBSCRIPTION, {"topic": "projects/$P/topics/T", "type": "parallel", **options})


def ordered(**options: Any) -> Ask:
    return put(SUBSCRIPTION, {"topic": "projects/$P/topics/T", **options})


def update(**changes: Any) -> Ask:
    return post(UPDATE, changes)


def bad(text: str) -> Answer:
    return error("IA", text)


def not_ordered(*names: str) -> Answer:
    return bad(f"Only a subscription of type parallel has {', '.join(names)}")


def no_span(field: str) -> Answer:
    return bad(f"Field {field} should be seconds such as 10s or 0.5s")


BAD_TYPE = bad("Subscription type can only be of 'ordered' or 'parallel'")
BAD_BACKOFF = bad("Fields minimumBackoff and maximumBackoff should be between 0s and 600s")
BAD_BACKOFFS = bad("Field minimumBackoff (10s if absent) should not be more than maximumBackoff")
BAD_ATTEMPTS = bad("Field maxDeliveryAttempts should be between 5 and 100")
NO_DEAD_LETTER_TOPIC = bad("Field deadLetterPolicy needs a deadLetterTopic")
NO_FILTER = bad('Invalid filter at character 1: expected NOT, "(", attributes or hasPrefix')
LONG_FILTER = bad("Invalid filter: it has more than 256 bytes")
BAD_TTL = bad("Field ttl of expirationPolicy should be 86400s or more")
BAD_RETENTION = bad("Field messageRetentionDuration should be between 600s and 2678400s")
BAD_PARALLEL_DEADLINE = bad("Invalid ackDeadlineSeconds(needs value between 10 and 600) Arguments")
OWN_TOPIC = bad("A subscription's own topic cannot be its deadLetterTopic")
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
    ("dead letters to what is no name", {"deadLetterPolicy": {"deadLetterTopic": "a.b"}}, BAD_TOPIC),
    ("dead letters to another project", {"deadLetterPolicy": {"deadLetterTopic": "projects/x/topics/D"}}, BAD_TOPIC),
    ("dead letters to its own topic", {"deadLetterPolicy": {"deadLetterTopic": "T"}}, OWN_TOPIC),
    ("dead letters to an unknown topic", DEAD_LETTERS, NO_TOPIC),
]
"""What is refused of options, at creation and in a change."""

MAKING = [
    Row("19.1", "a parallel one shows its type", parallel(), Answer(SHOWN), (A_TOPIC,),
        ((get(SUBSCRIPTION), Answer(SHOWN)), (get(SUBSCRIPTION[:-2]), Answer(Has(subscriptions=[SHOWN]))))),
    Row("19.1", "an ordered one shows nothing of it", ordered(type="ordered"), WHOLE, (A_TOPIC,)),
    Row("19.1", "an empty type is ordered", ordered(type=""), WHOLE, (A_TOPIC,)),
    Row("19.1", "options of an ordered one that say nothing", ordered(type=None, filter="", retryPolicy={},
        expirationPolicy={"ttl": ""}, retainAckedMessages=False, enableMessageOrdering=None), WHOLE, (A_TOPIC,)),
    Row("19.1", "all options", parallel(retryPolicy={"minimumBackoff": "0.5s", "maximumBackoff": "600s"},
        deadLetterPolicy={"deadLetterTopic": "projects/$P/topics/D", "maxDeliveryAttempts": 100},
        filter='attributes.a = "b"', enableMessageOrdering=True, enableExactlyOnceDelivery=True,
        retainAckedMessages=True, expirationPolicy={"ttl": "86400s"}, messageRetentionDuration="2678400s"),
        Answer({**SHOWN, "retryPolicy": {"minimumBackoff": "0.500s", "maximumBackoff": "600s"},
        "deadLetterPolicy": {"deadLetterTopic": "/projects/$P/topics/D", "maxDeliveryAttempts": 100},
        "filter": 'attributes.a = "b"', "enableMessageOrdering": True, "enableExactlyOnceDelivery": True,
        "retainAckedMessages": True, "expirationPolicy": {"ttl": "86400s"}, "messageRetentionDuration": "2678400s"}),
        (A_TOPIC, D)),
    Row("19.1", "what policies are when nothing is said",
        parallel(retryPolicy={}, expirationPolicy={}, deadLetterPolicy={"deadLetterTopic": "/projects/$P/topics/D"}),
        Answer({**SHOWN, "retryPolicy": {"minimumBackoff": "10s", "maximumBackoff": "600s"},
                "deadLetterPolicy": SHOWN_DEAD_LETTERS}), (A_TOPIC, D)),
    Row("19.1", "attempts of 0 are 5", parallel(deadLetterPolicy={"deadLetterTopic": "D", "maxDeliveryAttempts": 0}),
        Answer({**SHOWN, "deadLetterPolicy": SHOWN_DEAD_LETTERS}), (A_TOPIC, D)),
    Row("19.1", "the smallest of all", parallel(retryPolicy={"minimumBackoff": "0s", "maximumBackoff": "0s"},
        messageRetentionDuration="600s", ackDeadlineSeconds=10), Answer({**SHOWN,
        "retryPolicy": {"minimumBackoff": "0s", "maximumBackoff": "0s"}, "messageRetentionDuration": "600s"}),
        (A_TOPIC,)),
    Row("19.1", "what is finer than a millisecond is rounded up", parallel(retryPolicy={"minimumBackoff": "0.0001s"}),
        Answer(Has(retryPolicy={"minimumBackoff": "0.001s", "maximumBackoff": "600s"})), (A_TOPIC,)),
    Row("19.1", "names in any spelling", parallel(RETRYPOLICY={"MinimumBackoff": "1s"}),
        Answer(Has(retryPolicy={"minimumBackoff": "1s", "maximumBackoff": "600s"})), (A_TOPIC,)),
    Row("19.1", "a deadline of 0 is the default", parallel(ackDeadlineSeconds=0), Answer(SHOWN), (A_TOPIC,)),
    Row("19.1", "an unknown type, before the deadline", ordered(type="Parallel", ackDeadlineSeconds=-1), BAD_TYPE,
        (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "a type that is no text", ordered(type=1), BAD_BODY, (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "options of an ordered one, in the order of the table", ordered(retainAckedMessages=True,
        filter="attributes:a"), not_ordered("filter", "retainAckedMessages"), (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "policies of an ordered one, before what is wrong with them", ordered(type="ordered",
        retryPolicy={"minimumBackoff": "x"}, deadLetterPolicy={"maxDeliveryAttempts": 1},
        expirationPolicy={"ttl": "1s"}, enableMessageOrdering=True, enableExactlyOnceDelivery=True,
        messageRetentionDuration="1"), not_ordered("retryPolicy", "deadLetterPolicy", "enableMessageOrdering",
        "enableExactlyOnceDelivery", "expirationPolicy", "messageRetentionDuration"), (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "a filter that is none", parallel(filter="attributes"),
        bad('Invalid filter at character 11: expected ":" or "." after attributes'), (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "a filter of AND and OR", parallel(filter="attributes:a AND attributes:b OR attributes:c"),
        bad("Invalid filter at character 31: expected parentheses around AND or OR where both are used"),
        (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "a filter of 257 bytes", parallel(filter=f'attributes:"{"ä" * 122}"'), LONG_FILTER,
        (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "a filter that is no text", parallel(filter=["attributes:a"]), BAD_BODY, (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "options before the deadline", parallel(filter="a", ackDeadlineSeconds=601), NO_FILTER, (A_TOPIC,)),
    Row("19.1", "a deadline of 9 s, before the topic", parallel(ackDeadlineSeconds=9), BAD_PARALLEL_DEADLINE),
    Row("19.1", "a deadline of 601 s", parallel(ackDeadlineSeconds=601), BAD_DEADLINE, (A_TOPIC,), NOTHING_MADE),
    Row("19.1", "the topic before the dead letter topic", parallel(**DEAD_LETTERS), NO_TOPIC),
    Row("19.1", "the dead letter topic before a taken name", parallel(**DEAD_LETTERS), NO_TOPIC, BOTH,
        ((get(SUBSCRIPTION), WHOLE),)),
    Row("19.1", "a taken name, last", parallel(**DEAD_LETTERS), TAKEN, (*BOTH, D), ((get(SUBSCRIPTION), WHOLE),)),
    Row("9.2, 19.1", "its deadline cannot be below 10 s", post(DEADLINE, {"ackDeadlineSeconds": 9}),
        BAD_PARALLEL_DEADLINE, PARALLEL, (*AS_MADE, (post(DEADLINE, {"ackDeadlineSeconds": 11}), EMPTY))),
    Row("9.2, 19.1", "who is not on its list learns nothing of it", post(DEADLINE, {"ackDeadlineSeconds": 9}, "con"),
        FORBIDDEN, (*PARALLEL, member("con", "consumer"))),
    *(Row("19.1", says, parallel(**options), answer, (A_TOPIC,), NOTHING_MADE)
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
        (A_TOPIC, D, parallel(retryPolicy={}, expirationPolicy={"ttl": "86400s"}, messageRetentionDuration="600s",
        retainAckedMessages=True, enableExactlyOnceDelivery=True, **DEAD_LETTERS))),
    Row("19.2", "a policy is replaced whole", update(retryPolicy={"minimumBackoff": "20s"}),
        Answer({**SHOWN, "retryPolicy": {"minimumBackoff": "20s", "maximumBackoff": "600s"}}),
        (A_TOPIC, parallel(retryPolicy={"minimumBackoff": "1s", "maximumBackoff": "30s"}))),
    Row("19.2", "a ttl that is not said is none", update(expirationPolicy={}), Answer(SHOWN),
        (A_TOPIC, parallel(expirationPolicy={"ttl": "86400s"}))),
    Row("19.2", "no changes change nothing", update(), AS_MADE[0][1], PARALLEL),
    Row("19.2", "names in any spelling, and unknown ones", update(RetainAckedMessages=True, labels={}),
        Answer(Has(retainAckedMessages=True)), PARALLEL),
    Row("19.2", "a body is needed", post(UPDATE), BAD_BODY, PARALLEL),
    *(Row("19.2", f"{field} never changes, before what else is wrong, and be it {value!r}",
          update(**{field: value}, retryPolicy={"minimumBackoff": "x"}),
          bad(f"Field {field} of a subscription cannot change"), given, AS_MADE if given else ())
      for field, value, given in (
          ("type", "parallel", PARALLEL), ("type", None, PARALLEL), ("filter", "attributes:a", PARALLEL),
          ("filter", "", ()), ("enableMessageOrdering", True, PARALLEL))),
    *(Row("19.2", f"{field} is changed by {verb}, and be it {value!r}",
          update(**{field: value}, retryPolicy={"minimumBackoff": "x"}),
          bad(f"Field {field} of a subscription is changed by {verb}"), given, AS_MADE if given else ())
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

ROWS = every(MAKING, UPDATING)
