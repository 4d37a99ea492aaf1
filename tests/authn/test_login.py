"""From a certificate to a token: each step in its order, and how services are asked for a user's token."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from cryptography import x509
from structlog.testing import capture_logs

from ams.authn.certificates.certificate import subject_sha256
from ams.authn.certificates.trust import TrustFolder
from ams.authn.certificates.validation import CertificateChecks
from ams.authn.http.errors import refusal
from ams.authn.login import RECENT_LOGIN_MS, Login, Services
from ams.authn.management import AuthMethods, ServiceTypes, SubjectBindings
from ams.authn.settings import AuthnSettings
from ams.authn.store import Store
from ams.authn.store.tables import audit
from ams.authn.values import API_KEY, HEADERS, AuthMethod, Peer, Presented, ServiceType, ServiceTypeId, SubjectBinding
from ams.core.clock import Milliseconds
from ams.core.distinguished_names import of_certificate
from ams.core.errors import AmsError, NotFound, RateLimited, ServiceFailed, ServiceTimeout, Unavailable
from ams.core.rate import LoginLimit
from ams.outgoing.address_guard import Guard, trust
from ams.storage.audit.records import AuditRecords
from ams.storage.audit.trail import FailedLogins, Trail, events_in
from ams.storage.database.database import sqlite_url
from ams.wire.authn import AuthMethodFields, BindingFields, ServiceTypeFields
from tests.support.authorities import NOW, Authority, Credentials, Subject
from tests.support.clock import ManualClock
from tests.support.receiver import Behaviour, Receiver, answers, is_silent, receiver, sends, sends_and_ends, waits
from tests.support.waiting import wait_until_async

SECRET = "the-key-of-the-certificate-service"
TOKEN = "the-token-of-jane"
GOOD = answers(f'{{"uuid": "u-1", "token": "{TOKEN}"}}')
ADDRESS = "192.0.2.1"
JANE = (("DC", "org"), ("O", "Acme"), ("CN", "Jane"))
NOW_MS = int(NOW.timestamp() * 1000)


@dataclass
class World:
    authority: Authority
    jane: Credentials
    folder: Path
    service: Receiver


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("login")
    authorities = folder / "authorities"
    authorities.mkdir()
    authority = Authority.make("Grid CA")
    (authorities / "grid.pem").write_bytes(authority.pem)
    (authorities / "grid.r0").write_bytes(authority.crl())
    with receiver(folder, GOOD, keeps=True) as service:
        yield World(authority, authority.signs(JANE), authorities, service)


@pytest.fixture
def service(world: World) -> Receiver:
    world.service.behaviour = GOOD
    world.service.heads.clear()
    return world.service


@dataclass
class LoginService:
    store: Store
    login: Login
    clock: ManualClock
    log: Path
    world: World

    async def offer(self, *auth_types: str, host: str = "localhost", **other: bool) -> None:
        settings = AuthnSettings(supported_auth_types=("x509", "other"))
        await ServiceTypes(self.store, settings).create(
            ServiceTypeFields(
                name="ams", hosts=(host,), auth_types=auth_types or ("x509",), auth_method="headers", type="ams",
                **other,
            )
        )  # fmt: skip

    async def service_type(self) -> ServiceType:
        found = await self.store.service_types.find("ams")
        assert found is not None
        return found

    async def reach(self) -> None:
        fields = AuthMethodFields(host="localhost", port=self.world.service.port, headers={"x-api-key": SECRET})
        await AuthMethods(self.store).create(await self.service_type(), fields)

    async def bind(self, certificate: x509.Certificate, name: str = "jane") -> SubjectBinding:
        fields = BindingFields(
            service_uuid=(await self.service_type()).uuid, host="localhost", unique_key="u-1", auth_type="x509",
            auth_identifier=of_certificate(certificate.subject),
        )  # fmt: skip
        return await SubjectBindings(self.store).create(name, fields)

    async def rebind(self, **changes: str) -> None:
        await SubjectBindings(self.store).update(await self.binding(), BindingFields(**changes))

    async def ask(self, shown: Credentials | None = None, *, address: str = ADDRESS, host: str = "localhost") -> str:
        leaf = (shown or self.world.jane).certificate
        return await self.login.token("ams", host, Peer(address, Presented(leaf)))

    async def error(self, peer: Peer | None = None, host: str = "localhost") -> tuple[int, str]:
        with pytest.raises(AmsError) as refused:
            await self.login.token("ams", host, peer or Peer(ADDRESS, Presented(self.world.jane.certificate)))
        found = refusal(refused.value)
        return found.code, found.message

    async def binding(self, name: str = "jane") -> SubjectBinding:
        found = await self.store.bindings.find(name)
        assert found is not None
        return found


@pytest.fixture
async def site(
    world: World, service: Receiver, tmp_path: Path, request: pytest.FixtureRequest
) -> AsyncIterator[LoginService]:
    options = {"per_minute": 30, "seconds": 5.0, "token_seconds": 0.0} | getattr(request, "param", {})
    clock = ManualClock(NOW_MS)
    store = await Store.open(sqlite_url(str(tmp_path / "authn.db")), bytes(32), clock=clock)
    trail = Trail(str(tmp_path / "audit.jsonl"), AuditRecords(store.database, audit), clock)
    failures = FailedLogins("authn", trail, LoginLimit(options.pop("per_minute"), clock), clock)
    services = Services({"ams": "/v1/users:byUUID/{{identifier}}"}, {"ams": "token"}, trust(service.ca), seconds=5)
    checks = CertificateChecks(AuthnSettings(client_ca=str(world.folder)), Guard(), clock)
    login = Login(
        store, checks, services, failures=failures, trail=trail, clock=clock,
        code_of=lambda error: refusal(error).code, **options,
    )  # fmt: skip
    yield LoginService(store, login, clock, tmp_path / "audit.jsonl", world)
    await login.close()
    await checks.close()
    await trail.close()
    await store.close()


@pytest.fixture
async def ready_site(site: LoginService) -> LoginService:
    await site.offer()
    await site.reach()
    await site.bind(site.world.jane.certificate)
    return site


def made_with(**options: float) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("site", [options], indirect=True, ids=[""])


def test_what_is_read_of_a_folder_of_authorities_is_logged_and_none_is_warned_of(world: World, tmp_path: Path) -> None:
    with capture_logs() as lines:
        folder = TrustFolder(str(tmp_path), ManualClock())
        (tmp_path / "grid.pem").write_bytes(world.authority.pem)
        folder.reload()

    assert [(each["event"], each["log_level"], each.get("authorities")) for each in lines] == [
        ("authorities.read", "info", 0), ("authorities.none", "warning", None), ("authorities.read", "info", 1),
    ]  # fmt: skip


async def test_every_step_is_taken_in_its_order_and_says_what_is_missing(site: LoginService) -> None:
    jane = Peer(ADDRESS, Presented(site.world.jane.certificate))
    outsider = Peer(ADDRESS, Presented(Authority.make("Other CA").signs(JANE).certificate))

    assert await site.error(Peer(ADDRESS)) == (400, "No certificate provided")
    unreadable = Peer(ADDRESS, unreadable="The certificate cannot be read")
    assert await site.error(unreadable) == (403, "The certificate cannot be read")
    code, said = await site.error(outsider)
    assert (code, said[:17]) == (403, "Your certificate ")
    assert await site.error(jane) == (404, "Service-type was not found")
    await site.offer("other")
    assert await site.error(jane) == (422, "Auth type: x509 is not yet supported.Supported:[other]")
    await site.store.service_types.delete(await site.service_type())
    await site.offer()
    assert await site.error(jane, "elsewhere") == (404, "Host was not found")
    assert await site.error(jane) == (404, "Auth method was not found")
    await site.reach()
    assert await site.error(jane) == (404, "Binding was not found")
    await site.bind(site.world.jane.certificate)
    assert await site.ask() == TOKEN
    assert await site.error(outsider) == (403, said)


def peer(shown: Credentials, address: str = ADDRESS) -> Peer:
    return Peer(address, Presented(shown.certificate))


async def test_a1_a_binding_that_is_given_another_user_logs_in_as_that_one(ready_site: LoginService) -> None:
    await ready_site.ask()

    await ready_site.rebind(unique_key="u-2")
    await ready_site.ask()

    asked = [head.split()[1] for head in ready_site.world.service.heads]
    assert asked == [b"/v1/users:byUUID/u-1", b"/v1/users:byUUID/u-2"]


async def test_a5_the_last_login_is_noted_once_a_minute(ready_site: LoginService) -> None:
    assert (await ready_site.binding()).last_auth is None

    await ready_site.ask()
    first = (await ready_site.binding()).last_auth
    ready_site.clock.advance(59_000)
    await ready_site.ask()
    await ready_site.login.wait_stored()
    assert (await ready_site.binding()).last_auth == first == NOW_MS

    ready_site.clock.advance(1_000)
    await ready_site.ask()
    await ready_site.login.wait_stored()
    assert (await ready_site.binding()).last_auth == NOW_MS + 60_000


async def test_a8_the_first_login_decides_whose_subject_a_binding_means(ready_site: LoginService) -> None:
    turned = ready_site.world.authority.signs(tuple(reversed(JANE)))
    assert of_certificate(turned.certificate.subject) == of_certificate(ready_site.world.jane.certificate.subject)

    await ready_site.ask()

    said = "Your certificate has another subject than the one first used with this binding"
    assert await ready_site.error(peer(turned)) == (403, said)
    assert await ready_site.ask() == TOKEN


async def test_a22_a_binding_that_is_given_another_subject_is_for_that_from_then_on(ready_site: LoginService) -> None:
    """A site has a new certificate; the reference's scripts change only the subject."""
    await ready_site.ask()
    new = ready_site.world.authority.signs((("O", "Acme"), ("CN", "Jane of today")))
    identifier = of_certificate(new.certificate.subject)

    await ready_site.rebind(auth_identifier=identifier)

    assert await ready_site.ask(new) == TOKEN
    assert await ready_site.error() == (404, "Binding was not found")
    assert (await ready_site.binding()).subject_sha256 == subject_sha256(new.certificate.subject)


