"""This service's additions to the contract: publish once, seek, ranges, retention, doctor, quotas, named tokens."""

from base64 import b64encode
from dataclasses import dataclass

from tests.contract.rows import *
from tests.contract.schemas import A_SCHEMA, NAME
from tests.support.program_keys import public_key, public_pem

PUBLISH = TOPIC + ":publish"
PUBLISH_TIME = Like(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d{0,2}[1-9])?Z")
HOUR = 3600
REUSED = error("CO", "Idempotency key reused with other content")
TOO_LARGE = custom_error(413, "INVALID_ARGUMENT", "Message size is too large")
BAD_KEY = error("IA", "Idempotency-Key must have 1 to 255 visible ASCII characters")


@dataclass(frozen=True)
class Lines:
    """JSON lines with messages of these offsets in this order; each message's data is its offset."""

    numbers: tuple[int, ...]

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, list):
            return NotImplemented
        return [{name: value for name, value in each.items() if name != "publishTime"} for each in other] == [
            {"offset": each, "messageId": str(each), "data": b64encode(str(each).encode()).decode()}
            for each in self.numbers
        ] and all(each["publishTime"] == PUBLISH_TIME for each in other)


def publish_once(key: str, *data: str, to: str = TOPIC) -> Request:
    return publish(*data, to=to)._replace(headers={"idempotency-key": key})


def ids(*numbers: int) -> Answer:
    return Answer({"messageIds": [str(number) for number in numbers]})


KEYS = [
    Row("ours key", "the same key with the same messages answers the first ids and stores nothing", publish_once("k",
        "MA==", "MQ=="), ids(0, 1), (*BOTH, publish_once("k", "MA==", "MQ=="), publish("Mg==")), ((pull(),
        batch_with_ids(0, 1, 2)),)),
    Row("ours key", "the same messages written in another way are the same messages", post(PUBLISH,
        b'{ "Messages": [{"attributes": {}, "data": "MA==", "messageId": "9"}] }', headers={"idempotency-key": "k"}),
        ids(0), (A_TOPIC, publish_once("k", "MA=="))),
    Row("ours key", "the same key with other messages is refused and stores nothing", publish_once("k", "MQ=="), REUSED,
        (*BOTH, publish_once("k", "MA==")), ((pull(), batch_with_ids(0)),)),
    Row("ours key", "a key belongs to one topic", publish_once("k", "MQ==", to=TOPIC + "2"), ids(0),
        (A_TOPIC, put(TOPIC + "2"), publish_once("k", "MA=="))),
    Row("ours key", "a key over 255 characters is refused and nothing stored", publish_once("k" * 256), BAD_KEY, BOTH,
        ((pull(), batch_with_ids()),)),
    Row("ours key", "a request that was refused leaves its key free", publish_once("k", "MQ=="), ids(0),
        (A_TOPIC,), ((publish_once("j", "A" * 2000), TOO_LARGE), (publish_once("j", "MQ=="), ids(1))), "small"),
    Row("ours key", "a publish repeated after a schema was attached is still the first one", publish_once("k", "MA=="),
        ids(0), (A_TOPIC, publish_once("k", "MA=="), post(SCHEMA, {"type": "json", "schema": {"type": "object"}}),
        post(f"{TOPIC}:attachSchema", {"schema": "projects/$P/schemas/X"})), ((publish_once("l", "MA=="), error("IA",
        "Message 0 data is not valid,(root): Invalid type. Expected: object, given: " "integer")),)),
    Row("ours key", "no messages under a known key are other messages", post(PUBLISH, {"messages": []},
        headers={"idempotency-key": "k"}), REUSED, (A_TOPIC, publish_once("k", "MA=="))),
    Row("ours key", "a key is known as long as the messages are kept", publish_once("k", "MQ=="), ids(1),
        (A_TOPIC, publish_once("k", "MA=="), Wait(7 * DAY), publish_once("k", "MA=="), Wait(0.001))),
    Row("ours key", "a key older than its window counts as new", publish_once("k", "MQ=="), ids(1),
        (A_TOPIC, publish_once("k", "MA=="), Wait(HOUR), publish_once("k", "MA=="), Wait(0.001)), (), "short memory"),
]  # fmt: skip

