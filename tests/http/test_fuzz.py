"""A refused request changes nothing; `tests.fuzz` sends far more, with the same checks."""

import json
from collections.abc import Iterator

import pytest

from tests.fuzz.generating import Generator, Request
from tests.fuzz.judging import Answer, AnswerReader, find_fault
from tests.support.description import description
from tests.support.served import SERVICE_TOKEN, WORKER_TOKEN, InProcessService, in_process_service

FURNITURE = (("POST", "/projects/P", {}), ("PUT", "/projects/P/topics/T", {}),
             ("PUT", "/projects/P/subscriptions/S", {"topic": "projects/P/topics/T"}),
             ("POST", "/users/u", {"projects": [{"project": "P", "roles": ["publisher"]}]}))  # fmt: skip
LISTS = ["/projects", "/users?details=true", "/projects/P/topics", "/projects/P/subscriptions", "/projects/P/schemas"]
LISTS += ["/projects/P/topics/T:acl", "/projects/P/subscriptions/S:acl", "/projects/P/subscriptions/S:offsets"]
REQUESTS = 250


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcessService]:
    push = {"push_enabled": True, "push_worker_token": WORKER_TOKEN}
    with in_process_service(tmp_path_factory.mktemp("fuzz") / "ams-data", pull_wait=0, **push) as service:
        yield service


def send_request(service: InProcessService, request: Request) -> Answer:
    answers = AnswerReader()
    with service.connect(20) as client:
        client.sendall(request.to_bytes())
        while not answers.answers:
            answers.feed(client.recv(2**16))
    return answers.answers[0]


def test_what_is_refused_changes_nothing_and_every_answer_is_the_contracts(service: InProcessService) -> None:
    generator, before, refused = Generator(json.loads(description()), [SERVICE_TOKEN], seed=3), None, 0

    def read_lists() -> list[str]:
        return [service.call("GET", path, token=SERVICE_TOKEN).text for path in LISTS]

    for _ in range(REQUESTS):
        if before is None:  # whatever the outcome
            for method, path, body in FURNITURE:
                service.call(method, path, body, SERVICE_TOKEN)
            before = read_lists()
        request = generator.request()
        answer = send_request(service, request)
        assert find_fault(request.line, answer) is None, (request, answer)
        if request.method != b"GET" and answer.status not in (200, 301):
            refused += 1
            assert read_lists() == before, request
        elif request.method != b"GET":
            before = None
    assert refused > REQUESTS / 10
