"""Push state that no single request shows: races, a missing worker, and 17.2 A5, A13, 17.3 U2."""

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from ams.access.admission import Admission
from ams.core.errors import Conflict, NotAuthenticated, NotFound
from ams.core.push_config import AskedPush, PushConfig
from ams.outgoing.address_guard import Guard, networks, trust
from ams.push.endpoints import MAX_CHECKS_OF_PROJECT, EndpointCheck
from ams.service.push.configurations import Pushing, RotatedSecret
from ams.service.service_doctor import ServiceInfo
from ams.service.subscriptions import Subscriptions
from ams.service.users import FIRST_WORKER, push_worker
from ams.storage.registry.records import Membership, User, UserDetails
from ams.storage.registry.registry import Registry
from tests.support.administration import admit_user
from tests.support.receiver import Receiver, answers, receiver
from tests.support.use_cases import SUB, UseCases
from tests.support.waiting import PATIENCE_SECONDS

WORKER_MEMBERSHIPS = (Membership("P", (), (), (SUB,)),)
TOKEN = "the-token-of-the-push-worker"
HOOK = AskedPush(mattermost_url="https://chat.example/hooks/x")


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with receiver(tmp_path_factory.mktemp("ca"), answers("")) as running:
        yield running


@pytest.fixture
async def use_cases(use_cases: UseCases) -> UseCases:
    assert await push_worker(use_cases.engines.registry, TOKEN)
    return use_cases


@pytest.fixture
def registry(use_cases: UseCases) -> Registry:
    return use_cases.engines.registry


@pytest.fixture
def subscriptions(use_cases: UseCases, pushing: Pushing) -> Subscriptions:
    engines = use_cases.engines
    return Subscriptions(engines.registry, engines.log, engines.cursors, pushing)


@pytest.fixture
def pushing(use_cases: UseCases, endpoint: Receiver) -> Pushing:
    check = EndpointCheck(Guard(networks("127.0.0.0/8", "push_allow")), trust(endpoint.ca))
    return Pushing(use_cases.engines.registry, True, TOKEN, check)


@pytest.fixture
def asked_push(endpoint: Receiver) -> AskedPush:
    return AskedPush(endpoint=f"https://127.0.0.1:{endpoint.port}/in")


async def get_push_config(use_cases: UseCases) -> PushConfig:
    subscription = await use_cases.engines.registry.subscriptions.find(use_cases.caller.here.id, SUB)
    assert subscription.push is not None
    return subscription.push


async def list_access(use_cases: UseCases) -> list[str]:
    return list(await use_cases.engines.registry.subscriptions.access_list(use_cases.caller.here.id, SUB))


async def worker(use_cases: UseCases) -> User:
    return await use_cases.engines.registry.users.by_token(TOKEN)


async def test_a_configuration_changed_while_its_endpoint_was_asked_is_not_verified(
    use_cases: UseCases, pushing: Pushing, endpoint: Receiver, asked_push: AskedPush
) -> None:
    await pushing.modify(use_cases.caller, SUB, asked_push)
    shown = (await get_push_config(use_cases)).verification_hash
    loop = asyncio.get_running_loop()

    def change_then_show(connection: object) -> None:
        elsewhere = replace(asked_push, endpoint=asked_push.endpoint + "/2")
        changing = asyncio.run_coroutine_threadsafe(pushing.modify(use_cases.caller, SUB, elsewhere), loop)
        changing.result(PATIENCE_SECONDS)
        answers(shown)(connection)

    endpoint.behaviour = change_then_show
    with pytest.raises(NotAuthenticated, match="Wrong verification hash"):
        await pushing.verify(use_cases.caller, SUB)

    assert not (await get_push_config(use_cases)).verified
    assert await list_access(use_cases) == []


async def test_of_many_who_verify_at_once_one_does(
    use_cases: UseCases, pushing: Pushing, endpoint: Receiver, asked_push: AskedPush
) -> None:
    await pushing.modify(use_cases.caller, SUB, asked_push)
    endpoint.behaviour = answers((await get_push_config(use_cases)).verification_hash)

    outcomes = await asyncio.gather(
        *(pushing.verify(use_cases.caller, SUB) for _ in range(MAX_CHECKS_OF_PROJECT)), return_exceptions=True
    )

    assert sum(outcome is None for outcome in outcomes) == 1
    assert {str(outcome) for outcome in outcomes if outcome} == {"Push endpoint is already verified"}
    assert await list_access(use_cases) == [FIRST_WORKER]


async def test_parallel_changes_end_with_worker_and_configuration_agreeing(use_cases: UseCases, pushing: Pushing):
    await asyncio.gather(*[pushing.modify(use_cases.caller, SUB, wanted) for wanted in (HOOK, None) * 10])

    found = await use_cases.engines.registry.subscriptions.find(use_cases.caller.here.id, SUB)
    assert ([FIRST_WORKER] if found.push else []) == await list_access(use_cases)
    assert len((await worker(use_cases)).memberships) == 1