SEEK = SUBSCRIPTION + ":seek"
THREE = (*BOTH, publish("MA==", "MQ==", "Mg=="))
ONE_OF_TWO = error("IA", "Give either time or offset")
NO_BOUNDS = error("IA", "Offset out of bounds")
BAD_TIME = error("IA", "Time is not in valid Zulu format.")
NO_TOPIC_LEFT = error("CO", "Subscription's topic doesn't exist")


def seek(**body: object) -> Request:
    return post(SEEK, body)


SEEKING = [
    Row("ours seek", "an offset is moved to, and the new position answered", seek(offset=1), offsets(0, 1, 3), THREE,
        ((pull(), batch_with_ids(1, 2)),)),
    Row("ours seek", "the end is a place", seek(offset=3), offsets(0, 3, 3), THREE, ((pull(), batch_with_ids()),)),
    Row("ours seek", "a time after the last message leads to the end", seek(time="2999-01-01T00:00:00Z"),
        offsets(0, 3, 3), THREE),
    Row("ours seek", "a time before the oldest message leads to that one", seek(time="1970-01-01T00:00:00.000Z"),
        offsets(0, 0, 3), (*THREE, pull(), ack(2))),
    Row("ours seek", "what retention took is no place", seek(offset=0), NO_BOUNDS,
        (*THREE, Wait(7 * DAY), publish("Mw=="), Wait(2)), ((seek(offset=3), offsets(3, 3, 4)),
        (seek(time="1970-01-01T00:00:00Z"), offsets(3, 3, 4)))),
    Row("ours seek", "what was pulled before can no longer be acknowledged", seek(offset=0), offsets(0, 0, 3),
        (*THREE, pull()), ((ack(2), error("IA", "no ack pending")), (ASK_OFFSETS, offsets(0, 0, 3)))),
    Row("ours seek", "neither is refused", seek(), ONE_OF_TWO, THREE),
    Row("ours seek", "both are refused, and nothing moves", seek(offset=1, time="2024-01-01T00:00:00Z"), ONE_OF_TWO,
        THREE, ((ASK_OFFSETS, offsets(0, 0, 3)),)),
    Row("ours seek", "an offset is a whole number", seek(offset="1"), error("IA", "Invalid Seek Arguments"), THREE),
    Row("ours seek", "a time is written as timeToOffset takes it", seek(time="yesterday"), BAD_TIME, THREE),
    Row("ours seek", "beyond the end is refused, and nothing moves", seek(offset=4), NO_BOUNDS, THREE,
        ((ASK_OFFSETS, offsets(0, 0, 3)),)),
    Row("ours seek", "an unknown subscription", seek(offset=0), NO_SUBSCRIPTION, (A_TOPIC,)),
    Row("ours seek", "a subscription whose topic is gone has no places", seek(offset=0), NO_TOPIC_LEFT,
        (*BOTH, delete(TOPIC))),
]  # fmt: skip

OFFSETS, READ = TOPIC + ":offsets", TOPIC + ":read"
LISTED = modify_acl(SUBSCRIPTION, "con")


def get_accepting(path: str, accept: str = "", by: str = "admin") -> Request:
    return get(path, by, headers={"accept": accept} if accept else {})


def lines(*numbers: int, first: int, following: int, end: int) -> Answer:
    """A range whose lines hold these messages; `Lines` compares without publish times."""
    headers = {"ams_first_offset": str(first), "ams_next_offset": str(following), "ams_end_offset": str(end)}
    return Answer(Lines(numbers), 200, headers)


def number_error(name: str, least: int = 0) -> Answer:
    return error("IA", f"Invalid {name}(needs a whole number of {least} or more)")


