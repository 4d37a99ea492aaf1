import json

import pytest

from tests.cli.conftest import Ams


@pytest.fixture
def users(ams: Ams, project: str) -> list[str]:
    """Make a topic with a subscription, and two members."""
    names = [f"{project}-a", f"{project}-b"]
    for name in names:
        ams("members", "create", name, "--role", "publisher", "--role", "consumer")
    ams("topics", "create", "jobs")
    ams("subs", "create", "reader", "--topic", "jobs")
    return names


@pytest.mark.parametrize("resource", ["topics/jobs", "subs/reader", "subscriptions/reader"])
def test_an_access_list_is_set_extended_shortened_and_emptied(ams: Ams, users: list[str], resource: str) -> None:
    first, second = users

    assert ams("acl", "set", resource, first).returncode == 0
    assert ams("acl", "add", resource, second, first).stdout.split() == ["USER", first, second]
    assert json.loads(ams("acl", "remove", resource, first, "-o", "json").stdout) == {"authorized_users": [second]}
    assert ams("acl", "show", resource).stdout.split() == ["USER", second]
    assert ams("acl", "remove", resource, first).returncode == 2
    assert ams("acl", "set", resource).returncode == 2
    assert ams("acl", "set", resource, "--none").returncode == 0
    assert ams("acl", "show", resource).stdout.split() == ["USER"]


@pytest.mark.parametrize("resource", ["jobs", "topics/", "queues/jobs"])
def test_what_is_no_resource_is_refused(ams: Ams, project: str, resource: str) -> None:
    ran = ams("acl", "show", resource)

    assert ran.returncode == 2
    assert "must look like topics/TOPIC or subs/SUB" in ran.stderr
