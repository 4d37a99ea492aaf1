"""The process for checks that may take long, begun by `ams.validation.validator_process`.

It takes tasks on its input and answers on its output, both in frames: a length of four bytes, then MessagePack. What is
checked here is not trusted: memory and time of the processor are limited by the system, and there is nothing else here
that could be taken or held up.
"""

import os
import resource
import signal
import sys
from collections.abc import Iterable, Sequence
from typing import BinaryIO, NamedTuple

import msgspec

from ams.core.cache import LruCache
from ams.core.errors import InvalidInput
from ams.core.messages import parse
from ams.validation.compiled import Compiled, compile_stored
from ams.validation.cost import Budget

LENGTH = 4
"""Bytes that tell how long a frame is."""
READY = b"ready"
MEMORY = 2**30
"""Bytes of address space: a task that takes more ends the process."""
CPU_SECONDS = 10
"""Of one task; the one who asked ends it sooner, unless he is gone himself."""
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


class Refusal(NamedTuple):
    """A piece that is not allowed, and why."""

    number: int
    text: str


_Key = tuple[str, str | None, str | None]


class Checker:
    """Does tasks; keeps what it compiled last."""

    def __init__(self) -> None:
        self._compiled: LruCache[_Key, Compiled] = LruCache(_KEPT)

    def check(self, task: Task) -> list[Refusal]:
        """Return the pieces that are refused."""
        compiled, refused = self._find((task.type, task.payload, task.attributes)), []
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


def frame(content: bytes) -> Iterable[bytes]:
    """Return what is written for some content."""
    return len(content).to_bytes(LENGTH, "big"), content


def serve(source: BinaryIO, sink: BinaryIO) -> None:
    """Answer tasks until there are no more."""
    checker, decoder = Checker(), msgspec.msgpack.Decoder(Task)
    sink.writelines(frame(READY))
    sink.flush()
    while head := source.read(LENGTH):
        task = decoder.decode(source.read(int.from_bytes(head, "big")))
        _limit_time()
        sink.writelines(frame(msgspec.msgpack.encode(checker.check(task))))
        sink.flush()


def _limit_time() -> None:
    """End this process if a task takes far too long: the operating system does it, in any state of the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + CPU_SECONDS, resource.RLIM_INFINITY))


def main() -> None:
    """Limit this process, then serve."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a key pressed for the service; it ends this process itself
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(5)
    serve(sys.stdin.buffer, sys.stdout.buffer)


if __name__ == "__main__":
    main()