TIME, OLD = TOPIC + ":timeToOffset?time=", "2020-01-01T00:00:00.000Z"
READING = [
    Row("ours offsets", "a topic tells its bounds", get(OFFSETS), Answer({"min": 0, "max": 3}), THREE),
    Row("ours offsets", "the oldest is what retention left", get(OFFSETS), Answer({"min": 3, "max": 4}),
        (*THREE, Wait(7 * DAY), publish("Mw=="), Wait(2))),
    Row("ours offsets", "an unknown topic", get(OFFSETS), NO_TOPIC),
    Row("ours offsets", "a consumer names a subscription that lists it", get(OFFSETS + "?subscription=S", "con"),
        Answer({"min": 0, "max": 3}), (*THREE, CON, LISTED), ((get(OFFSETS, "con"), FORBIDDEN),)),
    Row("ours timeToOffset", "the first message of a time", get(TIME + OLD), Answer({"offset": 0}), THREE),
    Row("ours timeToOffset", "the end when there is none yet", get(TIME + "2999-01-01T00:00:00Z"),
        Answer({"offset": 3}), THREE),
    Row("ours timeToOffset", "never before what is kept", get(TIME + OLD), Answer({"offset": 3}),
        (*THREE, Wait(7 * DAY), publish("Mw=="), Wait(2))),
    Row("ours timeToOffset", "a time that is none", get(TIME + "yesterday"), BAD_TIME, (A_TOPIC,)),
    Row("ours timeToOffset", "the topic comes before the time", get(TIME + "yesterday"), NO_TOPIC),
    Row("ours timeToOffset", "a consumer names a subscription that lists it", get(f"{TIME}{OLD}&subscription=S", "con"),
        Answer({"offset": 0}), (*THREE, CON, LISTED), ((get(TIME + OLD, "con"), FORBIDDEN),)),
    Row("ours read", "everything that is kept, in order", get(READ),
        lines(0, 1, 2, first=0, following=3, end=3), THREE),
    Row("ours read", "`to` is the first that is not read", get(READ + "?from=1&to=2"),
        lines(1, first=1, following=2, end=3), THREE),
    Row("ours read", "`max` cuts", get(READ + "?max=2"), lines(0, 1, first=0, following=2, end=3), THREE),
    Row("ours read", "`max` is cut by the setting silently", get(READ + "?max=9"),
        lines(0, 1, first=0, following=2, end=3), THREE, (), "small"),
    Row("ours read", "beyond the end is none", get(READ + "?from=4"), NO_BOUNDS, THREE),
    Row("ours read", "below the oldest kept reads from that one", get(READ + "?from=1"),
        lines(3, first=3, following=4, end=4), (*THREE, Wait(7 * DAY), publish("Mw=="), Wait(2))),
    *(Row("ours read", f"from={value} is no offset", get(f"{READ}?from={value}"), number_error("from"), THREE)
      for value in ("-1", "%2B1", "1.0", "x", "9" * 19)),
    Row("ours read", "a bad `to`", get(READ + "?to=x"), number_error("to"), THREE),
    *(Row("ours read", f"max={value} is not 1 or more", get(f"{READ}?max={value}"), number_error("max", 1), THREE)
      for value in ("-1", "0", "x")),
    Row("ours read", "no cursor moves", get(READ), lines(0, 1, 2, first=0, following=3, end=3), THREE,
        ((ASK_OFFSETS, offsets(0, 0, 3)), (ack(0), error("IA", "no ack pending")))),
    Row("ours read", "an unknown topic", get(READ), NO_TOPIC),
    Row("ours read", "a consumer names a subscription that lists it", get(READ + "?subscription=S", "con"),
        lines(0, 1, 2, first=0, following=3, end=3), (*THREE, CON, LISTED)),
    Row("ours read", "a subscription that does not list the consumer is no help", get(READ + "?subscription=S", "con"),
        FORBIDDEN, (*THREE, CON)),
    Row("ours read", "nor is one that is not there", get(READ + "?subscription=none", "con"), FORBIDDEN,
        (*THREE, CON, LISTED)),
    Row("ours read", "nor one of another topic", get(TOPIC + "2:read?subscription=S", "con"), FORBIDDEN,
        (*THREE, put(TOPIC + "2"), CON, LISTED)),
    Row("ours read", "without access lists any subscription of the topic will do", get(READ + "?subscription=S", "con"),
        lines(0, 1, 2, first=0, following=3, end=3), (*THREE, CON), (), "without access lists"),
]  # fmt: skip

BAD_TIME_TO_KEEP = error("IA", "Invalid retentionSeconds(needs value between 0 and 31536000) Arguments")
BAD_BODY = error("IA", "Invalid Retention Arguments")
NEW_ID = publish("MA==")


def set_retention(seconds: object, of: str = TOPIC, by: str = "admin") -> Request:
    return post(f"{of}:modifyRetention", {"retentionSeconds": seconds}, by)


