"""Services are asked for one user's token; whatever else they answer is a short text, and never their own words."""

from collections.abc import AsyncIterator, Iterator

import pytest
from structlog.testing import capture_logs

from ams.authn.services import Services
from ams.authn.values import API_KEY, HEADERS, AuthMethod, ServiceType, ServiceTypeId
from ams.core.clock import Milliseconds
from ams.core.errors import NotFound, ServiceFailed, ServiceTimeout, Unavailable
from ams.outgoing.guard import trust
from tests.support.receiver import Behaviour, Receiver, answers, is_silent, receiver, sends, sends_and_ends, waits

PATHS = {"ams": "/v1/users:byUUID/{{identifier}}", "web-api": "/api/{{identifier}}/{{identifier}}?key={{access_key}}"}
FIELDS = {"ams": "token", "web-api": "api_key"}
SECRET = "the-key-of-the-certificate-service"
GOOD = answers('{"uuid": "u-1", "token": "t-1"}')


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Receiver]:
    with receiver(tmp_path_factory.mktemp("service"), GOOD, keeps=True) as service:
        yield service


@pytest.fixture
def service(running: Receiver) -> Receiver:
    running.behaviour = GOOD
    running.heads.clear()
    running.connections = 0
    return running


@pytest.fixture
async def services(service: Receiver) -> AsyncIterator[Services]:
    asked = Services(PATHS, FIELDS, trust(service.ca), seconds=30)
    yield asked
    await asked.close()


def service_type(kind: str = "ams") -> ServiceType:
    return ServiceType(
        uuid=ServiceTypeId("s-1"), name="ams", hosts=("localhost",), auth_types=("x509",), auth_method=HEADERS,
        type=kind, created_on=Milliseconds(0),
    )  # fmt: skip


def method(service: Receiver, **other: object) -> AuthMethod:
    given = {
        "uuid": "m-1", "service_uuid": "s-1", "host": "localhost", "port": service.port, "type": HEADERS,
        "headers": {"x-api-key": SECRET}, "created_on": 0,
    }  # fmt: skip
    return AuthMethod(**given | other)  # type: ignore[arg-type]  # tests name fields freely


async def test_a_user_is_asked_for_by_id_with_the_auth_methods_headers(service: Receiver, services: Services) -> None:
    assert await services.token(service_type(), method(service), "u-1") == "t-1"

    [head] = service.heads
    assert head.decode() == (
        f"GET /v1/users:byUUID/u-1 HTTP/1.1\r\nHost: localhost:{service.port}\r\nAccept: application/json\r\n"
        f"x-api-key: {SECRET}\r\n\r\n"
    )


async def test_a17_ids_and_keys_are_percent_encoded_in_paths(service: Receiver, services: Services) -> None:
    service.behaviour = answers('{"api_key": "t-2"}')
    asked = method(service, type=API_KEY, access_key="k/ü&?", headers={})

    assert await services.token(service_type("web-api"), asked, "a b/../c#") == "t-2"

    target = service.heads[0].split()[1]
    assert target == b"/api/a%20b%2F..%2Fc%23/a%20b%2F..%2Fc%23?key=k%2F%C3%BC%26%3F"


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
async def test_an_answer_is_read_however_it_ends(service: Receiver, services: Services, raw: bytes, token: str) -> None:
    service.behaviour = sends_and_ends(raw)
    assert await services.token(service_type(), method(service), "u-1") == token


async def test_a17_a_user_that_is_gone_is_not_found(service: Receiver, services: Services) -> None:
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
    service: Receiver, services: Services, behaviour: Behaviour, text: str
) -> None:
    service.behaviour = behaviour

    with capture_logs() as logs, pytest.raises(ServiceFailed) as failed:
        await services.token(service_type(), method(service), "u-1")

    assert failed.value.message == text
    assert [each["reason"] for each in logs if each["event"] == "a service gave no token"] == [text]
    assert not any(SECRET in str(each) or "secret details" in str(each) for each in logs)
    assert services.failures == 1


@pytest.mark.parametrize("behaviour", [is_silent, waits(1.0, GOOD), sends(b"HTTP/1.1 200 OK\r\nContent-Le")])
async def test_a17_a_service_that_answers_too_late_is_a_timeout(service: Receiver, behaviour: Behaviour) -> None:
    service.behaviour = behaviour
    impatient = Services(PATHS, FIELDS, trust(service.ca), seconds=0.1)

    with pytest.raises(ServiceTimeout, match=r"^The service did not answer in time$"):
        await impatient.token(service_type(), method(service), "u-1")
    await impatient.close()


async def test_a_service_that_is_not_there_is_said_to_be_so(service: Receiver, services: Services) -> None:
    for asked in (method(service, port=1), method(service, host="nowhere.invalid"), method(service, host="..")):
        with pytest.raises(ServiceFailed, match="^The service could not be asked: "):
            await services.token(service_type(), asked, "u-1")


async def test_a17_a_service_is_believed_by_its_certificate_only(service: Receiver) -> None:
    stranger = Services(PATHS, FIELDS, trust(), seconds=5)
    with pytest.raises(ServiceFailed, match="^The service could not be asked: TLS: "):
        await stranger.token(service_type(), method(service), "u-1")

    trusting = Services(PATHS, FIELDS, trust(verify=False), seconds=5)
    assert await trusting.token(service_type(), method(service, host="127.0.0.1"), "u-1") == "t-1"
    await trusting.close()


@pytest.mark.parametrize(
    "other",
    [
        {"headers": {"x-api-key": "a\r\nx-other: b"}}, {"headers": {"x\n": "a"}}, {"headers": {"x": "ключ"}},
        {"host": "local\r\nhost"}, {"type": API_KEY, "access_key": "\ud800"},
    ],
)  # fmt: skip
async def test_odd_auth_methods_reach_nobody(service: Receiver, services: Services, other: dict[str, object]) -> None:
    with pytest.raises(ServiceFailed, match="^The auth method holds what cannot be sent$"):
        await services.token(service_type("web-api" if "access_key" in other else "ams"), method(service, **other), "u")
    assert not service.heads


async def test_an_auth_method_sets_no_headers_of_the_connection(service: Receiver, services: Services) -> None:
    headers = {"Host": "elsewhere", "Content-Length": "9", "Accept-Encoding": "gzip", "X-Mine": "ü"}

    await services.token(service_type(), method(service, headers=headers), "u-1")

    lines = service.heads[0].decode("latin-1").split("\r\n")[1:-2]
    assert lines == [f"Host: localhost:{service.port}", "Accept: application/json", "X-Mine: ü"]


async def test_a_type_without_path_or_field_is_the_operators_to_mend(service: Receiver, services: Services) -> None:
    with pytest.raises(Unavailable, match=r"^Backend error$"):
        await services.token(service_type("custom"), method(service), "u-1")
