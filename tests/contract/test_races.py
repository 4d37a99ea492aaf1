"""Many clients send the same request at once: one succeeds, all others get the contract's refusal."""

import asyncio
import itertools
from collections import Counter
from collections.abc import AsyncIterator, Callable

import httpx
import pytest

from tests.support.served import InProcessService
from tests.support.service import asking

MANY = 20
_count = itertools.count(1)


@pytest.fixture
def name() -> str:
    return f"race-{next(_count)}"


@pytest.fixture
async def client(service: Callable[[str], InProcessService]) -> AsyncIterator[httpx.AsyncClient]:
    served = await asyncio.to_thread(service, "usual")
    async with asking(served.run.base_url + "/v1", served.token) as client:
        yield client


async def count_answers(client: httpx.AsyncClient, method: str, path: str, body: object = None) -> Counter[str]:
    """Send the same request many times at once; return how often each answer came."""
    answers = await asyncio.gather(*(client.request(method, path, json=body) for _ in range(MANY)))
    return Counter("done" if each.status_code == 200 else each.json()["error"]["message"] for each in answers)


@pytest.mark.parametrize(("kind", "taken", "gone"), [
    ("projects", "Project already exists", "project doesn't exist"),
    ("users", "User already exists", "User doesn't exist"),
])  # fmt: skip
async def test_17_3_u11_one_caller_wins(client: httpx.AsyncClient, name: str, kind: str, taken: str, gone: str) -> None:
    """17.3 U11."""
    assert await count_answers(client, "POST", f"/{kind}/{name}", {}) == {"done": 1, taken: MANY - 1}
    assert await count_answers(client, "DELETE", f"/{kind}/{name}") == {"done": 1, gone: MANY - 1}


async def test_17_3_u14_a_membership_is_made_once_and_ended_once(client: httpx.AsyncClient, name: str) -> None:
    await client.post(f"/projects/{name}", json={})
    await client.post(f"/users/{name}", json={})

    added = await count_answers(client, "POST", f"/projects/{name}/members/{name}:add", {"roles": ["publisher"]})
    removed = await count_answers(client, "POST", f"/projects/{name}/members/{name}:remove")

    assert added == {"done": 1, "User is already a member of the project": MANY - 1}
    refused = "Access to this resource is forbidden. User is not a member of the project"
    assert removed == {"done": 1, refused: MANY - 1}


async def test_6_a_registration_is_made_once_and_accepted_once(client: httpx.AsyncClient, name: str) -> None:
    asked = await count_answers(client, "POST", "/registrations", {"name": name})
    [pending] = (await client.get("/registrations", params={"name": name})).json()["user_registrations"]
    accepted = await count_answers(client, "POST", f"/registrations/{pending['uuid']}:accept")

    assert asked == {"done": 1, "User registration already exists": MANY - 1}
    assert accepted == {"done": 1, "User registration doesn't exist": MANY - 1}