def topic_kept(seconds: int | None) -> Answer:
    return Answer(Has(name="/projects/$P/topics/T", created_on=DATE, retentionSeconds=seconds))


def project_kept(seconds: int | None) -> Answer:
    return Answer(Has(name="$P", created_on=DATE, retentionSeconds=seconds))


def bounds(oldest: int, end: int) -> Answer:
    return Answer({"min": oldest, "max": end})


KEEPING = [
    Row("ours retention", "a topic's own time is shown", set_retention(60), topic_kept(60), (A_TOPIC,),
        ((get(TOPIC), topic_kept(60)),)),
    Row("ours retention", "messages older than it go", get(OFFSETS), bounds(3, 4),
        (*THREE, set_retention(60), Wait(60), NEW_ID, Wait(2))),
    Row("ours retention", "a longer time keeps what comes from then on", get(OFFSETS), bounds(0, 1),
        (A_TOPIC, set_retention(30 * DAY), NEW_ID, Wait(8 * DAY))),
    *(Row("ours retention", f"{seconds} seconds are no time", set_retention(seconds), BAD_TIME_TO_KEEP, (A_TOPIC,),
          ((get(TOPIC), topic_kept(None)),)) for seconds in (-1, 365 * DAY + 1, 10**18)),
    *(Row("ours retention", f"{value!r} is no number of seconds", set_retention(value), BAD_BODY, (A_TOPIC,))
      for value in ("60", 1.5, True, [60])),
    Row("ours retention", "an unknown topic", set_retention(60), NO_TOPIC),
    Row("ours retention", "a project's time is shown", set_retention(60, PROJECT), project_kept(60), (),
        ((get(PROJECT), project_kept(60)), (set_retention(0, PROJECT), project_kept(None)))),
    Row("ours retention", "a project's time holds for its topics", get(OFFSETS), bounds(3, 4),
        (*THREE, set_retention(60, PROJECT), Wait(60), NEW_ID, Wait(2))),
    Row("ours retention", "a topic's own time wins", get(OFFSETS), bounds(0, 4),
        (*THREE, set_retention(DAY), set_retention(60, PROJECT), Wait(60), NEW_ID, Wait(2))),
]  # fmt: skip

DOCTOR = SUBSCRIPTION + ":doctor"


def diagnosis(*findings: str, wrong: bool = False, **standing: object) -> Answer:
    """A diagnosis with exactly these findings, all bad or absent, and at least these facts."""
    found = [{"wrong": wrong, "text": each} for each in findings]
    return Answer(
        Has(
            subscription="/projects/$P/subscriptions/S", topic="/projects/$P/topics/T", ackDeadlineSeconds=10,
            push=False, healthy=not wrong, findings=found, standing=Has(**standing) if standing else None,
        )
    )  # fmt: skip


