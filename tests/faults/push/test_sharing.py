"""Several `ams push` share a service's subscriptions; killed ones are replaced by the others."""

import asyncio
import contextlib
from pathlib import Path

import pytest

from tests.faults.push.sharing import PushProcess, Sharing
from tests.support.pushed import Api
from tests.support.receiving import received
from tests.support.service import live_service

pytestmark = [pytest.mark.faults, pytest.mark.embedded("tests/cluster/test_push.py has the other shape")]

TOKEN = "the-token-of-the-push-worker"
SETTINGS = {"AMS_PUSH_INSIDE": "false", "AMS_PUSH_WORKER_TOKEN": TOKEN, "AMS_PUSH_ALLOW": "127.0.0.0/8"}


async def test_others_go_on_when_one_of_three_is_killed_and_one_of_the_two_that_are_left(tmp_path: Path) -> None:
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(received(tmp_path))
        settings = SETTINGS | {"AMS_PUSH_CA_FILE": receiver.ca}
        service = stack.enter_context(live_service(tmp_path / "data", environment=settings))
        holders = [PushProcess(f"push-{number}", tmp_path, service.base_url, TOKEN, receiver) for number in range(3)]
        for each in holders:
            stack.callback(each.kill)
        await asyncio.gather(*(asyncio.to_thread(each.start) for each in holders))
        async with Api(service.base_url, service.token) as api:
            found = await Sharing(api, receiver, holders).run(kills=2)

    print(found)
    assert found.violations == []
