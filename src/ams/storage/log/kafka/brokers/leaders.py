"""Which broker leads which topic, looked up when asked for: all topics asked about at a time in one question."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from aiokafka.errors import KafkaError, LeaderNotAvailableError, for_code

from ams.storage.log.kafka.brokers.links import NodeId

AT_ONCE = 1000
"""Topics in one question."""

LeaderReply = NodeId | Exception
"""The leader of a topic, or the `KafkaError` that says why there is none."""


class Leaders:
    """Leaders as last told; `ask` is given names of topics and returns a metadata response."""

    def __init__(self, ask: Callable[[list[str]], Awaitable[Any]]) -> None:
        self._ask = ask
        self._known: dict[str, NodeId] = {}
        self._wanted: dict[str, asyncio.Future[LeaderReply]] = {}
        self._asking: asyncio.Task[None] | None = None

    async def of(self, name: str) -> NodeId:
        """Return the leader of a topic; `KafkaError` when it is not known now."""
        known = self._known.get(name)
        if known is not None:
            return known
        wanted = self._wanted.get(name)
        if wanted is None:
            wanted = self._wanted[name] = asyncio.get_running_loop().create_future()
        if self._asking is None:
            self._asking = asyncio.create_task(self._run())
        told = await asyncio.shield(wanted)
        if isinstance(told, Exception):
            raise told
        return told

    def known(self, name: str) -> NodeId | None:
        """Return the leader of a topic without asking."""
        return self._known.get(name)

    def forget(self, name: str) -> None:
        """Look a topic's leader up again when it is next asked for."""
        self._known.pop(name, None)

    def forget_node(self, node: NodeId) -> None:
        """Look the leaders up again of all topics that a broker led."""
        self._known = {name: leader for name, leader in self._known.items() if leader != node}

    async def close(self) -> None:
        """Ask no more; who waits is told that it was in vain."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        self._give_up({})  # a task that is cancelled before its first turn gives nobody up

    async def _run(self) -> None:
        asked: dict[str, asyncio.Future[LeaderReply]] = {}
        try:
            while self._wanted:
                names = list(self._wanted)[:AT_ONCE]
                asked = {name: self._wanted.pop(name) for name in names}
                self._tell(asked, await self._answers(names))
        finally:
            self._asking = None
            self._give_up(asked)

    def _give_up(self, asked: dict[str, "asyncio.Future[LeaderReply]"]) -> None:
        """Tell those who still wait, for what was asked or is yet to be, that they will not be told."""
        left, self._wanted = asked | self._wanted, {}
        self._tell(left, dict.fromkeys(left, LeaderNotAvailableError("closed")))

    async def _answers(self, names: list[str]) -> dict[str, LeaderReply]:
        try:
            response = await self._ask(names)
        except KafkaError as error:
            return dict.fromkeys(names, error)
        return {name: _leader(code, partitions) for code, name, _, partitions in response.topics}

    def _tell(self, asked: dict[str, "asyncio.Future[LeaderReply]"], answers: dict[str, LeaderReply]) -> None:
        for name, future in asked.items():
            told = answers.get(name, LeaderNotAvailableError(name))
            if not isinstance(told, Exception):
                self._known[name] = told
            if not future.done():
                future.set_result(told)


def _leader(code: int, partitions: Any) -> LeaderReply:
    if code:
        return _error(code)
    for problem, number, leader, *_ in partitions:
        if number == 0:
            return NodeId(leader) if leader >= 0 else _error(problem)
    return _error(0)


def _error(code: int) -> Exception:
    kind: Callable[[], Exception] = for_code(code) if code else LeaderNotAvailableError
    return kind()