LOOKING = [
    Row("ours doctor", "nothing was ever published", get(DOCTOR), diagnosis("Nothing was ever published to its topic.",
        backlog=0, max=0, lastPublishSecondsAgo=None), (*BOTH, CON, LISTED)),
    Row("ours doctor", "a backlog nobody pulls", get(DOCTOR),
        diagnosis("3 messages wait, and nobody has pulled since the service started.", wrong=True, min=0, max=3,
        current=0, backlog=3, handedOut=0, lost=0, retentionSeconds=7.0 * DAY, lastPullSecondsAgo=None,
        lastPublishSecondsAgo=5.0, oldestWaitingSeconds=5.0), (*THREE, CON, LISTED, Wait(5))),
    Row("ours doctor", "a consumer that went away", get(DOCTOR),
        diagnosis("1 message waits, and the last pull was 1.5m ago.", wrong=True, backlog=1, handedOut=0,
        lastPullSecondsAgo=90.0, lastAcknowledgementSecondsAgo=90.0), (*THREE, CON, LISTED, pull(2), ack(1), Wait(90))),
    Row("ours doctor", "a consumer at work", get(DOCTOR),
        diagnosis("2 messages handed out 4s ago, not acknowledged yet; the deadline is 10s.",
                  handedOut=2, backlog=3, handedOutSecondsAgo=4.0), (*THREE, CON, LISTED, pull(2), Wait(4))),
    Row("ours doctor", "a consumer that is too slow", get(DOCTOR),
        diagnosis("3 messages handed out 11s ago, not acknowledged within the deadline of 10s: the next pull"
                  " gets them again. Acknowledge sooner, pull fewer, or make the deadline longer.",
                  wrong=True, handedOut=3),
        (*THREE, CON, LISTED, pull(3), Wait(11))),
    Row("ours doctor", "everything is acknowledged", get(DOCTOR),
        diagnosis("Nothing is waiting; the last message was published 2h ago.", backlog=0, handedOut=0),
        (*THREE, CON, LISTED, pull(3), ack(2), Wait(2 * HOUR))),
    Row("ours doctor", "everything is gone", get(DOCTOR),
        diagnosis("Nothing is waiting, and all messages of its topic are gone by retention.", backlog=0, min=3, max=3),
        (*THREE, CON, LISTED, pull(3), ack(2), Wait(7 * DAY + 2))),
    Row("ours doctor", "what retention took", get(DOCTOR),
        Answer(Has(healthy=False, standing=Has(lost=3, current=3, backlog=1), findings=ListWith(
            {"wrong": True, "text": "Retention took 3 messages before they were acknowledged."}))),
        (*THREE, CON, LISTED, Wait(7 * DAY), NEW_ID, Wait(2))),
    Row("ours doctor", "what retention will take", get(DOCTOR), Answer(Has(standing=Has(retentionSeconds=60.0),
        findings=ListWith({"wrong": True, "text": "The oldest waiting message will be gone by retention in 12s."}))),
        (*THREE, CON, LISTED, set_retention(60), Wait(48), Wait(0.001))),
    Row("ours doctor", "an empty access list is told", get(DOCTOR),
        diagnosis("Nothing was ever published to its topic.",
                  "No consumer is on its access list: only administrators may pull.", backlog=0), BOTH),
    Row("ours doctor", "a topic that is gone", get(DOCTOR),
        diagnosis("Its topic T is gone: make it again, or delete the subscription.", wrong=True),
        (*BOTH, CON, LISTED, delete(TOPIC))),
    Row("ours doctor", "a push endpoint that is not verified", get(DOCTOR),
        Answer(Has(push=True, pushVerified=False, healthy=False, findings=ListWith(
            {"wrong": True, "text": "Its push endpoint is not verified: nothing is delivered before it is."}))),
        (A_TOPIC, put(SUBSCRIPTION, {"topic": "projects/$P/topics/T", "pushConfig": {
            "type": "http_endpoint", "pushEndpoint": "https://endpoint.example/in"}})), (), "push"),
    Row("ours doctor, 17.1 M7", "publishers that do not send base64", get(DOCTOR),
        Answer(Has(healthy=False, findings=ListWith({"wrong": False, "text": "2 messages published to its topic since"
            " the service started are not base64: consumers get that text as it is, and data that happens to be base64"
            " is decoded."}))),
        (*THREE, publish("msg 1", "aGk=", "hello"), publish("aG\nk="))),
    Row("ours doctor", "an unknown subscription", get(DOCTOR), NO_SUBSCRIPTION),
    Row("ours doctor", "a consumer that is not may not", get(DOCTOR, "con"), FORBIDDEN, (*BOTH, CON)),
]  # fmt: skip

LOOKING_AT_ALL = [
    Row("ours doctor, 17.1 M7", "topics with data that is not base64 are named", get("/doctor"),
        Answer(Has(healthy=True, findings=ListWith({"wrong": False, "text": "Publishers of projects/$P/topics/T send"
            " data that is not base64, 1 times since the service started: consumers get that text as it is."}))),
        (*BOTH, publish("msg 1"))),
]  # fmt: skip

# Quotas of a project: shown, changed, and 429 beyond them

BAD_QUOTAS = error("IA", "Invalid Quota Arguments")
ALL = "storedBytes, publishBytesPerSecond, requestsPerSecond, topics, subscriptions, schemas, schemaBytes, members"
NO_QUOTA = "There is no quota '{}': there are " + ALL + ", connections, waitingPulls, streams"
BAD_LIMIT = error("IA", "The quota topics is a whole number from 0 to 9007199254740992")
SHOW = get(PROJECT + ":quotas")


