"""Takes backups while the service runs, restores them onto another machine, and checks them by its answers there.

`ams.app.backup.live_copy` takes the backup, in a thread of a process of its own. Not simulated are the Unix socket that
asks the service to keep its files, and the files of the copy.
"""

import asyncio
import contextlib
import dataclasses
import os
import queue
import random
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ams.app.backup import live_copy
from ams.core.errors import AmsError
from ams.storage.folder import Folder
from ams.storage.log.embedded import LogFile
from simulation.clients import FOREVER, SimClient, Traffic
from simulation.histories.attempts import Ack, Ending, Outcome, Publish, Seek
from simulation.histories.history import topic_violations
from simulation.histories.scene import ending
from simulation.node import Node, settings_for
from simulation.sqlite_files import sqlite_files
from simulation.threads import SimQueue

if TYPE_CHECKING:
    from simulation.workload import Stage

PORT = 8180
ANSWER_SECONDS = 60.0
LOOK_SECONDS = 0.05  # interval at which a waiting backup checks whether the service has ended
READY_SECONDS = 120.0


@dataclass
class Copy:
    """A backup: its start, and the files of the data folder by name."""

    began: float
    files: dict[str, bytes]


class _RetentionHold:
    """Retention hold: the running service deletes no file of the log. For a thread of another process."""

    def __init__(self, node: Node) -> None:
        self._node, self._life = node, node.life
        self._answers = SimQueue()
        self._questions: asyncio.Queue[str] | None = None
        self._call(self._begin)

    def parts(self) -> Sequence[LogFile]:
        """Return the files that make up the log now."""
        return list(self._ask("files"))

    def confirm(self) -> None:
        """Return if no file was deleted since; raises otherwise."""
        self._ask("keep")

    def close(self) -> None:
        """Release the hold."""
        self._call(lambda: self._questions.put_nowait("end") if self._questions is not None else None)

    def _ask(self, question: str) -> Any:
        self._call(lambda: self._questions.put_nowait(question) if self._questions is not None else None)
        while self._life is self._node.life:
            with contextlib.suppress(queue.Empty):
                answer = self._answers.get(timeout=LOOK_SECONDS)
                if answer is None:
                    break
                return answer
        raise OSError("the service ended while it was copied")

    def _call(self, act: Callable[[], object]) -> None:
        life = self._life
        if life is None or life.is_dying or life is not self._node.life:
            raise OSError("the service has ended")
        life.loop.call_soon_threadsafe(act)

    def _begin(self) -> None:
        self._questions = asyncio.Queue()
        task = asyncio.get_running_loop().create_task(self._keep(self._questions))
        task.add_done_callback(lambda _: None)

    async def _keep(self, questions: "asyncio.Queue[str]") -> None:
        service = self._node.service
        if service is None or service.embedded is None:
            self._answers.put(None)
            return
        async with service.embedded.upkeep.keep_files() as files:
            while True:
                try:
                    async with asyncio.timeout(ANSWER_SECONDS):
                        question = await questions.get()
                except TimeoutError:
                    return
                if question == "end":
                    return
                self._answers.put(await files() if question == "files" else True)


async def take(node: Node) -> Copy | None:
    """Take a backup; None when the service ended meanwhile, or cannot be copied now."""
    began = node.world.now
    return await asyncio.to_thread(_copy_files, node, began) if node.service is not None else None


def _copy_files(node: Node, began: float) -> Copy | None:
    folder = Folder(node.folder)
    found: dict[str, bytes] = {}
    try:
        with contextlib.closing(_RetentionHold(node)) as kept, live_copy._moment(folder, kept, node.clock) as moment:  # type: ignore[arg-type]
            found["registry.db"] = moment.registry.serialize()
            for part in moment.parts:
                node.disk.take_time()
                content = node.disk.content(f"{folder.log}/{part.name}")
                found[f"log/{part.name}"] = content if part.length is None else content[: part.length]
            found["token.key"] = node.disk.content(folder.token_key)
            kept.confirm()
    except (OSError, KeyError, AssertionError, AmsError, sqlite3.Error, queue.Empty):
        return None  # the service ended, or its disk fails
    return Copy(began, found)


async def broken_laws(copy: Copy, node: Node, stages: "Sequence[Stage]", traffic: "Traffic") -> list[str]:
    """Restore a backup onto a new machine; return violations: data that was confirmed before it began is missing."""
    folder = f"{node.folder}-restored"
    other = Node(node.world, folder, settings_for(folder, port=PORT))
    other.port, other.name = PORT, "restored"
    for name, content in copy.files.items():
        other.disk.keep(os.path.join(folder, name), content)
    found: list[str] = []
    with sqlite_files().mount(folder, other.disk):
        other.boot()
        until = node.world.now + READY_SECONDS
        while other.service is None:
            if node.world.now > until:
                return ["restored: the service does not start"]
            await asyncio.sleep(0.1)
        for stage in stages:
            client = SimClient(f"{stage.project}-restored", other, traffic, stage.project, random.Random(stage.project))
            said = _missing(copy, stage, await ending(client, stage.history.subscriptions))
            found += [f"restored: project {stage.project}: {each}" for each in said]
            client.close()
        other.leave()
    return found


def _missing(copy: Copy, stage: "Stage", there: Ending) -> Iterator[str]:
    """Yield the violations in a copy. Requests answered since it began may be in it or not."""
    attempts = [
        each if each.ended < copy.began or not isinstance(each, Publish)
        else dataclasses.replace(each, outcome=Outcome.UNKNOWN, ids=(), ended=FOREVER)
        for each in stage.attempts([])
    ]  # fmt: skip
    for topic, held in there.topics.items():
        yield from topic_violations(topic, held, [e for e in attempts if isinstance(e, Publish) and e.topic == topic])
    for name, cursor in there.cursors.items():
        acks = [each for each in attempts if isinstance(each, Ack) and each.subscription == name]
        done = [each.last + 1 for each in acks if each.outcome is Outcome.DONE and each.ended < copy.began]
        is_sought = any(isinstance(each, Seek) and each.subscription == name for each in attempts)
        if not is_sought and cursor < max(done, default=0):
            yield f"{name} stands at {cursor}, and {max(done)} was acknowledged before"
        if cursor > len(there.topics[stage.history.subscriptions[name]]):
            yield f"{name} stands at {cursor}, beyond the end of its topic"
