"""`ams publish`: messages from the command line, a file, or the lines of standard input."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from io import BufferedReader
from typing import Annotated

import typer

from ams.cli.arguments import AttributePairs, TopicName
from ams.cli.command import Session, with_session
from ams.cli.exits import Usage
from ams.cli.output import emit, json_line, note
from ams.client import Message
from ams.client.wire.values import Published

CHUNK = 64 * 1024
"""Bytes of standard input taken at once; the lines of a chunk are one request."""
REQUEST_MESSAGES = 1000
LONGEST_LINE = 16 * 2**20
"""Bytes; longer than any message a service takes, short enough to hold in memory."""


@with_session
def publish(
    session: Session,
    topic: TopicName,
    data: Annotated[str | None, typer.Option(help="Publish this text as one message.")] = None,
    file: Annotated[str | None, typer.Option(help="Publish this file as one message; - is standard input.")] = None,
    attr: AttributePairs = None,
) -> None:
    """Publish messages and print their ids: --data, a --file, or else each line of standard input."""
    attributes = attributes_of(attr or ())
    if data is not None and file is not None:
        raise Usage("give --data or --file, not both")
    if data is not None:
        _send(session, topic, [Message(data.encode("utf-8", "surrogateescape"), attributes)])
    elif file is not None:
        _send(session, topic, [Message(content_of(file), attributes)])
    else:
        _send_lines(session, topic, attributes)


def requests(source: BufferedReader, attributes: Mapping[str, str]) -> Iterator[list[Message]]:
    """Make requests of lines as they arrive, so that a slow source is not kept waiting for a full one.

    An empty line is a message only when there are attributes: the service stores no message that says nothing.
    """
    for lines in _chunks_of_lines(source):
        messages = [Message(line, attributes) for line in lines if line or attributes]
        for start in range(0, len(messages), REQUEST_MESSAGES):
            yield messages[start : start + REQUEST_MESSAGES]


def _chunks_of_lines(source: BufferedReader) -> Iterator[list[bytes]]:
    rest = bytearray()
    while chunk := source.read1(CHUNK):
        rest += chunk
        if b"\n" in chunk:
            *lines, unended = bytes(rest).split(b"\n")
            rest = bytearray(unended)
            yield lines
        elif len(rest) > LONGEST_LINE:
            raise Usage("a line of the input is too long to be a message")
    if rest:
        yield [bytes(rest)]


def attributes_of(pairs: Sequence[str]) -> dict[str, str]:
    """Read attributes written NAME=VALUE; raise `Usage` for others."""
    for pair in pairs:
        if "=" not in pair:
            raise Usage(f"--attr {pair!r} must look like NAME=VALUE")
    return dict(pair.split("=", 1) for pair in pairs)


def content_of(file: str) -> bytes:
    """Return what a file holds, `-` being standard input; raise `Usage` when it cannot be read."""
    if file == "-":
        return sys.stdin.buffer.read()
    try:
        with open(file, "rb") as opened:
            return opened.read()
    except OSError as error:
        raise Usage(f"{file}: {error.strerror}") from error


def _send_lines(session: Session, topic: str, attributes: Mapping[str, str]) -> None:
    if sys.stdin.isatty():
        note("each line becomes a message; Ctrl-D ends")
    with open(sys.stdin.fileno(), "rb", closefd=False) as source:
        for request in requests(source, attributes):
            _send(session, topic, request)


def _send(session: Session, topic: str, messages: list[Message]) -> None:
    ids = session.patient.project(session.project).topic(topic).publish(messages)
    emit(json_line(Published(message_ids=ids)) if session.for_programs else "\n".join(ids))