async def test_a8_of_two_subjects_that_look_alike_and_come_at_once_one_is_let_in(ready_site: LoginService) -> None:
    turned = ready_site.world.authority.signs(tuple(reversed(JANE)))
    ended = await asyncio.gather(
        *(ready_site.ask(each) for each in (ready_site.world.jane, turned) * 3), return_exceptions=True
    )
    let_in = [each == TOKEN for each in ended]
    assert let_in in ([True, False] * 3, [False, True] * 3)


@pytest.mark.parametrize("subject", [
    (("O", "Acme"), ("CN", "Jane"), ("CN", "12345")),
    (("O", "Acme"), ("UID", "jane"), ("CN", "Jane")),
    (("CN", "Jane"), ("DC", "a,DC=b")),
])  # fmt: skip
async def test_a8_an_ambiguous_subject_is_bound_by_its_digest(ready_site: LoginService, subject: Subject) -> None:
    told = ready_site.world.authority.signs(subject)
    binding = await ready_site.bind(told.certificate, "told")

    code, said = await ready_site.error(peer(told))
    assert (code, said.partition(": ")[0]) == (403, "Your certificate cannot be told from others by its subject")

    sha256 = subject_sha256(told.certificate.subject)
    await SubjectBindings(ready_site.store).update(binding, BindingFields(subject_sha256=sha256))
    assert await ready_site.ask(told) == TOKEN


