"""Checks of messages that may take long, as a worker process does them (`ams.workers`)."""

from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import msgspec

from ams.core.cache import LruCache
from ams.core.errors import InvalidInput
from ams.core.messages import parse
from ams.validation.compiled import Compiled, compile_stored
from ams.validation.cost import Budget

_KEPT = 16
"""Compiled revisions kept."""
MESSAGE, DATA, PAYLOAD = "message", "data", "payload"


class Piece(msgspec.Struct, array_like=True):
    """Something to be checked."""

    index: int
    """Its number in texts."""
    form: str
    """`message`: a fragment (`ams.core.messages`); `data`: base64 text; `payload`: decoded data."""
    body: bytes


class Task(msgspec.Struct, array_like=True):
    """Pieces to be checked against a revision, as it is stored."""

    type: str
    payload: str | None
    attributes: str | None
    pieces: Sequence[Piece]
    all: bool
    """Whether to go on after the first that is refused."""
    encoding: str = ""
    """How payloads in Avro are written (`ams.validation.compiled`)."""


class Refusal(NamedTuple):
    """A piece that is not allowed, and why."""

    number: int
    text: str


_Key = tuple[str, str | None, str | None, str]


class Checker:
    """Does tasks; keeps what it compiled last."""

    def __init__(self) -> None:
        self._compiled: LruCache[_Key, Compiled] = LruCache(_KEPT)

    def check(self, task: Task) -> list[Refusal]:
        """Return the pieces that are refused."""
        compiled, refused = self._find((task.type, task.payload, task.attributes, task.encoding)), []
        for piece in task.pieces:
            try:
                _check(compiled, piece)
            except InvalidInput as error:
                refused.append(Refusal(piece.index, error.message))
                if not task.all:
                    break
        return refused

    def _find(self, key: _Key) -> Compiled:
        compiled = self._compiled.get(key)
        if compiled is None:
            compiled = compile_stored(*key)
            self._compiled.put(key, compiled)
        return compiled


def _check(compiled: Compiled, piece: Piece) -> None:
    if piece.form == MESSAGE:
        compiled.check(piece.index, parse(piece.body), Budget())
    elif piece.form == DATA:
        compiled.check_data(piece.index, piece.body.decode(), Budget())
    else:
        compiled.check_payload(piece.index, piece.body, Budget())


_checker = cache(Checker)
"""The one of this process."""
_decode = msgspec.msgpack.Decoder(Task).decode


def check_pieces(parts: Sequence[memoryview]) -> Sequence[bytes]:
    """Do a task: take it, and return what is refused, as MessagePack."""
    [task] = parts
    return [msgspec.msgpack.encode(_checker().check(_decode(task)))]
