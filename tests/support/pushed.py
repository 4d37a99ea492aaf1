"""Many pushed subscriptions at once, for tests and benches of push with many endpoints.

async with Api(service.base_url, service.token) as api:
    await api.must("", {})
    await pushed(api, receiver.ca, [Endpoint("s", receiver.url("/ok"))])
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlsplit

import httpx

from tests.support.waiting import PATIENCE_SECONDS

AT_ONCE = 4  # endpoints that are verified at the same time; the service refuses more of one project
NOTHING: Mapping[str, object] = {}
NOT_KEPT = httpx.Limits(max_keepalive_connections=0)


class Api(httpx.AsyncClient):
    """Calls of a service with a fixed address, in one project."""

    def __init__(self, url: str, token: str, project: str = "FAULTS") -> None:
        self.project = f"projects/{project}"
        base, headers = f"{url}/v1/{self.project}", {"x-api-key": token}
        super().__init__(base_url=base, headers=headers, timeout=PATIENCE_SECONDS, trust_env=False)

    async def must(self, path: str, body: object, *, method: str = "POST") -> Any:
        answer = await self.ask(path, body, method=method)
        assert answer.status_code == 200, f"{method} {path} was answered {answer.status_code}: {answer.text}"
        return answer.json() if answer.content else None

    async def ask(self, path: str, body: object, *, method: str = "POST") -> httpx.Response:
        url = f"{self.base_url}".removesuffix("/") + path
        return await self.request(method, url, json=body)

    async def status(self, subscription: str) -> str:
        return str((await self.must(f"/subscriptions/{subscription}", None, method="GET")).get("pushStatus"))


class Endpoint(NamedTuple):
    """A subscription and its endpoint's URL; its topic has the same name, by default."""

    name: str
    url: str
    topic: str = ""

    @property
    def of(self) -> str:
        return self.topic or self.name


async def create_pushes(api: Api, ca: str, endpoints: Sequence[Endpoint], more: Mapping[str, object] = NOTHING) -> None:
    """Create topics and subscriptions, and verify all endpoints; `more` has further push options."""
    await create_subscriptions(api, endpoints, more)
    await verify_endpoints(api, ca, endpoints)


async def create_subscriptions(api: Api, endpoints: Sequence[Endpoint], more: Mapping[str, object] = NOTHING) -> None:
    """Create missing topics, and subscriptions with unverified endpoints."""
    places = asyncio.Semaphore(AT_ONCE)
    topics = {each.of for each in endpoints}

    async def topic(name: str) -> None:
        async with places:
            await api.ask(f"/topics/{name}", None, method="PUT")

    async def subscription(endpoint: Endpoint) -> None:
        async with places:
            push = {"type": "http_endpoint", "pushEndpoint": endpoint.url} | more
            body = {"topic": f"{api.project}/topics/{endpoint.of}", "pushConfig": push}
            await api.must(f"/subscriptions/{endpoint.name}", body, method="PUT")

    await asyncio.gather(*map(topic, topics))
    await asyncio.gather(*map(subscription, endpoints))


async def verify_endpoints(api: Api, ca: str, endpoints: Sequence[Endpoint]) -> None:
    """Verify endpoints at receivers, which starts their deliveries.

    Those on one port one after the other, as a port shows one hash at a time.
    """
    places = asyncio.Semaphore(AT_ONCE)
    ports = {urlsplit(each.url).netloc: asyncio.Lock() for each in endpoints}
    trust = ssl.create_default_context(cafile=ca)
    async with httpx.AsyncClient(verify=trust, timeout=PATIENCE_SECONDS, trust_env=False, limits=NOT_KEPT) as receiver:

        async def one(endpoint: Endpoint) -> None:
            port = urlsplit(endpoint.url).netloc
            async with ports[port], places:
                shown = await api.must(f"/subscriptions/{endpoint.name}", None, method="GET")
                hash_ = shown["pushConfig"]["verificationHash"]
                await receiver.post(f"https://{port}/_hash?port", content=hash_)
                await api.must(f"/subscriptions/{endpoint.name}:verifyPushEndpoint", None)

        await asyncio.gather(*map(one, endpoints))
