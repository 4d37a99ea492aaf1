from collections.abc import Iterator

import pytest

from tests.client.faces import FACES
from tests.client.stub import Stub, stub_server


@pytest.fixture(params=FACES)
def face(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def stub() -> Iterator[Stub]:
    with stub_server() as stub:
        yield stub
