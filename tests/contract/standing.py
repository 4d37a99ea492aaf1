"""Progress of parallel subscriptions: offsets, seeking, snapshots, and deletion (contract 19.3, 19.5 and 19.6)."""

from typing import Any

from tests.contract.delivery import TOPIC_GONE
from tests.contract.parallel import *
from tests.contract.resources import DEADLINE
from tests.contract.rows import *

SNAPSHOTS = PROJECT + "/snapshots"
SNAPSHOT = SNAPSHOTS + "/N"
DETACH = SUBSCRIPTION + ":detach"
NO_SNAPSHOT = error("NF", "Snapshot doesn't exist")
DETACHED = error("CO", "Subscription is detached")
TOO_OLD = error("CO", "Snapshot would expire within an hour: the oldest message that is not acknowledged is too old")
SHOWN = {"name": "/projects/$P/snapshots/N", "topic": "/projects/$P/topics/T", "createdOn": DATE, "expireTime": DATE}
A_SNAPSHOT = put(SNAPSHOT, {"subscription": "projects/$P/subscriptions/S"})
ONE_DONE = (*PULLED, ack_ids("$ack_1"))
KEPT_LONG = post(TOPIC + ":modifyRetention", {"retentionSeconds": 30 * DAY})


def position(**members: Any) -> Answer:
    return Answer(Has(**members))


def seek(**where: Any) -> Request:
    return post(SUBSCRIPTION + ":seek", where)


def modify_offset(offset: int) -> Request:
    return post(SUBSCRIPTION + ":modifyOffset", {"offset": offset})


def snapshot(of: str, name: str = "N", by: str = "admin") -> Request:
    return put(f"{SNAPSHOTS}/{name}", {"subscription": of}, by)


STANDING = [
    Row("11.3, 19.5", "what is acknowledged above where it stands is counted, and what is out", ASK_OFFSETS,
        Answer({"min": 0, "max": 3, "current": 0, "acknowledged": 1, "leased": 2, "waiting": 0, "blocked": 0}),
        ONE_DONE),
    Row("11.3, 19.5", "what is given back waits", ASK_OFFSETS, position(current=0, leased=1, waiting=2),
        (*PULLED, nack_ids("$ack_0"), nack_ids("$ack_1", delaySeconds=5))),
    Row("11.3, 19.5", "what a key blocks is counted", ASK_OFFSETS, position(waiting=1, leased=0, blocked=2),
        (A_TOPIC, make_parallel(enableMessageOrdering=True), post(TOPIC + ":publish", {"messages": [{"data": "aGk=",
        "orderingKey": "k"}] * 3}), pull(), nack_ids("$ack_0", delaySeconds=5))),
    Row("11.3, 19.5", "what nobody works on has nothing out that could be counted", ASK_OFFSETS,
        Answer({"min": 0, "max": 3, "current": 0, "acknowledged": 0}), PLAIN),
    Row("11.3, 19.5", "it stands before the first that is not done", ASK_OFFSETS, position(current=2, acknowledged=0),
        (*ONE_DONE, ack_ids("$ack_0"))),
    Row("11.3", "an ordered one shows nothing of it", ASK_OFFSETS, Answer({"min": 0, "max": 3, "current": 0}),
        (*BOTH, THREE, pull())),
    Row("11.5, 19.5", "moved back, what was done above comes again, and old ids come late", modify_offset(0), EMPTY,
        ONE_DONE, ((ASK_OFFSETS, position(current=0, acknowledged=0)), (pull(), batch(0, 1, 2)),
        (ack_ids("$ack_2_before"), timeout(2)), (ack_ids("$ack_0", "$ack_1", "$ack_2"), DONE), (ASK_OFFSETS,
        position(current=3)))),
    Row("11.5, 19.5", "moved forward, what is before is done", modify_offset(2), EMPTY, PULLED,
        ((pull(), batch(2)), (ack_ids("$ack_0"), timeout(0)))),
    Row("11.5, 19.5", "moved to the end, nothing is left", modify_offset(3), EMPTY, PULLED, ((pull(), NOTHING),)),
    Row("11.5, 19.5", "an offset out of bounds moves nothing", modify_offset(4), error("IA", "Offset out of bounds"),
        ONE_DONE, ((ASK_OFFSETS, position(current=0, acknowledged=1, leased=2)), (ack_ids("$ack_0"), DONE))),
    Row("11.4, 19.5", "a time leads to the same offset as for an ordered one",
        get(SUBSCRIPTION + ":timeToOffset?time=2000-01-01T00:00:00Z"), Answer({"offset": 0}), ONE_DONE),
    Row("19.5", "a time is sought", seek(time="2000-01-01T00:00:00Z"), Answer({"min": 0, "max": 3, "current": 0,
        "acknowledged": 0}), (*ONE_DONE, ack_ids("$ack_0", "$ack_2")), ((pull(), batch(0, 1, 2)),)),
    Row("19.5", "a time to come is the end", seek(time="2999-01-01T00:00:00Z"), position(current=3), ONE_DONE,
        ((pull(), NOTHING),)),
    Row("19.5", "failures are forgotten", modify_offset(0), EMPTY, (A_TOPIC,
        make_parallel(retryPolicy={"minimumBackoff": "60s"}), publish(), pull(), nack_ids("$ack_0")), ((pull(),
        batch(0)),)),
    Row("19.5", "a filter is looked at again", modify_offset(0), EMPTY, (A_TOPIC, make_parallel(filter="attributes:a"),
        post(TOPIC + ":publish", {"messages": [{"attributes": {each: "1"}} for each in ("b", "a")]}), pull(),
        ack_ids("$ack_1")), ((pull(), batch(1)),)),
    Row("19.6", "its own retention passes older messages over, and counts them as lost", ASK_OFFSETS,
        Answer({"min": 3, "max": 4, "current": 3, "acknowledged": 0}),
        (A_TOPIC, make_parallel(messageRetentionDuration="600s"), THREE, Wait(601), publish()),
        ((pull(), batch(3)), (get(SUBSCRIPTION + ":doctor"), position(standing=Has(lost=3, retentionSeconds=600.0))))),
    Row("19.6", "a pull gets nothing that is older than its own retention", pull(), batch(3),
        (A_TOPIC, make_parallel(messageRetentionDuration="600s"), THREE, Wait(601), publish()),
        ((ASK_OFFSETS, position(current=3, min=3)), (modify_offset(2), error("IA", "Offset out of bounds")))),
    Row("19.6", "its own retention is not longer than the topic's", pull(), batch(3),
        (A_TOPIC, make_parallel(messageRetentionDuration="2678400s"), THREE,
         post(TOPIC + ":modifyRetention", {"retentionSeconds": 1}), Wait(2), publish())),
]  # fmt: skip

