"""`ams topics`: topics and who may publish to them."""

from typing import Annotated

import typer

from ams.cli.acl import NoUsers, Users, chosen_users
from ams.cli.command import Session, with_session
from ams.cli.completing import topic_names
from ams.cli.examples import examples
from ams.cli.output import columns, fields, short_name
from ams.cli.paging import AllPages, PageSize, PageToken, paged
from ams.client import wire

app = typer.Typer(
    help="Topics, and who may publish to them.",
    no_args_is_help=True,
    epilog=examples(
        "ams topics create readings", "ams topics list --all -o json", "ams topics set-acl readings sensor"
    ),
)

TopicName = Annotated[
    str,
    typer.Argument(metavar="TOPIC", help="Name of the topic.", show_default=False, autocompletion=topic_names),
]


@app.command()
@with_session
def create(session: Session, topic: TopicName) -> None:
    """Make a topic."""
    _show(session, session.call(wire.create_topic(session.project, topic)))


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
def acl(session: Session, topic: TopicName) -> None:
    """Show who may publish."""
    found = session.call(wire.get_topic_acl(session.project, topic))
    session.show(found, columns(("USER",), [(user,) for user in found.authorized_users]))


@app.command()
@with_session
def set_acl(session: Session, topic: TopicName, users: Users = None, none: NoUsers = False) -> None:
    """Say who may publish; this replaces the list."""
    session.call(wire.modify_topic_acl(session.project, topic, chosen_users(users, none=none)))
    session.done(f"access list of topic {topic} replaced")


def _show(session: Session, topic: wire.Topic) -> None:
    values = {"topic": short_name(topic.name), "created": topic.created_on, "schema": short_name(topic.schema)}
    session.show(topic, fields(values))
