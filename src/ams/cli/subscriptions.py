"""`ams subs` and `ams snapshots`: subscriptions, where they stand, who may consume, and where they are delivered."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Annotated, Any, Literal

from ams.cli.arguments import SUBSCRIPTION, SubscriptionName, Texts, argument, option, snapshot_names, topic_names
from ams.cli.command import PAGE, Columns, CommandGroup, OptionSet, Session, columns_of, facts, named, table
from ams.cli.exit_codes import Usage
from ams.cli.output import emit, fields, json_line, note, short_name
from ams.cli.rights import SUBSCRIPTION_LIST, NoUsers, Users, acl_text
from ams.cli.times import seconds_of, time_of, whole_seconds
from ams.cli.top import counts
from ams.client import wire
from ams.client.errors import ClientError
from ams.client.wire import Call

app = CommandGroup(
    "ams subs create watering --topic readings --ack-deadline 60",
    "ams subs offsets watering",
    "ams subs seek watering --to oldest",
    of_project=True,
)

snapshots = CommandGroup("ams snapshots create before-upgrade workers", "ams snapshots list", of_project=True)

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
"""Before and after every message."""
MAX_KEEP_SECONDS = 30 * 86_400  # how long a secret of push may stay valid beside a new one
SHOWN_ATTEMPTS = 10  # attempts of push that people are shown; `-o json` has all that are known


@dataclass(frozen=True, slots=True)
class Changeable(OptionSet):
    """Options of parallel subscriptions that can be changed."""

    retry_min: Annotated[str, option("How long a message waits after its first failure; 10s.", metavar="DURATION")] = ""
    retry_max: Annotated[str, option("How long it waits at most; 600s.", metavar="DURATION")] = ""
    dead_letter_topic: Annotated[
        str, option("Topic for messages that failed too often.", metavar="TOPIC", complete=topic_names)
    ] = ""
    max_attempts: Annotated[int, option("How often that is, 5 to 100; the service's is 5.", min=0)] = 0
    exactly_once: Annotated[bool | None, option("What was acknowledged never comes again.")] = None
    retain_acked: Annotated[bool | None, option("A seek can bring acknowledged messages back.")] = None
    expires_after: Annotated[str, option("Unused for so long it is deleted; at least 1d.", metavar="DURATION")] = ""
    retention: Annotated[str, option("How long messages are kept for it, 10m to 31d.", metavar="DURATION")] = ""

    @property
    def fields(self) -> dict[str, Any]:
        """The fields that are set; raises `Usage` for what is no duration."""
        retry = wire.RetryBackoff(_span(self.retry_min), _span(self.retry_max))
        dead_letters = wire.DeadLetterPolicy(self.dead_letter_topic or None, self.max_attempts or None)
        fields = {
            "retry_policy": retry if retry != wire.RetryBackoff() else None,
            "dead_letter_policy": dead_letters if dead_letters != wire.DeadLetterPolicy() else None,
            "enable_exactly_once_delivery": self.exactly_once,
            "retain_acked_messages": self.retain_acked,
            "expiration_policy": wire.ExpirationPolicy(_span(self.expires_after)) if self.expires_after else None,
            "message_retention_duration": _span(self.retention),
        }
        return {name: value for name, value in fields.items() if value is not None}


SECONDS = {"seconds": Annotated[int, argument("SECONDS", "0 to 600.")]}
_UNSET = {
    "retry": "retry_policy",
    "dead-letters": "dead_letter_policy",
    "expiry": "expiration_policy",
    "retention": "message_retention_duration",
}
Unset = Annotated[Texts, option(f"Take one back: {', '.join(_UNSET)}.", "--unset", metavar="OPTION")]


def _span(text: str) -> str | None:
    if not text:
        return None
    seconds = seconds_of(text, f"{text!r} is no duration such as 10s, 0.5s or 7d")
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + "s"


def _fields(subscription: wire.Subscription) -> dict[str, str]:
    push, dead = subscription.push_config, subscription.dead_letter_policy
    topic, attempts = push.get("deadLetterTopic", ""), push.get("maxDeliveryAttempts")
    if dead:
        topic, attempts = dead.dead_letter_topic, dead.max_delivery_attempts
    waits = bool(push.get("pushEndpoint")) and not push.get("verified")
    retry, expiry = subscription.retry_policy, subscription.expiration_policy
    again = f"after {retry.minimum_backoff} to {retry.maximum_backoff}" if retry else "at once"
    return {
        "subscription": short_name(subscription.name),
        "topic": short_name(subscription.topic),
        "deadline": f"{subscription.ack_deadline_seconds}s",
        "created": subscription.created_on,
        # The header value of push is for programs (-o json).
        "push": str(push.get("pushEndpoint") or push.get("mattermostUrl") or ""),
        "verified": "no: serve the hash, then ams subs verify-push" if waits else "",
        "hash": str(push.get("verificationHash", "")) if waits else "",
        "dead letters": f"to {short_name(str(topic))} after {attempts} attempts" if topic else "",
        "push status": subscription.push_status,
        "type": subscription.type,
        "retry": again if subscription.type else "",
        "filter": subscription.filter,
        "ordering": "by key" if subscription.enable_message_ordering else "",
        "exactly once": "yes" if subscription.enable_exactly_once_delivery else "",
        "retains acked": "yes" if subscription.retain_acked_messages else "",
        "expires": f"unused for {expiry.ttl}" if expiry else "",
        "retention": subscription.message_retention_duration,
        "detached": "yes: it gets nothing any more" if subscription.detached else "",
    }


@app.does()
def create(
    session: Session,
    subscription: SubscriptionName,
    topic_too: Annotated[str, argument("TOPIC", "Topic of the same project.", topic_names)] = "",
    topic: Annotated[str, option("The same as TOPIC.", complete=topic_names)] = "",
    ack_deadline: Annotated[int | None, option("Seconds to acknowledge in; the service's is 10.")] = None,
    kind: Annotated[
        Literal["ordered", "parallel"], option("The options below are for parallel ones alone.", "--type")
    ] = "ordered",
    *,
    filter_: Annotated[str, option("Deliver only what it matches, such as attributes:lang.", "--filter")] = "",
    ordering: Annotated[bool, option("Messages of an ordering key one after the other.", "--ordering")] = False,
    given: Changeable,
) -> None:
    """Subscribe to a topic, from its end on."""
    if bool(topic) == bool(topic_too):
        raise Usage(f"name one topic: ams subs create {subscription} TOPIC, or --topic TOPIC")
    options = wire.ParallelOptions(filter=filter_ or None, enable_message_ordering=ordering or None, **given.fields)
    if kind == "ordered" and options != wire.ParallelOptions():
        raise Usage("those are options of a parallel subscription: give --type parallel")
    there = session.client.project(session.project).subscription(subscription)
    parallel = options if kind == "parallel" else None
    made = there.create(topic or topic_too, ack_deadline=ack_deadline, parallel=parallel)
    session.show(made, _fields(made))


@app.shows(_fields)
def update(
    session: Session, subscription: SubscriptionName, given: Changeable, taken_back: Unset = None
) -> Call[wire.Subscription]:
    """Change options of a parallel subscription; the others stay."""
    said = given.fields
    for name in taken_back or ():
        if name not in _UNSET:
            raise Usage(f"--unset {name!r} is none of {', '.join(_UNSET)}")
    none: dict[str, Any] = {_UNSET[name]: None for name in taken_back or ()}
    if said.keys() & none.keys():
        raise Usage("what is set cannot be --unset too")
    if not said and not none:
        raise Usage("say what to change")
    return wire.update_subscription(session.project, subscription, wire.SubscriptionChanges(**said, **none))


_COLUMNS: Columns = {
    "SUBSCRIPTION": lambda each: short_name(each.name),
    "TOPIC": lambda each: short_name(each.topic),
    "DEADLINE": lambda each: f"{each.ack_deadline_seconds}s",
    "CREATED": "created_on",
}
app.sends("list", wire.list_subscriptions, _COLUMNS,
    "List the subscriptions of the project, newest first.", PAGE, items="subscriptions")  # fmt: skip
app.sends("show", wire.get_subscription, _fields, "Show one subscription.", SUBSCRIPTION)
app.sends(
    "detach", wire.detach_subscription, "subscription {subscription} detached",
    "Let a parallel subscription get nothing any more, for good; what was to come is dropped.", SUBSCRIPTION,
)  # fmt: skip
app.sends("delete", wire.delete_subscription, "subscription {subscription} deleted",
    "Remove a subscription and its cursor.", SUBSCRIPTION)  # fmt: skip


_OFFSETS: Columns = {
    "oldest": "min",
    "next": "current",
    "end": "max",
    "backlog": lambda each: each.max - each.current - (each.acknowledged or 0),
    "acknowledged above": "acknowledged",
    "on lease": "leased",
    **named("waiting", "blocked"),
}
app.sends("offsets", wire.get_offsets, _OFFSETS, "Show where a subscription stands.", SUBSCRIPTION)


@app.does()
def watch(session: Session, subscription: SubscriptionName) -> None:
    """Write a line each time what waits in a subscription has changed, until Ctrl-C."""
    for found in counts(session, [], [subscription]):
        if isinstance(found, ClientError):
            note(found.message)
            continue
        here = found.subscriptions[subscription]
        if session.for_programs:
            emit(json_line(here))
            continue
        oldest = "" if here.oldest_unacked_seconds is None else f", the oldest for {here.oldest_unacked_seconds}s"
        emit(f"{found.time}  {here.lag} waiting of {here.end}{oldest}{f', push {here.push}' if here.push else ''}")


@app.does()
def seek(
    session: Session,
    subscription: SubscriptionName,
    to: Annotated[str, option("oldest, end, an OFFSET, or a TIME such as 2024-03-05T10:20:30Z.")] = "",
    oldest: Annotated[bool, option("The same as --to oldest.", "--oldest")] = False,
    end: Annotated[bool, option("The same as --to end.", "--end")] = False,
    snapshot: Annotated[
        str, option("To where a parallel one stood then.", metavar="SNAPSHOT", complete=snapshot_names)
    ] = "",
) -> None:
    """Move a subscription: back to get messages again, forward to skip them."""
    if bool(to) + oldest + end + bool(snapshot) != 1:
        raise Usage("give one of --to, --oldest, --end and --snapshot")
    place = to or ("end" if end else "oldest")
    if snapshot:
        call = wire.seek(session.project, subscription, snapshot=snapshot)
    elif place.isascii() and place.isdigit():
        call = wire.seek(session.project, subscription, offset=int(place))
    else:
        ends = {"oldest": EARLIEST, "end": LATEST}
        call = wire.seek(session.project, subscription, time=ends.get(place) or moment(place))
    found = session.call(call)
    session.show(found, f"subscription {subscription} moved to {found.current}")


app.sends("ack-deadline", wire.modify_ack_deadline, "subscription {subscription} has {seconds} seconds to acknowledge",
    "Change how long after a pull messages may be acknowledged.", SUBSCRIPTION | SECONDS)  # fmt: skip
app.sends("acl", wire.get_subscription_acl, acl_text, "Show who may consume.", SUBSCRIPTION)


@app.does()
def set_acl(session: Session, subscription: SubscriptionName, users: Users = None, none: NoUsers = False) -> None:
    """Set the users who may consume; this replaces the list."""
    SUBSCRIPTION_LIST.replace(session, subscription, users, none=none)


@app.shows(_fields)
def push_config(
    session: Session,
    subscription: SubscriptionName,
    url: Annotated[str, option("https URL to deliver to.")] = "",
    mattermost: Annotated[str, option("URL of a Mattermost hook to deliver to instead.")] = "",
    username: Annotated[str, option("Name to post under in Mattermost.")] = "",
    channel: Annotated[str, option("Channel to post to in Mattermost.")] = "",
    max_messages: Annotated[int, option("Messages in one delivery; the service's is 1.", min=0)] = 0,
    retry: Annotated[str, option("linear (the service's), slowstart or exponential.")] = "",
    period: Annotated[
        int, option("Milliseconds between tries; 3000 of linear, 1000 at first of exponential.", min=0)
    ] = 0,
    authorization: Annotated[str, option("autogen (a new secret) or disabled; else as it is.")] = "",
    base64_decode: Annotated[bool | None, option("Deliver the data decoded; else as it is.")] = None,
    dead_letter_topic: Annotated[
        str, option("Topic for messages that are refused too often.", metavar="TOPIC", complete=topic_names)
    ] = "",
    max_attempts: Annotated[int, option("How often that is; the service's is 5.", min=0)] = 0,
    max_outstanding: Annotated[
        int, option("Deliveries of a parallel subscription at a time; the service's are 10.", min=0)
    ] = 0,
    none: Annotated[bool, option("Deliver no more: make it a pull subscription.", "--none")] = False,
) -> Call[wire.Subscription]:
    """Set the endpoint to which the service delivers messages; this replaces the push configuration."""
    if sum(map(bool, (url, mattermost, none))) != 1:
        raise Usage("give one of --url, --mattermost and --none")
    wanted = wire.PushConfig(
        type="mattermost" if mattermost else "http_endpoint", push_endpoint=url, max_messages=max_messages,
        authorization_header=wire.AuthorizationHeader(type=authorization),
        retry_policy=wire.RetryPolicy(type=retry, period=period), mattermost_url=mattermost,
        mattermost_username=username, mattermost_channel=channel, base64_decode=base64_decode,
        dead_letter_topic=dead_letter_topic, max_delivery_attempts=max_attempts, max_outstanding=max_outstanding,
    )  # fmt: skip
    session.call(wire.modify_push_config(session.project, subscription, None if none else wanted))
    return wire.get_subscription(session.project, subscription)


app.sends("verify-push", wire.verify_push_endpoint, "push endpoint of subscription {subscription} verified",
    "Let the service ask the endpoint for the verification hash; then delivery begins.", SUBSCRIPTION)  # fmt: skip


@app.shows({"secret": "secret", "the one before ends": "previous_valid_until"})
def push_secret(
    session: Session,
    subscription: SubscriptionName,
    keep: Annotated[str, option("How long the one before stays valid, such as 12h; at most 30d.")] = "24h",
) -> Call[wire.PushSecret]:
    """Make a new secret that deliveries are signed with; it is shown this once."""
    wrong = f"{keep!r} is no duration of whole seconds from 0s to 30d"
    seconds = whole_seconds(keep, wrong, 0, MAX_KEEP_SECONDS)
    return wire.rotate_push_secret(session.project, subscription, keep_seconds=seconds)


def push_status_text(found: wire.PushStatus) -> str:
    """Write how the delivery of a subscription goes."""
    names = ("state", "push_status", "backlog", "circuit", "batch", "outstanding", "next_attempt", "last_success")
    shown: dict[str, object] = {**facts(named(*names), found)}
    if error := found.last_error:
        said = [error.time, "could not", error.what, f"status {error.status}" if error.status else "", error.detail]
        shown["last error"] = " ".join(filter(None, said))
    shown |= facts(named("delivered", "deliveries", "failed"), found)
    shown |= {"dead letters": found.dead or None, "undecodable": found.undecodable or None, "late": found.late or None}
    if not found.attempts:
        return fields(shown)
    attempts: Columns = {
        "ATTEMPT": "time",
        "STATUS": lambda each: each.status or "-",
        "MS": "milliseconds",
        "MESSAGES": "messages",
        "BYTES": "bytes",
        "ERROR": "error",
    }
    return f"{fields(shown)}\n\n{table(attempts, found.attempts[-SHOWN_ATTEMPTS:])}"


app.sends("push-status", wire.get_push_status, push_status_text,
    "Show how delivery to the endpoint goes, and the last attempts.", SUBSCRIPTION)  # fmt: skip


def moment(text: str) -> datetime:
    """Read a time as people write it: ISO 8601, a day alone is its midnight, without a zone it is UTC."""
    try:
        return time_of(text)
    except ValueError:
        raise Usage(f"{text!r} is not oldest, end, an offset, or a time such as 2024-03-05T10:20:30Z") from None


SNAPSHOT = {"snapshot": Annotated[str, argument("SNAPSHOT", "Name of the snapshot.", snapshot_names)]}

_SNAPSHOT: Columns = {
    "snapshot": lambda each: short_name(each.name),
    "topic": lambda each: short_name(each.topic),
    "created": "created_on",
    "expires": "expire_time",
}


snapshots.sends("create", wire.create_snapshot, _SNAPSHOT,
    "Remember where a parallel subscription stands.", SNAPSHOT | SUBSCRIPTION)  # fmt: skip
snapshots.sends("list", wire.list_snapshots, columns_of(_SNAPSHOT, *_SNAPSHOT),
    "List the snapshots of the project, newest first.", PAGE, items="snapshots")  # fmt: skip
snapshots.sends("show", wire.get_snapshot, _SNAPSHOT, "Show one snapshot.", SNAPSHOT)
snapshots.sends("delete", wire.delete_snapshot, "snapshot {snapshot} deleted", "Remove a snapshot.", SNAPSHOT)