async def test_a8_a_binding_with_an_issuer_is_for_certificates_of_that_issuer(ready_site: LoginService) -> None:
    binding = await ready_site.binding()

    await SubjectBindings(ready_site.store).update(binding, BindingFields(issuer="CN=Other CA"))
    assert await ready_site.error() == (403, "Your certificate is of another issuer than this binding names")

    await ready_site.rebind(issuer="CN=Grid CA")
    assert await ready_site.ask() == TOKEN


@made_with(seconds=0.15)
async def test_a18_a_login_ends_in_its_time_whatever_it_waits_for(ready_site: LoginService) -> None:
    ready_site.world.service.behaviour = is_silent
    with pytest.raises(ServiceTimeout, match="^The login could not be finished in time$"):
        await ready_site.ask()
    assert ready_site.login.results == {"done": 0, "refused": 0, "failed": 1}


async def test_logins_of_one_user_at_one_time_are_one_request_even_if_one_leaves(ready_site: LoginService) -> None:
    await ready_site.ask()
    ready_site.world.service.heads.clear()
    ready_site.world.service.behaviour = waits(2.0, GOOD)  # long enough for all of them to come

    first, *others = (asyncio.create_task(ready_site.ask()) for _ in range(20))
    await wait_until_async(lambda: ready_site.world.service.heads)
    first.cancel()

    assert await asyncio.gather(*others) == [TOKEN] * 19
    assert len(ready_site.world.service.heads) == 1
    await ready_site.ask()
    assert len(ready_site.world.service.heads) == 2


