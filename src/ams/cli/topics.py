"""`ams topics`: topics and who may publish to them."""

from itertools import islice
from typing import Annotated

from ams.cli.arguments import DURATION, SCHEMA, TOPIC, TopicName, option, schema_names, subscription_names
from ams.cli.command import PAGE, Columns, CommandGroup, Session, columns_of
from ams.cli.exit_codes import Usage
from ams.cli.messages import MessageFilter, read_messages, show_lines
from ams.cli.output import short_name
from ams.cli.rights import TOPIC_LIST, NoUsers, Users, acl_text
from ams.cli.times import retention_text, time_of
from ams.client import wire

app = CommandGroup(
    "ams topics create readings", "ams topics list --all -o json", "ams topics set-acl readings sensor", of_project=True
)

Subscription = Annotated[
    str, option("Subscription to the topic, for consumers.", complete=subscription_names, show_default=False)
]

READ_MESSAGES = 1_000  # per request

_FIELDS: Columns = {
    "topic": lambda each: short_name(each.name),
    "created": "created_on",
    "schema": lambda each: short_name(each.schema),
    "retention": lambda each: retention_text(each.retention_seconds),
}


Schema = Annotated[str, option("A schema that checks what is published.", metavar="SCHEMA", complete=schema_names)]
app.sends("create", wire.create_topic, _FIELDS, "Make a topic.", TOPIC | {"schema": (Schema, "")})
app.sends("list", wire.list_topics, columns_of(_FIELDS, "topic", "created", "schema"),
    "List the topics of the project, newest first.", PAGE, items="topics")  # fmt: skip
app.sends("show", wire.get_topic, _FIELDS, "Show one topic.", TOPIC)
app.sends("delete", wire.delete_topic, "topic {topic} deleted",
    "Remove a topic and its messages; its subscriptions stay.", TOPIC)  # fmt: skip
app.sends("retention", wire.modify_topic_retention, _FIELDS,
    "Say how long messages are kept: a duration such as 7d or 12h, or default for the project's.",
    TOPIC | DURATION)  # fmt: skip
app.sends("offsets", wire.get_topic_offsets, {"oldest": "min", "end": "max"},
    "Show the oldest id kept and the end of a topic.", TOPIC | {"subscription": (Subscription, "")})  # fmt: skip


@app.does()
def read(
    session: Session,
    topic: TopicName,
    start: Annotated[int | None, option("First id to read; the oldest kept.", "--from", min=0)] = None,
    stop: Annotated[int | None, option("First id not to read; the end.", "--to", min=0)] = None,
    most: Annotated[int, option("At most so many messages.", "--max", min=1)] = 100,
    subscription: Subscription = "",
) -> None:
    """Print messages by their ids, moving no subscription."""
    asked = wire.read_topic(session.project, topic, start=start, stop=stop, most=most, subscription=subscription)
    found = session.call(asked)
    show_lines(session, found)


@app.does()
def browse(
    session: Session,
    topic: TopicName,
    *,
    start: Annotated[int | None, option("Begin with this id and go forward.", "--from", min=0)] = None,
    since: Annotated[
        str, option("Begin with what was published then and go forward: 2030-05-01T12:00:00Z.", metavar="TIME")
    ] = "",
    most: Annotated[int, option("At most so many messages.", "--max", min=1)] = 20,
    shown: MessageFilter,
    subscription: Subscription = "",
) -> None:
    """Look through messages, the newest first; filters look as far back as they must."""
    if start is not None and since:
        raise Usage("give --from or --since, not both")
    is_shown = shown.test()
    try:
        moment = time_of(since) if since else None
    except ValueError as error:
        raise Usage(f"--since: {error}") from None
    bounds = session.call(wire.get_topic_offsets(session.project, topic, subscription=subscription))
    if moment is not None:
        asked = wire.topic_time_to_offset(session.project, topic, moment, subscription=subscription)
        start = session.call(asked).offset
    ids = range(bounds.min if start is None else max(start, bounds.min), bounds.max)
    found = read_messages(session, topic, ids, READ_MESSAGES, subscription, back=start is None)
    show_lines(session, islice(filter(is_shown, found), most))


app.sends("acl", wire.get_topic_acl, acl_text, "Show who may publish.", TOPIC)


@app.does()
def set_acl(session: Session, topic: TopicName, users: Users = None, none: NoUsers = False) -> None:
    """Set the users who may publish; this replaces the list."""
    TOPIC_LIST.replace(session, topic, users, none=none)


app.sends("attach-schema", wire.attach_schema, "schema {schema} attached to topic {topic}",
    "Let a schema check what is published from now on.", TOPIC | SCHEMA)  # fmt: skip
app.sends("detach-schema", wire.detach_schema, "topic {topic} takes any message",
    "Let any message be published from now on.", TOPIC)  # fmt: skip
