"""Modelled brokers on machines of a world: requests and responses go over the network, in order.

A request that arrived is answered, even if its sender is gone; the response may be lost. A broker answers the requests
of a connection one after another.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable
from typing import Any

from aiokafka.errors import KafkaConnectionError

from simulation.models.kafka import VERSIONS, Answering, Cluster, encode_response
from simulation.network import Network
from simulation.process import SimProcess

WORK_SECONDS = (20e-6, 1e-3)  # of a request


class SimBrokers:
    """The brokers of a world, and the connections to them."""

    def __init__(self, network: Network, cluster: Cluster) -> None:
        self.network, self.cluster, self.world = network, cluster, network.world
        self.open: dict[SimBrokerConnection, None] = {}
        self._numbers = 0

    def stop(self, number: int) -> None:
        """Stop a broker; its connections are lost."""
        for each in [each for each in self.open if each.number == number]:
            each.end()
        self.cluster.stop(number)

    def start(self, number: int) -> None:
        """Start a broker."""
        self.cluster.start(number)

    def end_of(self, process: SimProcess) -> None:
        """Forget the connections of a process that has ended."""
        for each in [each for each in self.open if each.process is process]:
            del self.open[each]

    async def connect(self, number: int, host: str, port: int, seconds: float) -> "SimBrokerConnection":
        """Connect to a broker. Waits during a partition. Raises `ConnectionRefusedError`."""
        process = SimProcess.running()
        self._numbers += 1
        made = SimBrokerConnection(self, number, (host, port), process, seconds, self._numbers)
        answer: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def arrive() -> None:
            is_there = self.cluster.brokers[number]
            made.to_client(lambda: None if answer.done() else answer.set_result(is_there), "broker has connected")

        made.to_broker(arrive, "connection to a broker")
        if not await answer:
            raise ConnectionRefusedError
        self.open[made] = None
        return made


class BrokerAddress:
    """The address of one broker."""

    def __init__(self, brokers: SimBrokers, number: int) -> None:
        self._brokers, self._number = brokers, number

    async def connect(self, host: str, port: int, seconds: float) -> "SimBrokerConnection":
        return await self._brokers.connect(self._number, host, port, seconds)


class SimBrokerConnection:
    """A connection to a broker, with the methods that AMS uses."""

    def __init__(
        self,
        brokers: SimBrokers,
        number: int,
        address: tuple[str, int],
        process: SimProcess,
        seconds: float,
        place: int,
    ) -> None:
        self.number, self.process, (self.host, self.port) = number, process, address
        self._brokers, self._seconds = brokers, seconds
        self._machine = f"kafka{number}"
        self._chance = random.Random(f"{brokers.world.seed} kafka {place}")
        self._is_open = True
        self._waiting: dict[asyncio.Future[Any], None] = {}
        self._requests: deque[tuple[Any, asyncio.Future[Any]]] = deque()  # at the broker
        self._is_busy = False
        self._there = self._back = 0.0

    def connected(self) -> bool:
        """Return whether the connection is open."""
        return self._is_open

    def close(self) -> None:
        """Close it; requests under way fail."""
        if self._is_open:
            self._is_open = False
            self._brokers.open.pop(self, None)
            for future in list(self._waiting):
                if not future.done():
                    future.set_exception(KafkaConnectionError(f"Connection at {self.host}:{self.port} closed"))

    async def send(self, request: Any) -> Any:
        """Return the response. Raises `KafkaConnectionError`, `TimeoutError`."""
        if not self._is_open:
            raise KafkaConnectionError(f"No connection to broker at {self.host}:{self.port}")
        made = request.prepare(VERSIONS)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[future] = None
        self.to_broker(lambda: self._take(made, future), f"request {made.API_KEY}")
        try:
            async with asyncio.timeout(self._seconds):
                fields = await future
        finally:
            self._waiting.pop(future, None)
        return encode_response(made, fields)

    # At the broker

    def end(self) -> None:
        """Note that the broker has ended."""
        self._requests.clear()
        self.to_client(self.close, "connection to a broker was lost")

    def _take(self, made: Any, future: "asyncio.Future[Any]") -> None:
        self._requests.append((made, future))
        self._go_on()

    def _go_on(self) -> None:
        if self._is_busy or not self._requests:
            return
        made, future = self._requests.popleft()
        self._is_busy = True
        answering = self._brokers.cluster.answer(self.number, made)
        seconds = self._brokers.world.draw(WORK_SECONDS, self._chance)
        self._brokers.world.after(seconds, lambda: self._step(answering, future), "broker works")

    def _step(self, answering: Answering, future: "asyncio.Future[Any]") -> None:
        cluster = self._brokers.cluster
        if not cluster.brokers[self.number]:
            self._is_busy = False
            return
        try:
            seconds = next(answering) - cluster.now()
        except StopIteration as done:
            fields = done.value
            self._is_busy = False
            self.to_client(lambda: None if future.done() else future.set_result(fields), "response")
            self._go_on()
            return
        is_gone_on = False

        def go_on() -> None:
            nonlocal is_gone_on
            if not is_gone_on:
                is_gone_on = True
                timer.cancel()
                cluster.waiting.pop(self, None)
                self._step(answering, future)

        def go_on_soon() -> None:
            self._brokers.world.after(0.0, go_on, "broker has news")

        timer = self._brokers.world.after(seconds, go_on, "broker has waited")
        cluster.waiting[self] = go_on_soon

    def to_broker(self, action: Callable[[], None], label: str) -> None:
        """Run an action on arrival at the broker."""
        network = self._brokers.network
        self._there = max(self._there, self._brokers.world.now + network.near_latency(self._chance))
        network.deliver(self.process.machine, self._machine, None, self._there, action, label)

    def to_client(self, action: Callable[[], None], label: str) -> None:
        """Run an action on arrival at the client."""
        if self.process.is_dying:
            return
        network = self._brokers.network
        self._back = max(self._back, self._brokers.world.now + network.near_latency(self._chance))
        network.deliver(self._machine, self.process.machine, self.process, self._back, action, label)
