"""`ams topics`: topics and who may publish to them."""

from typing import Annotated

import typer

from ams.cli.acl import TOPIC, NoUsers, Users, chosen_users, replace_list, show_list
from ams.cli.arguments import SchemaName, TopicName
from ams.cli.command import Session, examples, with_session
from ams.cli.completing import schema_names, subscription_names
from ams.cli.durations import Duration, seconds, shown
from ams.cli.output import columns, emit, fields, json_line, printable, short_name
from ams.cli.paging import AllPages, PageSize, PageToken, paged
from ams.cli.pull import row
from ams.client import wire

app = typer.Typer(
    help="Topics, and who may publish to them.",
    no_args_is_help=True,
    epilog=examples(
        "ams topics create readings", "ams topics list --all -o json", "ams topics set-acl readings sensor"
    ),
)

Subscription = Annotated[
    str,
    typer.Option(
        help="Subscription to the topic, for consumers.", show_default=False, autocompletion=subscription_names
    ),
]


@app.command()
@with_session
def create(
    session: Session,
    topic: TopicName,
    schema: Annotated[
        str,
        typer.Option(metavar="SCHEMA", help="A schema that checks what is published.", autocompletion=schema_names),
    ] = "",
) -> None:
    """Make a topic."""
    _show(session, session.call(wire.create_topic(session.project, topic, schema=schema)))


@app.command("list")
@with_session
def list_(session: Session, page_size: PageSize = 0, page_token: PageToken = "", every: AllPages = False) -> None:
    """List the topics of the project, newest first."""

    def ask(size: int, token: str) -> wire.Call[wire.Topics]:
        return wire.list_topics(session.project, page_size=size, page_token=token)

    found = paged(session, ask, "topics", page_size, page_token, every)
    rows = [(short_name(each.name), each.created_on, short_name(each.schema)) for each in found.topics]
    session.show(found, columns(("TOPIC", "CREATED", "SCHEMA"), rows))


@app.command()
@with_session
def show(session: Session, topic: TopicName) -> None:
    """Show one topic."""
    _show(session, session.call(wire.get_topic(session.project, topic)))


@app.command()
@with_session
def delete(session: Session, topic: TopicName) -> None:
    """Remove a topic and its messages; its subscriptions stay."""
    session.call(wire.delete_topic(session.project, topic))
    session.done(f"topic {topic} deleted")


@app.command()
@with_session
def retention(session: Session, topic: TopicName, duration: Duration) -> None:
    """Say how long messages are kept: a duration such as 7d or 12h, or default for the project's."""
    _show(session, session.call(wire.modify_topic_retention(session.project, topic, seconds(duration))))


@app.command()
@with_session
def offsets(session: Session, topic: TopicName, subscription: Subscription = "") -> None:
    """Show the oldest id kept and the end of a topic."""
    found = session.call(wire.get_topic_offsets(session.project, topic, subscription=subscription))
    session.show(found, fields({"oldest": str(found.min), "end": str(found.max)}))


@app.command()
@with_session
def read(
    session: Session,
    topic: TopicName,
    start: Annotated[int | None, typer.Option("--from", min=0, help="First id to read; the oldest kept.")] = None,
    stop: Annotated[int | None, typer.Option("--to", min=0, help="First id not to read; the end.")] = None,
    most: Annotated[int, typer.Option("--max", min=1, help="At most so many messages.")] = 100,
    subscription: Subscription = "",
) -> None:
    """Print messages by their ids, moving no subscription."""
    asked = wire.read_topic(session.project, topic, start=start, stop=stop, most=most, subscription=subscription)
    for message in session.call(asked):
        emit(json_line(message) if session.for_programs else "  ".join(map(printable, row(message))))


@app.command()
@with_session
def acl(session: Session, topic: TopicName) -> None:
    """Show who may publish."""
    show_list(session, TOPIC, topic)


@app.command()
@with_session
def set_acl(session: Session, topic: TopicName, users: Users = None, none: NoUsers = False) -> None:
    """Say who may publish; this replaces the list."""
    replace_list(session, TOPIC, topic, chosen_users(users, none=none))


@app.command()
@with_session
def attach_schema(session: Session, topic: TopicName, schema: SchemaName) -> None:
    """Let a schema check what is published from now on."""
    session.call(wire.attach_schema(session.project, topic, schema))
    session.done(f"schema {schema} attached to topic {topic}")


@app.command()
@with_session
def detach_schema(session: Session, topic: TopicName) -> None:
    """Let any message be published from now on."""
    session.call(wire.detach_schema(session.project, topic))
    session.done(f"topic {topic} takes any message")


def _show(session: Session, topic: wire.Topic) -> None:
    values = {
        "topic": short_name(topic.name),
        "created": topic.created_on,
        "schema": short_name(topic.schema),
        "retention": shown(topic.retention_seconds),
    }
    session.show(topic, fields(values))