SNAPSHOT_ROWS = [
    Row("19.3", "a snapshot is made of where a subscription stands", A_SNAPSHOT, Answer(SHOWN), ONE_DONE,
        ((get(SNAPSHOT), Answer({**SHOWN, "lost": 0})),
         (get(SNAPSHOTS), Answer({"snapshots": [SHOWN], "nextPageToken": "", "totalSize": 1})))),
    Row("19.3", "sought, what was acknowledged then is, and nothing else", seek(snapshot="projects/$P/snapshots/N"),
        Answer({"min": 0, "max": 4, "current": 0, "acknowledged": 1, "lost": 0}), (*ONE_DONE, A_SNAPSHOT,
        ack_ids("$ack_0", "$ack_2"), publish()), ((pull(), batch(0, 2, 3)), (ack_ids("$ack_2_before"), timeout(2)))),
    Row("19.3", "sought forwards too", seek(snapshot="N"), position(current=3, acknowledged=0, lost=0),
        (*PULLED, ack_ids("$ack_0", "$ack_1", "$ack_2"), A_SNAPSHOT, modify_offset(0)), ((pull(), NOTHING),)),
    Row("19.3", "by a name alone, of the subscription and of the snapshot", snapshot("S"), Answer(SHOWN), PLAIN,
        ((seek(snapshot="N"), position(current=0)),)),
    Row("19.3", "of another subscription to the same topic",
        post(SUBSCRIPTIONS + "/Q:seek", {"snapshot": "N"}), position(current=0, acknowledged=1),
        (*ONE_DONE, A_SNAPSHOT, put(SUBSCRIPTIONS + "/Q", {"topic": "projects/$P/topics/T", "type": "parallel"})),
        ((post(SUBSCRIPTIONS + "/Q:pull", {"maxMessages": 5}), batch(0, 2)),)),
    Row("19.3", "of another topic it cannot be sought", post(SUBSCRIPTIONS + "/Q:seek", {"snapshot": "N"}), error("CO",
        "Snapshot is of another topic than the subscription"), (*ONE_DONE, A_SNAPSHOT, put(TOPICS + "/U"),
        put(SUBSCRIPTIONS + "/Q", {"topic": "projects/$P/topics/U", "type": "parallel"}))),
    Row("19.3", "what retention has taken is said, and passed over", seek(snapshot="N"), Answer({"min": 3, "max": 4,
        "current": 3, "acknowledged": 0, "lost": 2}), (*ONE_DONE, A_SNAPSHOT, ack_ids("$ack_0", "$ack_2"),
        post(TOPIC + ":modifyRetention", {"retentionSeconds": 60}), Wait(61), publish()), ((get(SNAPSHOT),
        Answer({**SHOWN, "lost": 2})), (pull(), batch(3)))),
    Row("19.3", "after seven days it is gone, and its name is free", get(SNAPSHOT), Answer({**SHOWN, "lost": 0}),
        (A_TOPIC, make_parallel(), A_SNAPSHOT, Wait(7 * DAY - 1)), ((Wait(1), None), (get(SNAPSHOT), NO_SNAPSHOT),
        (delete(SNAPSHOT), NO_SNAPSHOT), (get(SNAPSHOTS), Answer({"snapshots": [], "nextPageToken": "",
        "totalSize": 0})), (seek(snapshot="N"), NO_SNAPSHOT), (A_SNAPSHOT, Answer(SHOWN)))),
    Row("19.3", "sooner by the age of the oldest message that is not acknowledged", get(SNAPSHOT), NO_SNAPSHOT,
        (A_TOPIC, KEPT_LONG, make_parallel(), THREE, Wait(3 * DAY), A_SNAPSHOT, Wait(4 * DAY))),
    Row("19.3", "none is made that would be gone within an hour", A_SNAPSHOT, TOO_OLD,
        (A_TOPIC, KEPT_LONG, make_parallel(), THREE, Wait(7 * DAY - 3599)), ((get(SNAPSHOT), NO_SNAPSHOT),)),
    Row("19.3", "one that has an hour is made", A_SNAPSHOT, Answer(SHOWN),
        (A_TOPIC, KEPT_LONG, make_parallel(), THREE, Wait(7 * DAY - 3600))),
    Row("19.3", "the name of another", A_SNAPSHOT, error("AE", "Snapshot already exists"), (*PLAIN, A_SNAPSHOT)),
    Row("19.3", "deleted, its name is free", delete(SNAPSHOT), EMPTY, (*PLAIN, A_SNAPSHOT),
        ((get(SNAPSHOT), NO_SNAPSHOT), (delete(SNAPSHOT), NO_SNAPSHOT), (A_SNAPSHOT, Answer(SHOWN)))),
    Row("19.3", "a subscription that goes leaves its snapshots", get(SNAPSHOT), Answer({**SHOWN, "lost": 0}),
        (*PLAIN, A_SNAPSHOT, delete(SUBSCRIPTION))),
    Row("19.3", "a topic that goes takes its snapshots along", get(SNAPSHOT), NO_SNAPSHOT,
        (*PLAIN, A_SNAPSHOT, delete(TOPIC), A_TOPIC), ((seek(snapshot="N"), NO_SNAPSHOT),)),
    Row("19.3", "in pages, newest first", get(SNAPSHOTS + "?pageSize=1"),
        Answer(Has(snapshots=[Has(name="/projects/$P/snapshots/N2")], totalSize=2)), (*PLAIN, A_SNAPSHOT, snapshot("S",
        "N2")), ((get(SNAPSHOTS + "?pageSize=1&pageToken=$next"),
        Answer(Has(snapshots=[Has(name="/projects/$P/snapshots/N")], nextPageToken=""))),)),
    Row("19.3", "a page size that is none", get(SNAPSHOTS + "?pageSize=x"), bad_argument("Invalid page size")),
    Row("19.3", "a page token that was never given", get(SNAPSHOTS + "?pageToken=x"),
        bad_argument("Invalid page token")),
    Row("19.3", "a name that is none", put(SNAPSHOTS + "/a.b", {"subscription": "S"}),
        bad_argument("Invalid snapshot name"), PLAIN),
    Row("19.3", "a body is needed", put(SNAPSHOT), bad_argument("Invalid Snapshot Arguments"), PLAIN),
    Row("19.3", "a subscription is text", put(SNAPSHOT, {"subscription": 1}),
        bad_argument("Invalid Snapshot Arguments")),
    *(Row("19.3", f"a subscription has a name, {each!r} is none", put(SNAPSHOT, {"subscription": each}),
          bad_argument("Invalid Subscription name"), PLAIN)
      for each in (None, "", "a@b", "projects/other/subscriptions/S", "projects/$P/topics/S")),
    Row("19.3", "a subscription that is not there", A_SNAPSHOT, NO_SUBSCRIPTION),
    Row("19.3", "none of an ordered subscription", A_SNAPSHOT, NOT_PARALLEL, BOTH),
    Row("19.3", "a subscription without its topic", A_SNAPSHOT, TOPIC_GONE, (*PLAIN, delete(TOPIC))),
    Row("19.3", "a consumer makes and removes none", snapshot("S", by="con"), FORBIDDEN, (*PLAIN, CON),
        ((A_SNAPSHOT, Answer(SHOWN)), (delete(SNAPSHOT, by="con"), FORBIDDEN),
         (get(SNAPSHOTS, by="con"), Answer(Has())), (get(SNAPSHOT, by="con"), Answer(Has())))),
    Row("19.3", "an ordered subscription seeks none", seek(snapshot="N"), NOT_PARALLEL, BOTH),
    Row("19.3", "an unknown snapshot moves nothing", seek(snapshot="N"), NO_SNAPSHOT, ONE_DONE,
        ((ack_ids("$ack_0"), DONE),)),
    Row("19.3", "without its topic none is sought, where the snapshot is of another", post(SUBSCRIPTIONS + "/Q:seek",
        {"snapshot": "N"}), TOPIC_GONE, (*PLAIN, A_SNAPSHOT, put(TOPICS + "/U"), put(SUBSCRIPTIONS + "/Q",
        {"topic": "projects/$P/topics/U", "type": "parallel"}), delete(TOPICS + "/U"))),
    Row("19.3", "an unknown subscription seeks none", seek(snapshot="N"), NO_SUBSCRIPTION, (A_TOPIC,)),
    Row("19.3", "a snapshot is text, before the subscription", seek(snapshot=1),
        bad_argument("Invalid Seek Arguments")),
    Row("19.3", "a snapshot of another project", seek(snapshot="projects/other/snapshots/N"),
        bad_argument("Invalid Snapshot name")),
    *(Row("19.3", f"a snapshot and a {name}, before the subscription", seek(**{"snapshot": "N", name: value}),
          bad_argument("Give one of time, offset and snapshot"))
      for name, value in (("offset", 0), ("time", "2024-01-01T00:00:00Z"))),
    Row("19.3", "who is not on the list of a subscription does not seek",
        post(SUBSCRIPTION + ":seek", {"snapshot": "N"}, "stranger"), FORBIDDEN, (*PLAIN, A_SNAPSHOT, STRANGER)),
]  # fmt: skip

