"""A service as a push server sees it, over HTTP: the calls of push contract 12, optionally with our leases and
waits."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

from ams.http.asgi import Receive, Send, answer
from ams.http.operations import small_server
from ams.web.server import listen

TOKEN = "the-token-of-the-worker"
ONE = re.compile(r"/v1/projects/([\w-]+)/subscriptions/([\w-]+)(?::(\w+))?")
Json = dict[str, Any]


def push_config(**changes: Any) -> Json:
    return {
        "type": "http_endpoint", "pushEndpoint": "https://example.com/in", "maxMessages": 1, "verified": True,
        "authorizationHeader": {"type": "autogen", "value": "secret"},
        "retryPolicy": {"type": "linear", "period": 3000}, "verificationHash": "h",
        "mattermostUrl": "", "mattermostUsername": "", "mattermostChannel": "", "base64Decode": False,
    } | changes  # fmt: skip


@dataclass
class ReferenceAms:
    """Its subscriptions by path, and the requests it got."""

    url: str = ""
    subscriptions: dict[str, Json] = field(default_factory=dict)
    listed: set[str] = field(default_factory=set)  # paths on whose access lists the worker is
    messages: dict[str, list[str]] = field(default_factory=dict)
    acked: dict[str, int] = field(default_factory=dict)
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    faults: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    """Answers given instead, in order, to paths with this end."""
    ordering_key: str = ""  # of every message, as a service that knows keys shows it
    leases: bool = False
    waits: bool = False
    leased: list[Json] = field(default_factory=list)
    heartbeats: list[Json] = field(default_factory=list)
    grown: asyncio.Event = field(default_factory=asyncio.Event)

    def add(self, name: str, *, deadline: int = 10, **config: Any) -> str:
        path = f"/projects/p/subscriptions/{name}"
        self.subscriptions[path] = {
            "name": path, "topic": "/projects/p/topics/t", "pushConfig": push_config(**config),
            "ackDeadlineSeconds": deadline,
        }  # fmt: skip
        self.listed.add(path)
        return path

    def lease(self, name: str, **config: Any) -> Json:
        """Return a target as in the answer to a heartbeat."""
        return {
            "id": f"id-of-{name}", "name": f"/projects/p/subscriptions/{name}", "topic": "/projects/p/topics/t",
            "topicId": "topic", "ackDeadlineSeconds": 20, "pushConfig": push_config(**config), "secrets": ["whsec_x"],
        }  # fmt: skip

    def publish(self, path: str, *data: str) -> None:
        self.messages.setdefault(path, []).extend(data)
        self.grown.set()

    def count(self, ending: str) -> int:
        """Return how often a path with this end was requested."""
        return sum(path.endswith(ending) for _, path, _ in self.asked)

    async def __call__(self, scope: Json, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        status, text = await self._answer(scope, json.loads(body) if body else None)
        with contextlib.suppress(OSError):
            await answer(send, status, text.encode(), [(b"content-type", b"application/json")])

    async def _answer(self, scope: Json, body: Any) -> tuple[int, str]:
        path = scope["path"]
        self.asked.append((scope["method"], path, body))
        if dict(scope["headers"]).get(b"x-api-key") != TOKEN.encode():
            return error(401, "Unauthorized", "UNAUTHORIZED")
        for ending, answers in self.faults.items():
            if path.endswith(ending) and answers:
                return answers.pop(0)
        if path == "/v1/users/profile":
            return 200, json.dumps(self._profile())
        if path == "/v1/push:lease" and self.leases:
            self.heartbeats.append(body)
            return 200, json.dumps({"leaseSeconds": 6, "beatSeconds": 0.05, "version": "v", "targets": self.leased})
        if path == "/v1/push:wait" and self.waits:
            return 200, json.dumps({"ready": await self._ready(body)})
        found = ONE.fullmatch(path)
        if found is None:
            return 404, "404 page not found\n"
        return self._of_one(f"/projects/{found[1]}/subscriptions/{found[2]}", found[3], body)

    async def _ready(self, body: Json) -> list[str]:
        loop = asyncio.get_running_loop()
        until = loop.time() + min(body["seconds"], 1)
        while True:
            self.grown.clear()
            ready = [
                each
                for each in body["subscriptions"]
                if self._unacked_messages(f"/projects/p/subscriptions/{each[6:]}")
            ]
            if ready or loop.time() >= until:
                return ready
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self.grown.wait(), until - loop.time())

    def _unacked_messages(self, path: str) -> list[str]:
        return self.messages.get(path, [])[self.acked.get(path, 0) :]

    def _of_one(self, path: str, verb: str | None, body: Any) -> tuple[int, str]:
        if path not in self.subscriptions:
            return error(404, "Subscription doesn't exist", "NOT_FOUND")
        if verb is None:
            return 200, json.dumps(self.subscriptions[path])
        if verb == "pull":
            assert body == {"maxMessages": body["maxMessages"], "returnImmediately": "true"}
            return 200, json.dumps(
                {"receivedMessages": self._pulled_messages(path, int(body["maxMessages"]))}, indent=3
            )
        if verb == "acknowledge":
            [ack] = body["ackIds"]
            self.acked[path] = int(ack.rpartition(":")[2]) + 1
            return 200, "{}"
        return error(404, "unknown", "NOT_FOUND")

    def _pulled_messages(self, path: str, most: int) -> list[Json]:
        first = self.acked.get(path, 0)
        return [
            {
                "ackId": f"{path[1:]}:{first + index}",
                **({"orderingKey": self.ordering_key} if self.ordering_key else {}),
                "message": {"messageId": str(first + index), "data": data, "publishTime": "2026-01-01T00:00:00Z",
                            "attributes": {"k": "v"}},
            }
            for index, data in enumerate(self._unacked_messages(path)[:most])
        ]  # fmt: skip

    def _profile(self) -> Json:
        names = sorted(path.rpartition("/")[2] for path in self.listed)
        return {"uuid": "u", "name": "push_worker_0", "projects": [{"project": "p", "subscriptions": names}]}


def error(code: int, message: str, status: str) -> tuple[int, str]:
    return code, json.dumps({"error": {"code": code, "message": message, "status": status}})


@contextlib.asynccontextmanager
async def reference_ams(port: int = 0) -> AsyncIterator[ReferenceAms]:
    made = ReferenceAms()
    with contextlib.closing(listen("127.0.0.1", port, "port")) as sock:
        made.url = f"http://127.0.0.1:{sock.getsockname()[1]}"
        server = small_server(made, "reference")
        server.start(sock)
        try:
            yield made
        finally:
            await server.stop(0)
