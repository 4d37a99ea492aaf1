"""Versions of what is read and written back: as of AMS (docs/reference/http.md), on both engines."""

import asyncio
from typing import Any

import pytest

from tests.support.authn import HOST, Service

CHANGES: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    "a service type": ("/service-types/ams", {"hosts": [HOST, "b.example"]}, {"verify_client_host": True}),
    "an auth method": (f"/service-types/ams/hosts/{HOST}/authm", {"port": 1}, {"port": 2}),
    "a binding": ("/bindings/b", {"unique_key": "one"}, {"unique_key": "two"}),
}


@pytest.mark.parametrize("what", CHANGES)
async def test_a_change_of_an_older_version_is_refused_and_of_two_at_once_one(service: Service, what: str) -> None:
    one = await service.service_type()
    await service.auth_method(one, headers={"h": "v"})
    await service.binding("b", one)
    path, first, second = CHANGES[what]
    version = (await service.call("GET", path)).headers["etag"]

    both = await asyncio.gather(*(service.call("PUT", path, each, if_match=version) for each in (first, second)))

    assert sorted(each.status_code for each in both) == [200, 412]
    refused = next(each for each in both if each.status_code == 412).json()["error"]
    assert (refused["status"], "changed meanwhile" in refused["message"]) == ("PRECONDITION FAILED", True)
    shown = await service.call("GET", path)
    assert shown.json() == next(each for each in both if each.status_code == 200).json()
    assert (await service.call("PUT", path, first, if_match=shown.headers["etag"])).status_code == 200
    assert (await service.call("PUT", path, second, if_match="*")).status_code == 200
    assert (await service.call("PUT", path, first)).status_code == 200
    assert (await service.call("PUT", path, first, if_match="x")).status_code == 400


async def test_a_login_makes_no_other_version_of_a_binding(service: Service) -> None:
    one = await service.service_type()
    await service.auth_method(one, headers={"h": "v"})
    await service.binding("b", one)
    version = (await service.call("GET", "/bindings/b")).headers["etag"]

    assert (await service.login()).status_code == 200

    assert (await service.call("PUT", "/bindings/b", {"unique_key": "x"}, if_match=version)).status_code == 200