WATCHING = [
    Row("ours doctor", "of a parallel one it says who has what, and what is under way", get(SUBSCRIPTION + ":doctor"),
        Answer(Has(healthy=True, findings=ListWith({"wrong": False, "text": "1 message on lease: admin has 1."}),
        standing=Has(current=0, backlog=2, handedOut=1, acknowledged=1, leased=1, waiting=1, blocked=0, failed=1))),
        (*ONE_DONE, nack_ids("$ack_0"))),
    Row("ours doctor", "it says which message holds the others up", get(SUBSCRIPTION + ":doctor"),
        Answer(Has(findings=ListWith({"wrong": False, "text":
            "Message 0 is the oldest that is not acknowledged, while 1 message after it is: it is on lease to admin."}
        ))), ONE_DONE),
    Row("ours doctor", "consumers learn nothing of each other", get(SUBSCRIPTION + ":doctor", by="con"),
        Answer(Has(findings=ListWith({"wrong": False, "text": "3 messages on lease, to 1 consumer."}))),
        (*PULLED, CON, modify_acl(SUBSCRIPTION, "con"))),
    Row("ours doctor", "a message that fails again and again", get(SUBSCRIPTION + ":doctor"),
        Answer(Has(healthy=False, findings=ListWith({"wrong": True, "text":
            "Message 0 failed 5 times, and comes again and again: a deadLetterPolicy would put it aside."}))),
        (*PLAIN, *[each for _ in range(5) for each in (pull(1), nack_ids("$ack_0"))])),
    Row("ours doctor", "a key that blocks others", get(SUBSCRIPTION + ":doctor"),
        Answer(Has(findings=ListWith({"wrong": False, "text": "Message 0 blocks 2 messages of its ordering key k."}))),
        (A_TOPIC, make_parallel(enableMessageOrdering=True), post(TOPIC + ":publish", {"messages": [{"data": "aGk=",
        "orderingKey": "k"}] * 3}), pull(), nack_ids("$ack_0", delaySeconds=5))),
    Row("ours doctor", "a dead letter topic that is gone", get(SUBSCRIPTION + ":doctor"),
        Answer(Has(healthy=False, findings=ListWith({"wrong": True, "text":
            "Its dead letter topic D is gone: what failed too often comes again and again."}))),
        (A_TOPIC, put(TOPICS + "/D"), make_parallel(deadLetterPolicy={"deadLetterTopic": "D"}), delete(TOPICS + "/D"))),
    Row("14.3, 19.5", "metrics of what is under way come after those of every subscription",
        get(SUBSCRIPTION + ":metrics"),
        Answer(Has(metrics=[*[Has(metric=f"subscription.{each}") for each in ("number_of_messages", "number_of_bytes",
        "consumption_rate", "number_of_lost_messages")], *[Has(metric=f"subscription.{name}", metric_type=kind,
        value_type="int64", timeseries=[Has(value=value)]) for name, kind, value in (("oldest_message_seconds", "gauge",
        7), ("number_of_leased_messages", "gauge", 1), ("number_of_waiting_messages", "gauge", 1),
        ("number_of_blocked_messages", "gauge", 0), ("number_of_failures", "counter", 1), ("number_of_dead_letters",
        "counter", 0))]])), (*ONE_DONE, nack_ids("$ack_0"), Wait(7))),
]  # fmt: skip