@made_with(token_seconds=1)
async def test_a_token_is_used_again_for_as_long_as_is_set_and_for_its_user_only(ready_site: LoginService) -> None:
    await ready_site.ask()
    ready_site.world.service.behaviour = answers('{"token": "another"}')

    ready_site.clock.advance(999)
    assert await ready_site.ask() == TOKEN
    await ready_site.rebind(unique_key="u-2")
    assert await ready_site.ask() == "another"
    await ready_site.rebind(unique_key="u-1")
    assert await ready_site.ask() == TOKEN
    ready_site.clock.advance(1)
    assert await ready_site.ask() == "another"
    ready_site.world.service.behaviour = answers('{"token": "a third"}')
    methods = AuthMethods(ready_site.store)
    method = await methods.get(await ready_site.service_type(), "localhost")
    await methods.update(method, AuthMethodFields(headers={"x-api-key": "another key"}))
    assert await ready_site.ask() == "a third"


@made_with(per_minute=3)
async def test_an_address_that_failed_often_is_refused_unless_it_logged_in_before(ready_site: LoginService) -> None:
    await ready_site.ask()
    for _ in range(3):
        assert (await ready_site.error(Peer(ADDRESS)))[0] == 400

    assert await ready_site.error(Peer(ADDRESS)) == (429, "Too many failed logins")
    assert (await ready_site.error(peer(ready_site.world.authority.signs("Joe"))))[0] == 429
    assert (await ready_site.error(Peer("192.0.2.2")))[0] == 400
    assert await ready_site.ask() == TOKEN

    ready_site.clock.advance(RECENT_LOGIN_MS)
    for _ in range(3):
        await ready_site.error(Peer(ADDRESS))
    with pytest.raises(RateLimited):
        await ready_site.ask()


@made_with(per_minute=2)
async def test_failures_of_a_certificate_that_logged_in_before_count(ready_site: LoginService) -> None:
    await ready_site.ask()
    await ready_site.store.bindings.delete(await ready_site.binding())
    assert [(await ready_site.error())[0] for _ in range(3)] == [404, 404, 429]


@made_with(per_minute=1)
async def test_a_service_that_fails_is_not_counted_against_who_logs_in(ready_site: LoginService) -> None:
    ready_site.world.service.behaviour = answers("", "500 Error")
    assert [(await ready_site.error())[0] for _ in range(3)] == [502] * 3


async def test_a16_a_key_in_a_path_is_not_in_the_audit_log(ready_site: LoginService) -> None:
    await ready_site.error(host="0123456789abcdef" * 4)
    assert [each.resource for each in events_in(str(ready_site.log))] == ["/service-types/ams/hosts/***:authx509"]


