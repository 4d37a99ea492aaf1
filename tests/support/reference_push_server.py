"""A push server with the reference's wire: bytes in, bytes out, answers of push contract 3."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field
from typing import Any

import grpc

from tests.support.wire_bytes import decode_fields, encode_fields

_NOTHING = grpc.StatusCode.OK


@dataclass
class ReferencePushServer:
    """Stores activations; `fault` makes every call fail."""

    address: str = ""
    active: dict[str, dict[int, int | bytes]] = field(default_factory=dict)
    """Fields of push configurations, by full names."""
    calls: list[tuple[str, bytes]] = field(default_factory=list)
    state: str = "ok"
    fault: tuple[grpc.StatusCode, str] | None = None
    hangs: bool = False
    most: int = 0  # calls that were under way at once
    _now: int = 0

    @property
    def port(self) -> int:
        return int(self.address.rpartition(":")[2])

    def handlers(self) -> list[grpc.GenericRpcHandler]:
        push = {
            "ActivateSubscription": self._activate, "DeactivateSubscription": self._deactivate,
            "SubscriptionStatus": self._look, "Status": self._status,
        }  # fmt: skip
        made = {"PushService": push, "grpc.health.v1.Health": {"Check": self._check}}
        return [
            grpc.method_handlers_generic_handler(
                service,
                {name: grpc.unary_unary_rpc_method_handler(self._note_calls(name, each)) for name, each in of.items()},
            )
            for service, of in made.items()
        ]

    def _note_calls(self, name: str, answer: Callable[[bytes], tuple[grpc.StatusCode, str | bytes]]) -> Any:
        async def answer_call(request: bytes, context: Any) -> bytes:
            self.calls.append((name, request))
            self._now += 1
            self.most = max(self.most, self._now)
            await asyncio.sleep(30 if self.hangs else 0.001)
            self._now -= 1
            if self.fault:
                await context.abort(*self.fault)
            code, text = answer(request)
            if code is not _NOTHING:
                await context.abort(code, text)
            return text if isinstance(text, bytes) else encode_fields((1, text))

        return answer_call

    def _activate(self, request: bytes) -> tuple[grpc.StatusCode, str]:
        told = decode_fields(_bytes(decode_fields(request)[1]))
        name = _bytes(told[1]).decode()
        if name in self.active:
            return grpc.StatusCode.ALREADY_EXISTS, f"Subscription {name} is already activated"
        self.active[name] = decode_fields(_bytes(told[4]))
        return _NOTHING, f"Subscription {name} activated"

    def _deactivate(self, request: bytes) -> tuple[grpc.StatusCode, str]:
        name = _bytes(decode_fields(request)[1]).decode()
        if self.active.pop(name, None) is None:
            return grpc.StatusCode.NOT_FOUND, f"Subscription {name} is not active"
        return _NOTHING, f"Subscription {name} deactivated"

    def _look(self, request: bytes) -> tuple[grpc.StatusCode, str]:
        name = _bytes(decode_fields(request)[1]).decode()
        if name not in self.active:
            return grpc.StatusCode.NOT_FOUND, f"Subscription {name} is not active"
        return _NOTHING, f"Subscription {name} is currently active"

    def _status(self, _request: bytes) -> tuple[grpc.StatusCode, str | bytes]:
        if self.state == "ok":
            return _NOTHING, b""
        unable = "The push service is currently unable to handle any requests"
        return grpc.StatusCode.INTERNAL, f"{unable}.{self.state}"

    def _check(self, _request: bytes) -> tuple[grpc.StatusCode, str | bytes]:
        if self.state == "ok":
            return _NOTHING, encode_fields((1, 1))
        return grpc.StatusCode.INTERNAL, "The push service is currently unable to handle any requests"


def _bytes(value: int | bytes) -> bytes:
    assert isinstance(value, bytes)
    return value


@contextlib.asynccontextmanager
async def reference_push_server(
    credentials: grpc.ServerCredentials | None = None, port: int = 0
) -> AsyncIterator[ReferencePushServer]:
    made = ReferencePushServer()
    server = grpc.aio.server(options=[("grpc.so_reuseport", 0)])
    server.add_generic_rpc_handlers(made.handlers())
    place = f"127.0.0.1:{port}"
    bound = server.add_secure_port(place, credentials) if credentials else server.add_insecure_port(place)
    made.address = f"127.0.0.1:{bound}"
    await server.start()
    try:
        yield made
    finally:
        await server.stop(0)