ENDING = [
    Row("19.6", "detached, nothing is delivered any more, for good", post(DETACH), EMPTY, PULLED, ((pull(), DETACHED),
        (ack_ids("$ack_0"), DETACHED), (nack_ids("$ack_0"), DETACHED), (post(DEADLINE, {"ackIds": ["$ack_0"],
        "ackDeadlineSeconds": 60}), DETACHED), (ASK_OFFSETS, DETACHED), (modify_offset(0), DETACHED), (seek(offset=0),
        DETACHED), (get(SUBSCRIPTION + ":timeToOffset?time=2020-01-01T00:00:00.000Z"), DETACHED), (A_SNAPSHOT,
        DETACHED), (get(SUBSCRIPTION), Answer(Has(type="parallel", detached=True))), (publish(), None), (pull(),
        DETACHED))),
    Row("19.6", "detached again", post(DETACH), EMPTY, (*PLAIN, post(DETACH))),
    Row("19.6", "detached, it can be deleted, and made anew", delete(SUBSCRIPTION), EMPTY, (*PLAIN, post(DETACH)),
        ((get(SUBSCRIPTION), NO_SUBSCRIPTION), (make_parallel(), Answer(Has())), (publish(), None), (pull(),
        batch(3)))),
    Row("19.6", "detached, its doctor says so", get(SUBSCRIPTION + ":doctor"),
        Answer(Has(healthy=True, findings=[{"wrong": False, "text": "It is detached: it gets nothing any more."}])),
        (*PLAIN, post(DETACH)), ((get(SUBSCRIPTION + ":metrics"), Answer(Has())),)),
    Row("19.6", "an ordered one is not detached", post(DETACH), NOT_PARALLEL, BOTH, ((pull(), Answer(Has())),)),
    Row("19.6", "an unknown one is not detached", post(DETACH), NO_SUBSCRIPTION),
    Row("19.6", "a consumer detaches nothing", post(DETACH, by="con"), FORBIDDEN, (*PLAIN, CON),
        ((pull(), batch(0, 1, 2)),)),
    Row("19.6", "who is not on its list learns no more of a detached one", pull(by="con"), FORBIDDEN,
        (*PLAIN, CON, STRANGER, modify_acl(SUBSCRIPTION, "stranger"), post(DETACH))),
]  # fmt: skip

ROWS = join_rows(STANDING, SNAPSHOT_ROWS, WATCHING, ENDING)
