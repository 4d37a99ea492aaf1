"""`ams subs`: subscriptions, where they stand, and who may consume."""

from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from ams.cli.acl import SUBSCRIPTION, NoUsers, Users, chosen_users, replace_list, show_list
from ams.cli.arguments import SubscriptionName
from ams.cli.command import Session, examples, with_session
from ams.cli.completing import topic_names
from ams.cli.exits import Usage
from ams.cli.output import columns, fields, short_name
from ams.cli.paging import AllPages, PageSize, PageToken, paged
from ams.cli.push_secret import push_secret
from ams.cli.push_status import push_status
from ams.client import wire

app = typer.Typer(
    help="Subscriptions, where they stand, and who may consume.",
    no_args_is_help=True,
    epilog=examples(
        "ams subs create watering --topic readings --ack-deadline 60",
        "ams subs offsets watering",
        "ams subs seek watering --to oldest",
    ),
)

EARLIEST, LATEST = datetime(1970, 1, 1, tzinfo=UTC), datetime(9999, 12, 31, tzinfo=UTC)
"""Before and after every message."""

Seconds = Annotated[int, typer.Argument(metavar="SECONDS", help="0 to 600.", show_default=False)]


@app.command()
@with_session
def create(
    session: Session,
    subscription: SubscriptionName,
    topic_too: Annotated[
        str, typer.Argument(metavar="TOPIC", help="Topic of the same project.", autocompletion=topic_names)
    ] = "",
    topic: Annotated[str, typer.Option(help="The same as TOPIC.", autocompletion=topic_names)] = "",
    ack_deadline: Annotated[int | None, typer.Option(help="Seconds to acknowledge in; the service's is 10.")] = None,
) -> None:
    """Subscribe to a topic, from its end on."""
    if bool(topic) == bool(topic_too):
        raise Usage(f"name one topic: ams subs create {subscription} TOPIC, or --topic TOPIC")
    there = session.client.project(session.project).subscription(subscription)
    _show(session, there.create(topic or topic_too, ack_deadline=ack_deadline))


@app.command("list")
@with_session
def list_(session: Session, page_size: PageSize = 0, page_token: PageToken = "", every: AllPages = False) -> None:
    """List the subscriptions of the project, newest first."""

    def ask(size: int, token: str) -> wire.Call[wire.Subscriptions]:
        return wire.list_subscriptions(session.project, page_size=size, page_token=token)

    found = paged(session, ask, "subscriptions", page_size, page_token, every)
    rows = [
        (short_name(each.name), short_name(each.topic), f"{each.ack_deadline_seconds}s", each.created_on)
        for each in found.subscriptions
    ]
    session.show(found, columns(("SUBSCRIPTION", "TOPIC", "DEADLINE", "CREATED"), rows))


@app.command()
@with_session
def show(session: Session, subscription: SubscriptionName) -> None:
    """Show one subscription."""
    _show(session, session.call(wire.get_subscription(session.project, subscription)))


@app.command()
@with_session
def delete(session: Session, subscription: SubscriptionName) -> None:
    """Remove a subscription and forget where it stood."""
    session.call(wire.delete_subscription(session.project, subscription))
    session.done(f"subscription {subscription} deleted")


@app.command()
@with_session
def offsets(session: Session, subscription: SubscriptionName) -> None:
    """Show where a subscription stands."""
    found = session.call(wire.get_offsets(session.project, subscription))
    values = {"oldest": found.min, "next": found.current, "end": found.max, "backlog": found.max - found.current}
    session.show(found, fields({name: str(value) for name, value in values.items()}))


@app.command()
@with_session
def seek(
    session: Session,
    subscription: SubscriptionName,
    to: Annotated[str, typer.Option(help="oldest, end, an OFFSET, or a TIME such as 2024-03-05T10:20:30Z.")] = "",
    oldest: Annotated[bool, typer.Option("--oldest", help="The same as --to oldest.")] = False,
    end: Annotated[bool, typer.Option("--end", help="The same as --to end.")] = False,
) -> None:
    """Move a subscription: back to get messages again, forward to skip them."""
    if bool(to) + oldest + end != 1:
        raise Usage("give one of --to, --oldest and --end")
    found = session.call(_seek(session.project, subscription, to or ("end" if end else "oldest")))
    session.show(found, f"subscription {subscription} moved to {found.current}")


@app.command()
@with_session
def ack_deadline(session: Session, subscription: SubscriptionName, seconds: Seconds) -> None:
    """Change how long after a pull messages may be acknowledged."""
    session.call(wire.modify_ack_deadline(session.project, subscription, seconds))
    session.done(f"subscription {subscription} has {seconds} seconds to acknowledge")


@app.command()
@with_session
def acl(session: Session, subscription: SubscriptionName) -> None:
    """Show who may consume."""
    show_list(session, SUBSCRIPTION, subscription)


