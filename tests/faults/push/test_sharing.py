"""Several `ams push` share a service's subscriptions; killed ones are replaced by the others."""

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


@pytest.mark.parametrize(("processes", "kills"), [(2, 1), (3, 2)])
async def test_others_go_on_when_one_is_killed(tmp_path: Path, processes: int, kills: int) -> None:
    with contextlib.ExitStack() as stack:
        receiver = stack.enter_context(received(tmp_path))
        settings = SETTINGS | {"AMS_PUSH_CA_FILE": receiver.ca}
        service = stack.enter_context(live_service(tmp_path / "data", environment=settings))
        holders = [
            PushProcess(f"push-{number}", tmp_path, service.base_url, TOKEN, receiver) for number in range(processes)
        ]
        for each in holders:
            stack.callback(each.kill)
            each.start()
        async with Api(service.base_url, service.token) as api:
            found = await Sharing(api, receiver, holders).run(kills)

    print(found)
    assert found.violations == []