def limit(_by: str = "admin", **quotas: object) -> Request:
    return post(PROJECT + ":modifyQuotas", {"quotas": quotas}, _by)


def quota_error(quota: str, number: int) -> Answer:
    return custom_error(429, "RESOURCE_EXHAUSTED", f"Quota {quota} of the project is exceeded: its limit is {number}")


def quota_list(*quotas: tuple[str, int, int, int | None]) -> Answer:
    members = ("name", "limit", "default", "used")  # not `share`, which goes by the machine
    return Answer({"quotas": [Has(**dict(zip(members, each, strict=True))) for each in quotas]})


RATES = (("publishBytesPerSecond", 0, 0, None), ("requestsPerSecond", 0, 0, None))
LASTING = (("connections", 0, 0, 1), ("waitingPulls", 0, 0, 0), ("streams", 0, 0, 0))
ANOTHER = put(TOPIC + "2")
SUBSCRIBED = put(SUBSCRIPTION + "2", {"topic": "projects/$P/topics/T"})
QUOTAS = [
    Row("ours quotas", "the defaults, and what is used", SHOW, quota_list(("storedBytes", 0, 0, 0), *RATES, ("topics",
        10_000, 10_000, 1), ("subscriptions", 10_000, 10_000, 1), ("schemas", 1_000, 1_000, 1), ("schemaBytes", 2**26,
        2**26, 539), ("members", 10_000, 10_000, 1), *LASTING), (*BOTH, A_SCHEMA, CON)),
    Row("ours quotas", "a value of the project's own holds instead", limit(topics=1, schemas=0, members=7),
        quota_list(("storedBytes", 0, 0, 0), *RATES, ("topics", 1, 10_000, 0), ("subscriptions", 10_000, 10_000, 0),
        ("schemas", 0, 1_000, 0), ("schemaBytes", 2**26, 2**26, 0), ("members", 7, 10_000, 0), *LASTING), (),
        ((get(PROJECT), Answer(Has(quotas={"topics": 1, "schemas": 0, "members": 7}))), (limit(topics=None,
        schemas=None, members=None), Answer(Has())), (get(PROJECT), Answer(Has(quotas=None))))),
    Row("ours quotas", "no more topics", ANOTHER, quota_error("topics", 1), (A_TOPIC, limit(topics=1)),
        ((get(TOPIC + "2"), NO_TOPIC), (A_TOPIC, error("AE", "Topic already exists")), (delete(TOPIC), Answer(b"")),
         (ANOTHER, Answer(Has())))),
    Row("ours quotas", "no more subscriptions", SUBSCRIBED, quota_error("subscriptions", 1), (*BOTH,
        limit(subscriptions=1)), ((limit(subscriptions=2), Answer(Has())), (SUBSCRIBED, Answer(Has())))),
    Row("ours quotas", "no more schemas", A_SCHEMA._replace(path=SCHEMA + "2"), quota_error("schemas", 1),
        (A_SCHEMA, limit(schemas=1))),
    Row("ours quotas", "no larger schemas", A_SCHEMA, quota_error("schemaBytes", 538), (limit(schemaBytes=538),),
        ((limit(schemaBytes=539), Answer(Has())), (A_SCHEMA, Answer(Has(name=NAME))))),
    Row("ours quotas", "a schema without room is not checked first",
        A_SCHEMA._replace(body={"type": "json", "schema": {"type": "nothing"}}), quota_error("schemaBytes", 5),
        (limit(schemaBytes=5),)),
    Row("ours quotas", "nor is one too many",
        A_SCHEMA._replace(path=SCHEMA + "2", body={"type": "json", "schema": {"type": "nothing"}}),
        quota_error("schemas", 1), (A_SCHEMA, limit(schemas=1))),
    Row("ours quotas", "a taken name is told before", A_SCHEMA, error("AE", "Schema already exists"),
        (A_SCHEMA, limit(schemas=1, schemaBytes=5)),
        ((A_SCHEMA._replace(body={"type": "xml", "schema": {}}), error("AE", "Schema already exists")),)),
    Row("ours quotas", "and so is a wrong type", A_SCHEMA._replace(body={"type": "xml", "schema": {}}),
        error("IA", "Schema type can only be 'json', 'avro' or 'protobuf'"), (limit(schemaBytes=1),)),
    Row("ours quotas", "nor more revisions, while a new name is no more bytes",
        put(SCHEMA, {"schema": {"type": "object"}}), quota_error("schemaBytes", 811),
        (A_SCHEMA, limit(schemaBytes=811)),
        ((put(SCHEMA, {"name": NAME + "2"}), Answer(Has())),)),
    Row("ours quotas", "each revision counts for 256 bytes more than it says", put(SCHEMA, {"schema": {}}),
        Answer(Has()), (A_SCHEMA, limit(schemaBytes=539 + 258)),
        ((put(SCHEMA, {"schema": {"type": "object"}}), quota_error("schemaBytes", 539 + 258)),)),
    Row("ours quotas", "no more members", member("pub", "publisher"), quota_error("members", 1), (CON,
        limit(members=1)), ((get("/users/$P-pub"), error("NF", "User doesn't exist")),)),
    Row("ours quotas", "nor by adding one", post(MEMBERS + "/$P-u:add", {}), quota_error("members", 1),
        (CON, user("u"), limit(members=1))),
    Row("ours quotas", "no more bytes than its own limit", publish(), quota_error("storedBytes", 60),
        (*BOTH, limit(storedBytes=60)), ((pull(), batch_with_ids()), (limit(storedBytes=None), OK), (publish(), OK))),
    Row("ours quotas", "no more bytes a second", publish(), quota_error("publishBytesPerSecond", 10),
        (*BOTH, limit(publishBytesPerSecond=10), publish()), ((pull(), batch_with_ids(0)),
         (limit(publishBytesPerSecond=0), OK), (publish(), OK))),
    Row("ours quotas", "one that does not exist", limit(pages=1), error("IA", NO_QUOTA.format("pages")), (),
        ((get(PROJECT), Answer(Has(quotas=None))),)),
    *(Row("ours quotas", f"{number} is no limit", limit(topics=number), BAD_LIMIT) for number in (-1, 2**53 + 1)),
    *(Row("ours quotas", f"{body!r} is no body", post(PROJECT + ":modifyQuotas", body), BAD_QUOTAS)
      for body in (NO_BODY, {}, {"quotas": {}}, {"quotas": {"topics": "5"}}, {"quotas": {"topics": 1.5}}, [])),
    Row("ours quotas", "a project_admin sees them and changes none", limit("adm", topics=5), FORBIDDEN,
        (member("adm", "project_admin"),), ((get(PROJECT + ":quotas", "adm"), Answer(Has())),)),
]  # fmt: skip

