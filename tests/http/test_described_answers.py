"""The service follows the description of its API: requests are made from it."""

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, settings
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.description import description
from tests.support.served import SERVICE_TOKEN, InProcessService, in_process_service

pytestmark = pytest.mark.long

EXAMPLES = int(os.environ.get("FUZZ_EXAMPLES", "6"))  # requests made for each operation; `make fuzz` makes many
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]

requests = schemathesis.openapi.from_dict(json.loads(description()))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    with in_process_service(tmp_path_factory.mktemp("described") / "ams-data") as service:
        yield service


@requests.parametrize()
@settings(
    max_examples=EXAMPLES, deadline=None, derandomize=True, database=None, suppress_health_check=list(HealthCheck)
)
def test_the_service_answers_as_described(case: Case, service: InProcessService) -> None:
    headers: dict[str, Any] = {**case.headers, "x-api-key": SERVICE_TOKEN}
    case.call_and_validate(base_url=service.run.base_url, headers=headers, checks=CHECKS)
