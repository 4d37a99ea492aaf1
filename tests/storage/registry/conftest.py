import pytest

from ams.storage.registry.records import Project, Topic, User
from ams.storage.registry.registry import Registry
from tests.storage.registry.makers import new_topic
from tests.support.administration import make_project, make_user


@pytest.fixture
async def project(registry: Registry) -> Project:
    return await make_project(registry)


@pytest.fixture
async def topic(registry: Registry, project: Project) -> Topic:
    return await new_topic(registry, project)


@pytest.fixture
async def anna(registry: Registry) -> User:
    return await make_user(registry, "anna")