# Named tokens: docs/reference/tokens.md

U = user("u")
MINE, ONE, NONE = "/users/$P-u/tokens", "/users/$P-u/tokens/ci", "/users/$P-none/tokens"
NO_TOKEN = error("NF", "Token doesn't exist")
NOT_GOOD = error("FO", "The token is not good for this")
RIGHT = {"action": "topics:publish", "resource": "projects/$P/topics/T"}
MESSAGES = {"messages": [{"data": "aGk="}]}
OF_ADM = "/users/$P-adm/tokens/ci"


MADE = [
    Row("tokens", "a user makes a token of its own", post(ONE, by="u"),
        Answer({"name": "ci", "user": "$P-u", "created_on": DATE, "created_by": "$P-u", "token": TOKEN}), (U,),
        ((get(ONE), Answer(Has(name="ci", token=None))), (get(MINE, by="u"), Answer({"tokens": [Has(name="ci")]})))),
    Row("tokens", "an administrator makes one with a time and rights", post(ONE, {"expires_on": "2999-12-31",
        "rights": [RIGHT]}), Answer(Has(expires_on="2999-12-31T00:00:00Z", rights=[RIGHT], created_by="admin")), (U,)),
    Row("tokens", "a token with a public key has no text", post(ONE, {"public_key": public_pem()}),
        Answer({"name": "ci", "user": "$P-u", "created_on": DATE, "created_by": "admin", "key_id": public_key().id,
            "client_email": f"ci@{public_key().id}.ams.invalid"}), (U,),
        ((get(ONE), Answer(Has(key_id=public_key().id, token=None))), (delete(ONE), EMPTY))),
    Row("tokens", "a revoked token is dead", delete(ONE, by="u"), EMPTY, (U, post(ONE, remember="ci")),
        ((get("/users/profile", by="ci"), UNAUTHORIZED), (get(ONE), NO_TOKEN))),
    Row("tokens", "rights take away", post(TOPIC + ":publish", MESSAGES, by="ci"), OK, (put(TOPIC), ADM, post(OF_ADM,
        {"rights": [RIGHT]}, remember="ci")), ((get(TOPICS, by="ci"), NOT_GOOD), (get(OF_ADM, by="ci"), NOT_GOOD))),
    Row("tokens", "an expired token is refused", get(TOPICS, by="ci"), error("UN", "The token has expired"),
        (ADM, post(OF_ADM, {"expires_in": 60}, remember="ci"), Wait(61))),
]  # fmt: skip

