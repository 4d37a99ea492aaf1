"""Keeping: how a program that copies the data folder asks the service that owns it to let no file go meanwhile.

The service listens on a Unix socket in the data folder, so those who may read the folder's files may ask, no others,
and nothing is on the network. It never copies anything itself. A line is a question, a line of JSON the answer:

    keep     {"kept": true}                        from now on no file of the log goes, until the connection ends
    files    {"files": [[NAME, LENGTH or null]]}   the log of this moment: names within `log`, how much of each counts

Who copies says `keep` again and again as it gets on. When nothing is heard for a minute, as of a process that was
suspended or hangs at its disk, the service lets files go again and ends the connection; the last line says so:

    {"given_up": SECONDS}
"""

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any

import structlog

from ams.core.errors import AmsError, Unusable
from ams.storage.log.embedded import EmbeddedLog, Part

SOCKET = "control"  # its name in the data folder
ANSWER_SECONDS = 60  # how long an answer may take: an index that is being written is finished first

SILENT_SECONDS = 60.0  # after which a silent copy is given up; a warning is logged after half of it
SAID_EVERY_SECONDS = 5.0  # how often a copy that gets on says so

logger = structlog.get_logger("ams.backup")

_Files = Callable[[], Awaitable[Sequence[Part]]]


@contextlib.asynccontextmanager
async def answering(folder: str, log: EmbeddedLog, silent_seconds: float = SILENT_SECONDS) -> AsyncIterator[None]:
    """Answer those who copy this folder until the block ends; a copy silent for `silent_seconds` is given up."""
    try:
        sock = _bound(folder)
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
        async with log.kept() as files:
            logger.info("backup.begun")
            await _talk(reader, writer, files, silent_seconds)
    except TimeoutError:
        logger.warning("backup.given_up", silent_seconds=silent_seconds)
        writer.write(json.dumps({"given_up": silent_seconds}).encode() + b"\n")
        if writer.transport.get_write_buffer_size():
            writer.transport.abort()  # it reads nothing: to wait for that would keep the connection
    except (OSError, ValueError, AmsError) as error:  # who asked sees the connection end
        logger.warning("backup.failed", reason=str(error))
    finally:
        logger.info("backup.ended", seconds=round(time.monotonic() - began, 3))
        writer.close()


async def _talk(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, files: _Files, silent_seconds: float
) -> None:
    """Answer until the other end closes; raise `TimeoutError` when it says nothing, or takes no answer, for so long."""
    while line := await _heard(reader, silent_seconds):
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


async def _heard(reader: asyncio.StreamReader, silent_seconds: float) -> bytes:
    """Return the next line, with a warning when it is late; raise `TimeoutError` when it does not come."""
    half = silent_seconds / 2
    try:
        async with asyncio.timeout(half):
            return await reader.readline()
    except TimeoutError:
        logger.warning("backup.silent", seconds=half, given_up_in_seconds=half)
    async with asyncio.timeout(half):
        return await reader.readline()


class Kept:
    """A running service's promise to let no file go; made by `keep`."""

    def __init__(self, sock: socket.socket, folder: str) -> None:
        self._sock, self._folder = sock, folder
        self._reader = sock.makefile("rb")
        self._said = time.monotonic()

    def confirm(self) -> None:
        """Return if all files were and are kept; raise `Unusable` when the service has ended or given this copy up."""
        self._ask("keep")

    def get_on(self) -> None:
        """Let the service know now and then that the copy gets on; raise `Unusable` as `confirm`."""
        if time.monotonic() - self._said >= SAID_EVERY_SECONDS:
            self.confirm()

    def parts(self) -> Sequence[Part]:
        """Return the files that are the log of this moment; raise `Unusable` as `confirm`."""
        return [Part(name, length) for name, length in self._ask("files")["files"]]

    def close(self) -> None:
        """Let the files go."""
        self._reader.close()
        self._sock.close()

    def _ask(self, question: str) -> dict[str, Any]:
        try:
            with contextlib.suppress(BrokenPipeError):  # the service's last line may be there nevertheless
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


def keep(folder: str) -> Kept:
    """Ask the service that owns a folder to keep its files; raise `Unusable` when it does not answer."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    sock.settimeout(ANSWER_SECONDS)
    try:
        with _short_path(folder) as path:
            sock.connect(path)
    except OSError as error:
        sock.close()
        raise Unusable(
            f"data folder {folder} is in use, but its service does not answer ({error.strerror}); "
            "is it just starting or ending, or another user's?"
        ) from error
    kept = Kept(sock, folder)
    try:
        kept.confirm()
    except BaseException:
        kept.close()
        raise
    return kept


def _bound(folder: str) -> socket.socket:
    """Return a socket in the folder, for the owner only; one that a killed service left goes."""
    with contextlib.suppress(FileNotFoundError):
        os.unlink(os.path.join(folder, SOCKET))
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        with _short_path(folder) as path:
            sock.bind(path)
        # No client can connect before it listens.
        os.chmod(os.path.join(folder, SOCKET), 0o600)
    except OSError:
        sock.close()
        raise
    return sock


@contextlib.contextmanager
def _short_path(folder: str) -> Iterator[str]:
    """Give a path of the socket that is short however deep the folder lies: a socket's may have 107 bytes."""
    handle = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{handle}/{SOCKET}"
    finally:
        os.close(handle)
