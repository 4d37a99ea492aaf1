"""Services are asked for one user's token; whatever else they answer is a short text, and never their own words."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from ams.authn.services import Services
from ams.authn.values import API_KEY, HEADERS, AuthMethod, ServiceType, ServiceTypeId
from ams.core.clock import Milliseconds
from ams.core.errors import BadSettings, NotFound, ServiceFailed, ServiceTimeout, Unavailable
from ams.outgoing.guard import trust
from tests.support.authn_service import (
    Behaviour,
    UserService,
    answers,
    hangs,
    sends,
    sends_and_ends,
    user_service,
    waits,
)

PATHS = {"ams": "/v1/users:byUUID/{{identifier}}", "web-api": "/api/{{identifier}}/{{identifier}}?key={{access_key}}"}
FIELDS = {"ams": "token", "web-api": "api_key"}
SECRET = "the-key-of-the-certificate-service"
GOOD = answers('{"uuid": "u-1", "token": "t-1"}')


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[UserService]:
    with user_service(tmp_path_factory.mktemp("service"), GOOD) as service:
        yield service


@pytest.fixture
def service(running: UserService) -> UserService:
    running.behaviour = GOOD
    running.heads.clear()
    running.connections = 0
    return running


@pytest.fixture
async def services(service: UserService) -> AsyncIterator[Services]:
    asked = Services(PATHS, FIELDS, trust(service.ca), seconds=30)
    yield asked
    await asked.close()


def service_type(kind: str = "ams") -> ServiceType:
    return ServiceType(
        uuid=ServiceTypeId("s-1"),
        name="ams",
        hosts=("localhost",),
        auth_types=("x509",),
        auth_method=HEADERS,
        type=kind,
        created_on=Milliseconds(0),
    )


def method(service: UserService, **other: object) -> AuthMethod:
    given = {
        "uuid": "m-1",
        "service_uuid": "s-1",
        "host": "localhost",
        "port": service.port,
        "type": HEADERS,
        "headers": {"x-api-key": SECRET},
        "created_on": 0,
    }
    return AuthMethod(**given | other)  # type: ignore[arg-type]  # tests name fields freely


async def test_a_user_is_asked_for_by_its_id_with_the_headers_of_the_auth_method(
    service: UserService, services: Services
) -> None:
    assert await services.token(service_type(), method(service), "u-1") == "t-1"

    assert service.heads == [
        f"GET /v1/users:byUUID/u-1 HTTP/1.1\r\nHost: localhost:{service.port}\r\nAccept: application/json\r\n"
        f"x-api-key: {SECRET}\r\n\r\n"
    ]


async def test_a17_ids_and_keys_are_percent_encoded_wherever_the_path_has_them(
    service: UserService, services: Services
) -> None:
    service.behaviour = answers('{"api_key": "t-2"}')
    asked = method(service, type=API_KEY, access_key="k/ü&?", headers={})

    assert await services.token(service_type("web-api"), asked, "a b/../c#") == "t-2"

    target = service.heads[0].split()[1]
    assert target == "/api/a%20b%2F..%2Fc%23/a%20b%2F..%2Fc%23?key=k%2F%C3%BC%26%3F"


async def test_a17_one_connection_serves_one_login_after_another(service: UserService, services: Services) -> None:
    for _ in range(5):
        await services.token(service_type(), method(service), "u-1")

    assert (len(service.heads), service.connections) == (5, 1)


async def test_a_connection_that_the_service_closed_meanwhile_costs_nobody_a_login(
    service: UserService, services: Services
) -> None:
    body = b'HTTP/1.1 200 OK\r\nContent-Length: 15\r\n\r\n{"token": "t1"}'
    service.behaviour = sends_and_ends(body)

    tokens = [await services.token(service_type(), method(service), "u-1") for _ in range(3)]

    assert tokens == ["t1"] * 3


async def test_a_connection_that_ends_as_it_is_asked_again_is_made_anew(
    service: UserService, services: Services
) -> None:
    good = answers('{"token": "t1"}')
    service.behaviour = lambda secure: secure.close() if len(service.heads) == 2 else good(secure)

    tokens = [await services.token(service_type(), method(service), "u-1") for _ in range(2)]

    assert tokens == ["t1"] * 2
    assert (len(service.heads), service.connections) == (3, 2)


@pytest.mark.parametrize(
    ("raw", "token"),
    [
        (b'HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n{"token": "until the end"}', "until the end"),
        (
            b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n11\r\n{"token": "parts"\r\n1\r\n}\r\n0\r\n\r\n',
            "parts",
        ),
        (b'HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 200 OK\r\nContent-Length: 14\r\n\r\n{"token": "t"}', "t"),
    ],
)
async def test_an_answer_is_read_in_whatever_way_it_ends(
    service: UserService, services: Services, raw: bytes, token: str
) -> None:
    service.behaviour = sends_and_ends(raw)

    assert await services.token(service_type(), method(service), "u-1") == token


async def test_a17_a_user_that_is_gone_is_not_found(service: UserService, services: Services) -> None:
    service.behaviour = answers('{"error": {"message": "User with uuid u-1 of somewhere"}}', "404 Not Found")

    with pytest.raises(NotFound, match=r"^User was not found$"):
        await services.token(service_type(), method(service), "u-1")


FIELD = "The specified retrieval field: `token` was not found in the response body of the service type"


@pytest.mark.parametrize(
    ("behaviour", "text"),
    [
        (answers("secret details", "500 Internal Server Error"), "The service answered with status 500"),
        (answers("secret details", "401 Unauthorized"), "The service answered with status 401"),
        (answers("", "302 Found", "Location: https://localhost/else"), "The service answered with status 302"),
        (answers("<html>secret details</html>"), "The answer of the service is not JSON"),
        (answers(""), "The answer of the service is not JSON"),
        (
            sends(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"token": "\xff"'),
            "The answer of the service is not JSON",
        ),
        (answers("{}"), FIELD),
        (answers('["token"]'), FIELD),
        (answers('{"token": ""}'), FIELD),
        (answers('{"token": 7}'), FIELD),
        (answers('{"token": null}'), FIELD),
        (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), "The service could not be asked: The answer is not HTTP/1.1"),
        (sends_and_ends(b""), "The service could not be asked: The connection was closed"),
        (
            sends_and_ends(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"),
            "The service could not be asked: The connection was closed",
        ),
        (
            sends(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"),
            "The service could not be asked: The service wants to speak another protocol",
        ),
        (
            sends(b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + bytes(5_000_000)),
            "The service could not be asked: The answer is too long",
        ),
    ],
)
async def test_a17_any_other_answer_is_a_failed_service_in_our_words(
    service: UserService, services: Services, behaviour: Behaviour, text: str
) -> None:
    service.behaviour = behaviour

    with capture_logs() as logs, pytest.raises(ServiceFailed) as failed:
        await services.token(service_type(), method(service), "u-1")

    assert failed.value.message == text
    assert [each["reason"] for each in logs] == [text]
    assert not any(SECRET in str(each) or "secret details" in str(each) for each in logs)
    assert services.failures == 1


@pytest.mark.parametrize("behaviour", [hangs, waits(1.0, GOOD), sends(b"HTTP/1.1 200 OK\r\nContent-Le")])
async def test_a17_a_service_that_does_not_answer_in_time_is_a_timeout(
    service: UserService, behaviour: Behaviour
) -> None:
    service.behaviour = behaviour
    impatient = Services(PATHS, FIELDS, trust(service.ca), seconds=0.1)

    with pytest.raises(ServiceTimeout, match=r"^The service did not answer in time$"):
        await impatient.token(service_type(), method(service), "u-1")
    await impatient.close()


async def test_a_service_that_is_not_there_is_said_to_be_so(service: UserService, services: Services) -> None:
    for asked in (method(service, port=1), method(service, host="nowhere.invalid"), method(service, host="..")):
        with pytest.raises(ServiceFailed, match="^The service could not be asked: "):
            await services.token(service_type(), asked, "u-1")


async def test_a17_a_service_is_believed_by_its_certificate_only(service: UserService) -> None:
    stranger = Services(PATHS, FIELDS, trust(), seconds=5)
    with pytest.raises(ServiceFailed, match="^The service could not be asked: TLS: "):
        await stranger.token(service_type(), method(service), "u-1")

    trusting = Services(PATHS, FIELDS, trust(verify=False), seconds=5)
    assert await trusting.token(service_type(), method(service, host="127.0.0.1"), "u-1") == "t-1"
    await trusting.close()


@pytest.mark.parametrize(
    "other",
    [
        {"headers": {"x-api-key": "a\r\nx-other: b"}},
        {"headers": {"x\n": "a"}},
        {"headers": {"x": "ключ"}},
        {"host": "local\r\nhost"},
        {"type": API_KEY, "access_key": "\ud800"},
    ],
)
async def test_an_auth_method_that_cannot_be_sent_reaches_nobody(
    service: UserService, services: Services, other: dict[str, object]
) -> None:
    with pytest.raises(ServiceFailed, match="^The auth method holds what cannot be sent$"):
        await services.token(service_type("web-api" if "access_key" in other else "ams"), method(service, **other), "u")

    assert not service.heads


async def test_headers_of_the_connection_are_not_the_auth_methods_to_set(
    service: UserService, services: Services
) -> None:
    headers = {"Host": "elsewhere", "Content-Length": "9", "Accept-Encoding": "gzip", "X-Mine": "ü"}

    await services.token(service_type(), method(service, headers=headers), "u-1")

    lines = service.heads[0].split("\r\n")[1:-2]
    assert lines == [f"Host: localhost:{service.port}", "Accept: application/json", "X-Mine: ü"]


async def test_a_type_without_path_or_field_is_the_operators_to_mend(service: UserService, services: Services) -> None:
    with pytest.raises(Unavailable, match=r"^Backend error$"):
        await services.token(service_type("custom"), method(service), "u-1")


async def test_many_ask_at_once_on_no_more_connections_than_are_good_for_a_service(
    service: UserService,
) -> None:
    service.behaviour = waits(0.02, GOOD)
    patient = Services(PATHS, FIELDS, trust(service.ca), seconds=10)

    tokens = await asyncio.gather(*(patient.token(service_type(), method(service), f"u-{n}") for n in range(80)))
    await patient.close()

    assert set(tokens) == {"t-1"}
    assert service.connections <= 64


def test_a_ca_file_that_cannot_be_read_is_a_bad_setting(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="^service_ca .*: No such file"):
        trust(str(tmp_path / "none.pem"), "service_ca")