UNREADABLE = [
    ("a body is one of the kind", {"right": []}, "Invalid Token Arguments"),
    ("a body is an object", [], "Invalid Token Arguments"),
    ("a right is an object", {"rights": ["topics:publish"]}, "Invalid Token Arguments"),
    ("a span is a number", {"expires_in": "60"}, "Invalid Token Arguments"),
    ("a time is a time", {"expires_on": "soon"}, "Invalid expires_on"),
    ("a day is in the calendar", {"expires_on": "9999-99-99"}, "Invalid expires_on"),
    ("a key is one", {"public_key": "PEM"},
     "Invalid public_key: give an RSA key of 2048 to 4096 bits and exponent 65537, in PEM"),
]  # fmt: skip
"""Bodies that are refused before the user is looked up."""
REFUSED = [
    ("one time is enough", {"expires_on": "2999-12-31", "expires_in": 1}, "Give expires_on or expires_in, not both"),
    ("what is dead is not made", {"expires_in": 0}, "The token would have expired already"),
    ("a time can be written", {"expires_in": 10**15},
     "The token would expire after the year 9999: leave the time out for none"),
    ("a token is good for something", {"rights": []},
     "A token is good for something: give it a right, or leave rights out for all of the user's"),
    ("rights are not too many", {"rights": [RIGHT | {"action": f"a:{n}"} for n in range(101)]},
     "A token has at most 100 rights"),
    ("an action is one", {"rights": [RIGHT | {"action": "topics:dance"}]}, "invalid action: topics:dance"),
    ("a resource is one", {"rights": [RIGHT | {"resource": "topics/T"}]}, "invalid resource: topics/T"),
    ("a right has a resource", {"rights": [{"action": "topics:publish"}]}, "invalid resource: "),
]  # fmt: skip
"""Bodies that make no token."""
ERRORS = [
    Row("tokens", "tokens of nobody are not listed", get(NONE), NO_USER),
    Row("tokens", "nor shown", get(NONE + "/ci"), NO_USER, (),
        ((post(NONE + "/ci"), NO_USER), (delete(NONE + "/ci"), NO_USER))),
    Row("tokens", "a token that is not there is not shown", get(ONE), NO_TOKEN, (U,), ((delete(ONE), NO_TOKEN),)),
    Row("tokens", "a name is a name", post(MINE + "/a.b"), error("IA", "Invalid token name")),
    *[Row("tokens", says, post(ONE, body), error("IA", text)) for says, body, text in UNREADABLE],
    *[Row("tokens", says, post(ONE, body), error("IA", text), (U,)) for says, body, text in REFUSED],
    Row("tokens", "no token outlives the one it is made with", post(MINE + "/more", by="ci"),
        error("IA", "The token would outlive the one it is made with: it must expire no later"),
        (U, post(ONE, {"expires_in": 60}, remember="ci"))),
    Row("tokens", "a name is taken once", post(ONE), error("AE", "Token already exists"), (U, post(ONE))),
    Row("tokens", "a key is of one token", post(ONE, {"public_key": public_pem("two")}),
        error("AE", "The key is another token's already"),
        (U, post(MINE + "/other", {"public_key": public_pem("two")})), ((delete(MINE + "/other"), EMPTY),)),
]  # fmt: skip

ROWS = join_rows(KEYS, SEEKING, READING, KEEPING, LOOKING, LOOKING_AT_ALL, QUOTAS, MADE, ERRORS)
