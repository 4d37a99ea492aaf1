"""Backup protocol: a program that copies the data folder asks its service to delete no files meanwhile.

The service listens on a Unix socket in the data folder: whoever may read the folder's files may ask, and nothing is on
the network. The service copies nothing itself. A request is a line of text, the answer a line of JSON:

    keep     {"kept": true}                        no file of the log is deleted until the connection ends
    files    {"files": [[NAME, LENGTH or null]]}   the log of this moment: names within `log`, length of each in use

The copying program repeats `keep` while it makes progress. After a minute of silence (a process that was suspended, or
hangs at its disk) the service deletes files again and ends the connection. Its last line says so:

    {"given_up": SECONDS}
"""

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

import structlog

from ams.core.errors import AmsError, Unusable
from ams.storage.files import short_path
from ams.storage.log.embedded import EmbeddedLog, LogFile

SOCKET = "control"  # file name in the data folder
ANSWER_SECONDS = 60  # timeout of an answer: the service may have to finish an index first

SILENCE_SECONDS = 60.0  # silence after which the service gives a copy up; half of it logs a warning
SAID_EVERY_SECONDS = 5.0  # between two `keep` of a copy in progress

logger = structlog.get_logger("ams.backup")

_Files = Callable[[], Awaitable[Sequence[LogFile]]]


@contextlib.asynccontextmanager
async def serve_backups(folder: str, log: EmbeddedLog, silent_seconds: float = SILENCE_SECONDS) -> AsyncIterator[None]:
    """Answer copying programs until the block ends. A copy is given up after `silent_seconds` without a line."""
    try:
        sock = _bind_socket(folder)
    except OSError as error:
        logger.warning("backup.unavailable", reason=error.strerror)
        yield
        return
    tasks: set[asyncio.Task[None]] = set()

    def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(_answer(log, reader, writer, silent_seconds))
        tasks.add(task)
        task.add_done_callback(tasks.discard)

    server = await asyncio.start_unix_server(answer, sock=sock)
    try:
        yield
    finally:
        server.close()
        for task in tasks:  # a copying program must not rely on them any more
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, SOCKET))


async def _answer(
    log: EmbeddedLog, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, silent_seconds: float
) -> None:
    began = time.monotonic()
    try:
        async with log.upkeep.keep_files() as files:
            logger.info("backup.begun")
            await _answer_requests(reader, writer, files, silent_seconds)
    except TimeoutError:
        logger.warning("backup.given_up", silent_seconds=silent_seconds)
        writer.write(json.dumps({"given_up": silent_seconds}).encode() + b"\n")
        if writer.transport.get_write_buffer_size():
            writer.transport.abort()  # the client reads nothing, so do not wait for it
    except (OSError, ValueError, AmsError) as error:  # the client sees the connection end
        logger.warning("backup.failed", reason=str(error))
    finally:
        logger.info("backup.ended", seconds=round(time.monotonic() - began, 3))
        writer.close()


async def _answer_requests(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, files: _Files, silent_seconds: float
) -> None:
    while line := await _read_question(reader, silent_seconds):
        question = line.strip()
        if question == b"keep":
            answer: object = {"kept": True}
        elif question == b"files":
            answer = {"files": await files()}
        else:
            answer = {"error": "ask keep or files"}
        writer.write(json.dumps(answer).encode() + b"\n")
        async with asyncio.timeout(silent_seconds):
            await writer.drain()


async def _read_question(reader: asyncio.StreamReader, silent_seconds: float) -> bytes:
    """Return the next line; log a warning when it is late. Raises `TimeoutError`."""
    half = silent_seconds / 2
    try:
        async with asyncio.timeout(half):
            return await reader.readline()
    except TimeoutError:
        logger.warning("backup.silent", seconds=half, given_up_in_seconds=half)
    async with asyncio.timeout(half):
        return await reader.readline()


class KeptFiles:
    """A running service's promise to delete no files; created by `keep`."""

    def __init__(self, sock: socket.socket, folder: str) -> None:
        self._sock, self._folder = sock, folder
        self._reader = sock.makefile("rb")
        self._said = time.monotonic()

    def confirm(self) -> None:
        """Return if all files have been kept. Raises `Unusable` if the service has ended or has given this copy up."""
        self._ask("keep")

    def get_on(self) -> None:
        """Report progress to the service, at most every few seconds. Raises `Unusable` as `confirm`."""
        if time.monotonic() - self._said >= SAID_EVERY_SECONDS:
            self.confirm()

    def parts(self) -> Sequence[LogFile]:
        """Return the files of the log at this moment. Raises `Unusable` as `confirm`."""
        return [LogFile(name, length) for name, length in self._ask("files")["files"]]

    def close(self) -> None:
        """Let the service delete files again."""
        self._reader.close()
        self._sock.close()

    def _ask(self, question: str) -> dict[str, Any]:
        try:
            with contextlib.suppress(BrokenPipeError):  # the service's last line may have arrived all the same
                self._sock.sendall(question.encode() + b"\n")
            answer: dict[str, Any] = json.loads(self._reader.readline())
        except (OSError, ValueError) as error:
            raise Unusable(f"the service on {self._folder} ended while it was copied; try again") from error
        if "given_up" in answer:
            raise Unusable(
                f"the service on {self._folder} gave this backup up: nothing was copied for {answer['given_up']:g} s, "
                "and retention cannot wait for ever; try again"
            )
        self._said = time.monotonic()
        return answer


def keep(folder: str) -> KeptFiles:
    """Ask the service of a folder to keep its files. Raises `Unusable` if it does not answer."""
    with contextlib.ExitStack() as made:
        sock = made.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        sock.settimeout(ANSWER_SECONDS)
        try:
            with short_path(folder, SOCKET) as path:
                sock.connect(path)
        except OSError as error:
            raise Unusable(
                f"data folder {folder} is in use, but its service does not answer ({error.strerror}); "
                "is it just starting or ending, or another user's?"
            ) from error
        kept = made.enter_context(contextlib.closing(KeptFiles(sock, folder)))
        kept.confirm()
        made.pop_all()
        return kept


def _bind_socket(folder: str) -> socket.socket:
    """Return a listening socket in the folder, for its owner only. Replaces the socket of a killed service."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, SOCKET))
    with contextlib.ExitStack() as made:
        sock = made.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_STREAM))
        with short_path(folder, SOCKET) as path:
            sock.bind(path)
        os.chmod(os.path.join(folder, SOCKET), 0o600)  # no client can connect before it listens
        made.pop_all()
        return sock