async def test_a_worker_pulls_only_while_push_is_enabled(use_cases: UseCases, pushing: Pushing) -> None:
    """HTTP contract 10.3; from a pull subscription also while it is not."""
    caller = await admit_user(use_cases.engines.registry, "subscriptions:pull", await worker(use_cases), "P")
    deliverer = use_cases.deliverer()
    assert (await deliverer.to_pull(caller, SUB)).name == SUB
    await pushing.modify(use_cases.caller, SUB, HOOK)

    with pytest.raises(Conflict, match="^Push functionality is currently disabled$"):
        await deliverer.to_pull(caller, SUB)
    deliverer.push_enabled = True
    assert (await deliverer.to_pull(caller, SUB)).name == SUB


async def test_a_failed_creation_leaves_the_worker_in_place(use_cases: UseCases, subscriptions: Subscriptions) -> None:
    with pytest.raises(NotFound):
        await subscriptions.create(use_cases.caller, "other", "projects/P/topics/none", push=HOOK)
    assert (await worker(use_cases)).memberships == ()


async def test_the_worker_is_made_once(use_cases: UseCases, registry: Registry) -> None:
    """Without a token in the settings it keeps its own."""
    made = await worker(use_cases)
    assert (made.name, made.service_roles) == (FIRST_WORKER, ("push_worker",))

    for token in (TOKEN, ""):
        assert await push_worker(registry, token)
        assert await worker(use_cases) == made


async def test_a_worker_is_given_the_token_that_is_set_now(use_cases: UseCases, registry: Registry, pushing: Pushing):
    """Otherwise a `push_worker_token` set after the first start would break push."""
    await pushing.modify(use_cases.caller, SUB, HOOK)
    before = await worker(use_cases)

    assert await push_worker(registry, "another-token")

    assert await Pushing(registry, True, "another-token").worker() == before.id
    assert await registry.users.principal(TOKEN) is None
    assert (await registry.users.by_token("another-token")).memberships == before.memberships


async def test_who_has_the_name_of_the_worker_and_not_its_role_is_left_alone(use_cases: UseCases, registry: Registry):
    made, without = await worker(use_cases), Pushing(registry, True, "")
    assert await without.worker() == made.id, "without a token it is the user of that name and role"
    await registry.users.update(made.id, UserDetails(service_roles=("admin_viewer",)), None)

    assert not await push_worker(registry, "another-token")

    assert (await worker(use_cases)).name == FIRST_WORKER
    assert await registry.users.principal("another-token") is None
    assert await without.worker() is None

    await registry.users.delete(made.id)
    assert await without.worker() is None
    assert await push_worker(registry)
    assert await without.worker() not in (None, made.id)


async def test_a_worker_that_is_missing_somewhere_is_put_there_at_the_start(use_cases: UseCases, pushing: Pushing):
    """HTTP contract 13.5: its list is where a push server begins again."""
    await pushing.modify(use_cases.caller, SUB, HOOK)
    await use_cases.engines.registry.users.remove_member((await worker(use_cases)).id, use_cases.caller.here.id)
    await use_cases.engines.subscriptions.change_access_list(use_cases.caller, SUB, [])

    assert await pushing.place_worker()
    assert await pushing.place_worker()

    assert (await worker(use_cases)).memberships == WORKER_MEMBERSHIPS


async def test_another_worker_takes_over_all_that_is_delivered_and_no_more(
    use_cases: UseCases, registry: Registry, pushing: Pushing, subscriptions: Subscriptions, asked_push: AskedPush
) -> None:
    await pushing.modify(use_cases.caller, SUB, HOOK)
    await subscriptions.create(use_cases.caller, "waits", "projects/P/topics/t", push=asked_push)
    await subscriptions.create(use_cases.caller, "pull", "projects/P/topics/t")
    await registry.users.delete((await worker(use_cases)).id)
    assert not await pushing.place_worker()

    assert await push_worker(registry, TOKEN)
    assert await pushing.place_worker()

    assert (await worker(use_cases)).memberships == WORKER_MEMBERSHIPS


@pytest.mark.parametrize("enabled", [True, False])
async def test_17_4_o9_the_status_warns(registry: Registry, pushing: Pushing, tmp_path: Path, enabled: bool) -> None:
    with closing(sqlite3.connect(tmp_path / "registry.db")) as other:
        other.execute("DROP TABLE users")
    about = ServiceInfo(Admission(registry), registry, "", replace(pushing, enabled=enabled), "internal")
    assert (await about.status(details=False)).status == "warning"


def test_a_new_secret_is_not_in_what_is_printed() -> None:
    assert "whsec_x" not in repr(RotatedSecret("whsec_x", None))