async def test_every_login_is_in_the_audit_log_with_who_from_where_and_how_it_ended(ready_site: LoginService) -> None:
    await ready_site.ask()
    await ready_site.error(peer(ready_site.world.authority.signs("Joe")), "localhost")
    await ready_site.error(Peer("192.0.2.2"))

    lines = [(each.actor, each.address, each.code, each.result, each.reason) for each in events_in(str(ready_site.log))]
    assert lines == [("CN=Jane,O=Acme,DC=org", ADDRESS, 200, "done", ""),
                     ("CN=Joe", ADDRESS, 404, "refused", "Binding was not found"),
                     ("", "192.0.2.2", 400, "refused", "No certificate provided")]  # fmt: skip
    events = list(events_in(str(ready_site.log)))
    assert {each.resource for each in events} == {"/service-types/ams/hosts/localhost:authx509"}
    assert {(each.service, each.action) for each in events} == {("authn", "login")}


async def test_no_token_and_no_secret_is_in_any_line_of_any_log(ready_site: LoginService) -> None:
    with capture_logs() as logs:
        await ready_site.ask()
        for behaviour in (answers(TOKEN, "500 Error"), answers(TOKEN, "404 Not Found"), answers(TOKEN)):
            ready_site.world.service.behaviour = behaviour
            await ready_site.error()

    written = ready_site.log.read_text() + repr(logs)
    assert re.search("could not|answered|was not", written)
    assert SECRET not in written
    assert TOKEN not in written


PATHS = {"ams": "/v1/users:byUUID/{{identifier}}", "web-api": "/api/{{identifier}}/{{identifier}}?key={{access_key}}"}
FIELDS = {"ams": "token", "web-api": "api_key"}


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
    assert await services.token(service_type(), method(service), "u-1") == TOKEN

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


async def test_a17_a_user_that_is_gone_is_not_found(service: Receiver, services: Services) -> None:
    service.behaviour = answers('{"error": {"message": "User with uuid u-1 of somewhere"}}', "404 Not Found")
    with pytest.raises(NotFound, match=r"^User was not found$"):
        await services.token(service_type(), method(service), "u-1")


FIELD = "The specified retrieval field: `token` was not found in the response body of the service type"
NOT_JSON, UNASKED = "The answer of the service is not JSON", "The service could not be asked: "
SWITCHING = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n"
TOO_LONG = b"HTTP/1.1 200 OK\r\nContent-Length: 9000000\r\n\r\n" + bytes(5_000_000)


@pytest.mark.parametrize(("behaviour", "text"), [
    (answers("secret details", "500 Internal Server Error"), "The service answered with status 500"),
    (answers("secret details", "401 Unauthorized"), "The service answered with status 401"),
    (answers("", "302 Found", "Location: https://localhost/else"), "The service answered with status 302"),
    (answers("<html>secret details</html>"), NOT_JSON),
    (answers(""), NOT_JSON),
    (sends(b'HTTP/1.1 200 OK\r\nContent-Length: 13\r\n\r\n{"token": "\xff"'), NOT_JSON),
    *((answers(body), FIELD) for body in ("{}", '["token"]', '{"token": ""}', '{"token": 7}', '{"token": null}')),
    (sends(b"SSH-2.0-OpenSSH_9.2\r\n"), UNASKED + "The answer is not HTTP/1.1"),
    (sends_and_ends(b""), UNASKED + "The connection was closed"),
    (sends_and_ends(b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\n{}"), UNASKED + "The connection was closed"),
    (sends(SWITCHING), UNASKED + "The service wants to speak another protocol"),
    (sends(TOO_LONG), UNASKED + "The answer is too long"),
])  # fmt: skip
async def test_a17_another_answer_is_a_failure(service: Receiver, services: Services, behaviour: Behaviour, text: str):
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
    assert await trusting.token(service_type(), method(service, host="127.0.0.1"), "u-1") == TOKEN
    await trusting.close()


@pytest.mark.parametrize("other", [
    {"headers": {"x-api-key": "a\r\nx-other: b"}}, {"headers": {"x\n": "a"}}, {"headers": {"x": "ключ"}},
    {"host": "local\r\nhost"}, {"type": API_KEY, "access_key": "\ud800"},
])  # fmt: skip
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
