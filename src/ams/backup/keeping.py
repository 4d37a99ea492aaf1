"""Keeping: how somebody who copies the data folder asks the service that owns it to let no file go meanwhile.

The service listens on a Unix socket in the data folder, so whoever may read the folder's files may ask, nobody else,
and nothing is on the network. It never copies anything itself. A line is a question, a line of JSON the answer:

    keep     {"kept": true}                        from now on no file of the log goes, until the connection ends
    files    {"files": [[NAME, LENGTH or null]]}   the log of this moment: names within `log`, how much of each counts
"""

import asyncio
import contextlib
import json
import os
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

import structlog

from ams.errors import AmsError, Unusable
from ams.log.embedded import EmbeddedLog, Part

SOCKET = "control"
"""Its name in the data folder."""
ANSWER_SECONDS = 60
"""How long an answer may take: an index that is being written is finished first."""

logger = structlog.get_logger("ams.backup")

_Files = Callable[[], Awaitable[Sequence[Part]]]


@contextlib.asynccontextmanager
async def answering(folder: str, log: EmbeddedLog) -> AsyncIterator[None]:
    """Answer those who copy this folder until the block ends. Without a socket the service goes on without backups."""
    try:
        sock = _bound(folder)
    except OSError as error:
        logger.warning("backup.unavailable", reason=error.strerror)
        yield
        return
    keeper = _Keeper(log)
    server = await asyncio.start_unix_server(keeper.answer, sock=sock)
    try:
        yield
    finally:
        server.close()
        await keeper.close()
        with contextlib.suppress(OSError):
            os.unlink(os.path.join(folder, SOCKET))


class _Keeper:
    """Answers connections; each keeps the log's files as long as it lasts."""

    def __init__(self, log: EmbeddedLog) -> None:
        self._log = log
        self._answering: set[asyncio.Task[None]] = set()

    def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer a connection until it ends."""
        task = asyncio.ensure_future(self._answer(reader, writer))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    async def close(self) -> None:
        """End all connections: who copies must not believe that files are still kept."""
        for task in self._answering:
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        began = time.monotonic()
        try:
            async with self._log.kept() as files:
                logger.info("backup.begun")
                await _talk(reader, writer, files)
        except (OSError, ValueError, AmsError) as error:  # who asked sees the connection end
            logger.warning("backup.failed", reason=str(error))
        finally:
            logger.info("backup.ended", seconds=round(time.monotonic() - began, 3))
            writer.close()


async def _talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, files: _Files) -> None:
    while line := await reader.readline():
        question = line.strip()
        if question == b"keep":
            answer: object = {"kept": True}
        elif question == b"files":
            answer = {"files": await files()}
        else:
            answer = {"error": "ask keep or files"}
        writer.write(json.dumps(answer).encode() + b"\n")
        await writer.drain()


class Kept:
    """A running service's promise to let no file go; made by `keep`."""

    def __init__(self, sock: socket.socket, folder: str) -> None:
        self._sock = sock
        self._reader = sock.makefile("rb")
        self._folder = folder

    def confirm(self) -> None:
        """Return if all files were and are kept; raise `Unusable` when the service has ended meanwhile."""
        self._ask("keep")

    def parts(self) -> Sequence[Part]:
        """Return the files that are the log of this moment; raise `Unusable` as `confirm`."""
        return [Part(name, length) for name, length in self._ask("files")["files"]]

    def close(self) -> None:
        """Let the files go."""
        self._reader.close()
        self._sock.close()

    def _ask(self, question: str) -> dict[str, list[tuple[str, int | None]]]:
        try:
            self._sock.sendall(question.encode() + b"\n")
            answer: dict[str, list[tuple[str, int | None]]] = json.loads(self._reader.readline())
        except (OSError, ValueError) as error:
            raise Unusable(f"the service on {self._folder} ended while it was copied; try again") from error
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
        # Nobody can come in before it listens.
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