@app.command()
@with_session
def set_acl(session: Session, subscription: SubscriptionName, users: Users = None, none: NoUsers = False) -> None:
    """Say who may consume; this replaces the list."""
    replace_list(session, SUBSCRIPTION, subscription, chosen_users(users, none=none))


@app.command()
@with_session
def push_config(
    session: Session,
    subscription: SubscriptionName,
    url: Annotated[str, typer.Option(help="https URL to deliver to.")] = "",
    mattermost: Annotated[str, typer.Option(help="URL of a Mattermost hook to deliver to instead.")] = "",
    username: Annotated[str, typer.Option(help="Name to post under in Mattermost.")] = "",
    channel: Annotated[str, typer.Option(help="Channel to post to in Mattermost.")] = "",
    max_messages: Annotated[int, typer.Option(min=0, help="Messages in one delivery; the service's is 1.")] = 0,
    retry: Annotated[str, typer.Option(help="linear (the service's), slowstart or exponential.")] = "",
    period: Annotated[
        int, typer.Option(min=0, help="Milliseconds between tries; 3000 of linear, 1000 at first of exponential.")
    ] = 0,
    authorization: Annotated[str, typer.Option(help="autogen (a new secret) or disabled; else as it is.")] = "",
    base64_decode: Annotated[bool | None, typer.Option(help="Deliver the data decoded; else as it is.")] = None,
    dead_letter_topic: Annotated[
        str,
        typer.Option(
            metavar="TOPIC", help="Topic for messages that are refused too often.", autocompletion=topic_names
        ),
    ] = "",
    max_attempts: Annotated[int, typer.Option(min=0, help="How often that is; the service's is 5.")] = 0,
    none: Annotated[bool, typer.Option("--none", help="Deliver no more: make it a pull subscription.")] = False,
) -> None:
    """Say where the service delivers messages to; this replaces the push configuration."""
    if sum(map(bool, (url, mattermost, none))) != 1:
        raise Usage("give one of --url, --mattermost and --none")
    wanted = wire.PushConfig(
        type="mattermost" if mattermost else "http_endpoint",
        push_endpoint=url,
        max_messages=max_messages,
        authorization_header=wire.AuthorizationHeader(type=authorization),
        retry_policy=wire.RetryPolicy(type=retry, period=period),
        mattermost_url=mattermost,
        mattermost_username=username,
        mattermost_channel=channel,
        base64_decode=base64_decode,
        dead_letter_topic=dead_letter_topic,
        max_delivery_attempts=max_attempts,
    )
    session.call(wire.modify_push_config(session.project, subscription, None if none else wanted))
    _show(session, session.call(wire.get_subscription(session.project, subscription)))


@app.command()
@with_session
def verify_push(session: Session, subscription: SubscriptionName) -> None:
    """Let the service ask the endpoint for the verification hash; then delivery begins."""
    session.call(wire.verify_push_endpoint(session.project, subscription))
    session.done(f"push endpoint of subscription {subscription} verified")


app.command()(push_secret)
app.command()(push_status)


def moment(text: str) -> datetime:
    """Read a time as people write it: ISO 8601, a day alone is its midnight, without a zone it is UTC."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise Usage(f"{text!r} is not oldest, end, an offset, or a time such as 2024-03-05T10:20:30Z") from None
    return read if read.tzinfo else read.replace(tzinfo=UTC)


def _seek(project: str, subscription: str, to: str) -> wire.Call[wire.Offsets]:
    """Return the one call that moves there: all places but an offset are times, before the first or after the last."""
    if to.isascii() and to.isdigit():
        return wire.seek(project, subscription, offset=int(to))
    ends = {"oldest": EARLIEST, "end": LATEST}
    return wire.seek(project, subscription, time=ends.get(to) or moment(to))


def _show(session: Session, subscription: wire.Subscription) -> None:
    values = {
        "subscription": short_name(subscription.name),
        "topic": short_name(subscription.topic),
        "deadline": f"{subscription.ack_deadline_seconds}s",
        "created": subscription.created_on,
        **_push(subscription.push_config),
        "push status": subscription.push_status,
    }
    session.show(subscription, fields(values))


def _push(config: dict[str, Any]) -> dict[str, str]:
    """Return what people want to know of a push configuration; the header value is for programs (-o json)."""
    waits = bool(config.get("pushEndpoint")) and not config.get("verified")
    return {
        "push": str(config.get("pushEndpoint") or config.get("mattermostUrl") or ""),
        "verified": "no: serve the hash, then ams subs verify-push" if waits else "",
        "hash": str(config.get("verificationHash", "")) if waits else "",
        "dead letters": _dead_letters(config),
    }


def _dead_letters(config: dict[str, Any]) -> str:
    topic = short_name(str(config.get("deadLetterTopic", "")))
    return f"to {topic} after {config.get('maxDeliveryAttempts')} attempts" if topic else ""
