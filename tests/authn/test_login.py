"""From a certificate to a token: each step in its order, by real certificates, a real store and a real service."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import pytest
from cryptography import x509
from structlog.testing import capture_logs

from ams.authn.certificates.checks import CertificateChecks
from ams.authn.certificates.subjects import subject_sha256
from ams.authn.http.errors import refusal
from ams.authn.login import LATELY, Login
from ams.authn.management import AuthMethods, Bindings, ServiceTypes
from ams.authn.services import Services
from ams.authn.settings import AuthnSettings
from ams.authn.store import Store
from ams.authn.store.tables import audit
from ams.authn.values import Binding, Peer, Presented
from ams.core.attempts import Attempts
from ams.core.clock import ManualClock
from ams.core.distinguished_names import of_certificate
from ams.core.errors import AmsError, RateLimited, ServiceTimeout
from ams.outgoing.guard import Guard, trust
from ams.storage.audit.logins import FailedLogins
from ams.storage.audit.records import AuditRecords
from ams.storage.audit.trail import FileTrail, events_in
from ams.storage.database.database import sqlite_url
from ams.wire.authn import AuthMethodFields, BindingFields, ServiceTypeFields
from tests.support.authn_service import UserService, answers, hangs, user_service, waits
from tests.support.authorities import NOW, Authority, Credentials, Subject

SECRET = "the-key-of-the-certificate-service"
TOKEN = "the-token-of-jane"
GOOD = answers(f'{{"uuid": "u-1", "token": "{TOKEN}"}}')
ADDRESS = "192.0.2.1"
JANE = (("DC", "org"), ("O", "Acme"), ("CN", "Jane"))
NOW_MS = int(NOW.timestamp() * 1000)


@dataclass
class World:
    """What certificates, authorities and services there are."""

    authority: Authority
    jane: Credentials
    folder: Path
    service: UserService


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    folder = tmp_path_factory.mktemp("login")
    authorities = folder / "authorities"
    authorities.mkdir()
    authority = Authority.make("Grid CA")
    (authorities / "grid.pem").write_bytes(authority.pem)
    (authorities / "grid.r0").write_bytes(authority.crl())
    with user_service(folder, GOOD) as service:
        yield World(authority, authority.signs(JANE), authorities, service)


@dataclass
class LoginService:
    """The certificate service without its doors."""

    store: Store
    login: Login
    clock: ManualClock
    log: Path
    world: World
    trail: FileTrail
    closing: list[object] = field(default_factory=list)

    async def offer(self, *auth_types: str, host: str = "localhost", **other: bool) -> None:
        """Make the service type."""
        settings = AuthnSettings(supported_auth_types=("x509", "other"))
        await ServiceTypes(self.store, settings).create(
            ServiceTypeFields(
                name="ams",
                hosts=(host,),
                auth_types=auth_types or ("x509",),
                auth_method="headers",
                type="ams",
                **other,
            )
        )

    async def reach(self) -> None:
        """Make the auth method."""
        service_type = await self.store.service_types.find("ams")
        assert service_type is not None
        fields = AuthMethodFields(host="localhost", port=self.world.service.port, headers={"x-api-key": SECRET})
        await AuthMethods(self.store).create(service_type, fields)

    async def reach_by(self, key: str) -> None:
        """Change what the service is asked with."""
        service_type = await self.store.service_types.find("ams")
        assert service_type is not None
        methods = AuthMethods(self.store)
        found = await methods.get(service_type, "localhost")
        await methods.update(found, AuthMethodFields(headers={"x-api-key": key}))

    async def bind(self, certificate: x509.Certificate, name: str = "jane", **other: str) -> Binding:
        """Bind a certificate."""
        service_type = await self.store.service_types.find("ams")
        assert service_type is not None
        fields = BindingFields(
            service_uuid=service_type.uuid,
            host="localhost",
            auth_identifier=of_certificate(certificate.subject),
            unique_key="u-1",
            auth_type="x509",
        )
        return await Bindings(self.store).create(name, msgspec.structs.replace(fields, **other))

    async def all(self) -> None:
        """Make all that Jane needs."""
        await self.offer()
        await self.reach()
        await self.bind(self.world.jane.certificate)

    async def ask(self, shown: Credentials | None = None, *, address: str = ADDRESS, host: str = "localhost") -> str:
        """Log in as Jane, or as somebody else."""
        leaf = (shown or self.world.jane).certificate
        return await self.login.token("ams", host, Peer(address, Presented(leaf)))

    async def error(self, peer: Peer | None = None, host: str = "localhost") -> tuple[int, str]:
        """Return how a login is refused, as it goes out."""
        with pytest.raises(AmsError) as refused:
            await self.login.token("ams", host, peer or Peer(ADDRESS, Presented(self.world.jane.certificate)))
        found = refusal(refused.value)
        return found.code, found.message

    async def binding(self, name: str = "jane") -> Binding:
        found = await self.store.bindings.find(name)
        assert found is not None
        return found


async def made(
    world: World, folder: Path, *, per_minute: int = 30, seconds: float = 5, token_seconds: float = 0
) -> LoginService:
    clock = ManualClock(NOW_MS)
    store = await Store.open(sqlite_url(str(folder / "authn.db")), bytes(32), clock=clock)
    trail = FileTrail(str(folder / "audit.jsonl"), AuditRecords(store.database, audit), clock)
    services = Services(
        {"ams": "/v1/users:byUUID/{{identifier}}"}, {"ams": "token"}, trust(world.service.ca), seconds=5
    )
    checks = CertificateChecks(AuthnSettings(client_ca=str(world.folder)), Guard(), clock)
    login = Login(
        store,
        checks,
        services,
        failures=FailedLogins("authn", trail, Attempts(per_minute, clock), clock),
        trail=trail,
        clock=clock,
        code_of=lambda error: refusal(error).code,
        seconds=seconds,
        token_seconds=token_seconds,
    )
    return LoginService(store, login, clock, folder / "audit.jsonl", world, trail, [checks])


@pytest.fixture
async def login_service(world: World, tmp_path: Path) -> AsyncIterator[LoginService]:
    world.service.behaviour = GOOD
    world.service.heads.clear()
    login_service = await made(world, tmp_path)
    yield login_service
    await close(login_service)


async def close(login_service: LoginService) -> None:
    await login_service.login.close()
    for each in login_service.closing:
        await each.close()  # type: ignore[attr-defined]  # all of them have it
    await login_service.trail.close()
    await login_service.store.close()


async def test_every_step_is_taken_in_its_order_and_says_what_is_missing(login_service: LoginService) -> None:
    jane = Peer(ADDRESS, Presented(login_service.world.jane.certificate))
    outsider = Peer(ADDRESS, Presented(Authority.make("Other CA").signs(JANE).certificate))

    assert await login_service.error(Peer(ADDRESS)) == (400, "No certificate provided")
    unreadable = Peer(ADDRESS, unreadable="The certificate cannot be read")
    assert await login_service.error(unreadable) == (403, "The certificate cannot be read")
    code, said = await login_service.error(outsider)
    assert (code, said[:17]) == (403, "Your certificate ")
    assert await login_service.error(jane) == (404, "Service-type was not found")
    await login_service.offer("other")
    assert await login_service.error(jane) == (422, "Auth type: x509 is not yet supported.Supported:[other]")
    found = await login_service.store.service_types.find("ams")
    assert found is not None
    await login_service.store.service_types.delete(found.uuid)
    await login_service.offer()
    assert await login_service.error(jane, "elsewhere") == (404, "Host was not found")
    assert await login_service.error(jane) == (404, "Auth method was not found")
    await login_service.reach()
    assert await login_service.error(jane) == (404, "Binding was not found")
    await login_service.bind(login_service.world.jane.certificate)
    assert await login_service.ask() == TOKEN
    assert await login_service.error(outsider) == (403, said)


async def test_certificates_that_are_not_to_be_believed_are_refused_in_the_contracts_words(
    login_service: LoginService,
) -> None:
    await login_service.all()
    authority, day = login_service.world.authority, (NOW.replace(year=NOW.year - 2), NOW.replace(year=NOW.year - 1))
    expired = authority.signs(JANE, not_before=day[0], not_after=day[1])
    early = authority.signs(JANE, not_before=NOW.replace(year=NOW.year + 1))

    assert await login_service.error(peer(expired)) == (403, "Your certificate has expired")
    assert await login_service.error(peer(early)) == (403, "Your certificate is not active yet")


def peer(shown: Credentials, address: str = ADDRESS) -> Peer:
    return Peer(address, Presented(shown.certificate))


async def test_a1_a_binding_that_is_given_another_user_logs_in_as_that_one(login_service: LoginService) -> None:
    await login_service.all()
    await login_service.ask()

    await Bindings(login_service.store).update(await login_service.binding(), BindingFields(unique_key="u-2"))
    await login_service.ask()

    asked = [head.split()[1] for head in login_service.world.service.heads]
    assert asked == ["/v1/users:byUUID/u-1", "/v1/users:byUUID/u-2"]


async def test_a5_the_last_login_is_noted_once_a_minute(login_service: LoginService) -> None:
    await login_service.all()
    assert (await login_service.binding()).last_auth is None

    await login_service.ask()
    first = (await login_service.binding()).last_auth
    login_service.clock.advance(59_000)
    await login_service.ask()
    await login_service.login.settled()
    assert (await login_service.binding()).last_auth == first == NOW_MS

    login_service.clock.advance(1_000)
    await login_service.ask()
    await login_service.login.settled()
    assert (await login_service.binding()).last_auth == NOW_MS + 60_000


async def test_a8_the_first_login_decides_whose_subject_a_binding_means(login_service: LoginService) -> None:
    await login_service.all()
    turned = login_service.world.authority.signs(tuple(reversed(JANE)))
    assert of_certificate(turned.certificate.subject) == of_certificate(login_service.world.jane.certificate.subject)

    await login_service.ask()

    said = "Your certificate has another subject than the one first used with this binding"
    assert await login_service.error(peer(turned)) == (403, said)
    assert await login_service.ask() == TOKEN


async def test_a22_a_binding_that_is_given_another_subject_is_for_that_from_then_on(
    login_service: LoginService,
) -> None:
    """A site has a new certificate, and the scripts of the reference put its subject, and know of nothing else."""
    await login_service.all()
    await login_service.ask()
    new = login_service.world.authority.signs((("O", "Acme"), ("CN", "Jane of today")))
    identifier = of_certificate(new.certificate.subject)

    await Bindings(login_service.store).update(await login_service.binding(), BindingFields(auth_identifier=identifier))

    assert await login_service.ask(new) == TOKEN
    assert await login_service.error() == (404, "Binding was not found")
    assert (await login_service.binding()).subject_sha256 == subject_sha256(new.certificate.subject)


async def test_a8_of_two_subjects_that_look_alike_and_come_first_at_once_one_is_let_in(
    login_service: LoginService,
) -> None:
    await login_service.all()
    turned = login_service.world.authority.signs(tuple(reversed(JANE)))

    ended = await asyncio.gather(
        *(login_service.ask(each) for each in (login_service.world.jane, turned) * 3), return_exceptions=True
    )

    let_in = [each == TOKEN for each in ended]
    assert let_in in ([True, False] * 3, [False, True] * 3)


@pytest.mark.parametrize(
    "subject",
    [
        (("O", "Acme"), ("CN", "Jane"), ("CN", "12345")),
        (("O", "Acme"), ("UID", "jane"), ("CN", "Jane")),
        (("CN", "Jane"), ("DC", "a,DC=b")),
    ],
)
async def test_a8_a_subject_that_the_normal_form_cannot_tell_needs_a_binding_that_knows_all_of_it(
    login_service: LoginService, subject: Subject
) -> None:
    await login_service.all()
    told = login_service.world.authority.signs(subject)
    binding = await login_service.bind(told.certificate, "told")

    code, said = await login_service.error(peer(told))
    assert (code, said.partition(": ")[0]) == (403, "Your certificate cannot be told from others by its subject")

    sha256 = subject_sha256(told.certificate.subject)
    await Bindings(login_service.store).update(binding, BindingFields(subject_sha256=sha256))
    assert await login_service.ask(told) == TOKEN


async def test_a8_a_binding_with_an_issuer_is_for_certificates_of_that_issuer(login_service: LoginService) -> None:
    await login_service.all()
    binding = await login_service.binding()

    await Bindings(login_service.store).update(binding, BindingFields(issuer="CN=Other CA"))
    assert await login_service.error() == (403, "Your certificate is of another issuer than this binding names")

    await Bindings(login_service.store).update(await login_service.binding(), BindingFields(issuer="CN=Grid CA"))
    assert await login_service.ask() == TOKEN


async def test_a17_what_a_service_fails_at_is_told_in_our_words(login_service: LoginService) -> None:
    await login_service.all()
    service = login_service.world.service
    for behaviour, expected in (
        (answers(SECRET, "404 Not Found"), (404, "User was not found")),
        (answers(SECRET, "500 Error"), (502, "The service answered with status 500")),
    ):
        service.behaviour = behaviour
        assert await login_service.error() == expected


async def test_a18_a_login_ends_in_its_time_whatever_it_waits_for(world: World, tmp_path: Path) -> None:
    login_service = await made(world, tmp_path, seconds=0.15)
    await login_service.all()
    world.service.behaviour = hangs

    with pytest.raises(ServiceTimeout, match="^The login could not be finished in time$"):
        await login_service.ask()
    assert login_service.login.results == {"done": 0, "refused": 0, "failed": 1}
    await close(login_service)


async def test_logins_of_one_user_at_one_time_are_one_request(login_service: LoginService) -> None:
    await login_service.all()
    await login_service.ask()
    login_service.world.service.heads.clear()
    login_service.world.service.behaviour = waits(0.05, GOOD)

    assert await asyncio.gather(*(login_service.ask() for _ in range(20))) == [TOKEN] * 20
    assert len(login_service.world.service.heads) == 1
    await login_service.ask()
    assert len(login_service.world.service.heads) == 2


async def test_what_a_service_said_is_used_again_for_as_long_as_is_set_and_for_the_same_user_only(
    world: World, tmp_path: Path
) -> None:
    world.service.behaviour = GOOD
    login_service = await made(world, tmp_path, token_seconds=1)
    await login_service.all()
    await login_service.ask()
    world.service.behaviour = answers('{"token": "another"}')

    login_service.clock.advance(999)
    assert await login_service.ask() == TOKEN
    await Bindings(login_service.store).update(await login_service.binding(), BindingFields(unique_key="u-2"))
    assert await login_service.ask() == "another"
    await Bindings(login_service.store).update(await login_service.binding(), BindingFields(unique_key="u-1"))
    assert await login_service.ask() == TOKEN
    login_service.clock.advance(1)
    assert await login_service.ask() == "another"
    world.service.behaviour = answers('{"token": "a third"}')
    await login_service.reach_by("another key")
    assert await login_service.ask() == "a third"
    await close(login_service)


async def test_who_goes_away_while_others_wait_for_the_same_user_takes_nothing_from_them(
    login_service: LoginService,
) -> None:
    await login_service.all()
    await login_service.ask()
    login_service.world.service.behaviour = waits(0.05, GOOD)
    first, second = (asyncio.create_task(login_service.ask()) for _ in range(2))
    await asyncio.sleep(0.01)

    first.cancel()

    assert await second == TOKEN


async def test_an_address_that_failed_too_often_is_refused_but_not_a_certificate_that_logged_in_there(
    world: World, tmp_path: Path
) -> None:
    world.service.behaviour = GOOD
    login_service = await made(world, tmp_path, per_minute=3)
    await login_service.all()
    await login_service.ask()
    for _ in range(3):
        assert (await login_service.error(Peer(ADDRESS)))[0] == 400

    assert await login_service.error(Peer(ADDRESS)) == (429, "Too many failed logins")
    assert (await login_service.error(peer(world.authority.signs("Joe"))))[0] == 429
    assert (await login_service.error(Peer("192.0.2.2")))[0] == 400
    assert await login_service.ask() == TOKEN

    login_service.clock.advance(LATELY)
    for _ in range(3):
        await login_service.error(Peer(ADDRESS))
    with pytest.raises(RateLimited):
        await login_service.ask()
    await close(login_service)


async def test_a_certificate_that_fails_pays_for_failures_like_others_although_it_logged_in_before(
    world: World, tmp_path: Path
) -> None:
    world.service.behaviour = GOOD
    login_service = await made(world, tmp_path, per_minute=2)
    await login_service.all()
    await login_service.ask()
    await Bindings(login_service.store).delete("jane")

    assert [(await login_service.error())[0] for _ in range(3)] == [404, 404, 429]
    await close(login_service)


async def test_a_service_that_fails_is_not_counted_against_who_logs_in(world: World, tmp_path: Path) -> None:
    login_service = await made(world, tmp_path, per_minute=1)
    await login_service.all()
    world.service.behaviour = answers("", "500 Error")

    assert [(await login_service.error())[0] for _ in range(3)] == [502] * 3
    await close(login_service)


async def test_a16_a_key_in_a_path_is_not_in_the_audit_log(login_service: LoginService) -> None:
    await login_service.all()
    await login_service.error(host="0123456789abcdef" * 4)

    assert [each.resource for each in events_in(str(login_service.log))] == ["/service-types/ams/hosts/***:authx509"]


async def test_every_login_is_in_the_audit_log_with_who_from_where_and_how_it_ended(
    login_service: LoginService,
) -> None:
    await login_service.all()
    await login_service.ask()
    await login_service.error(peer(login_service.world.authority.signs("Joe")), "localhost")
    await login_service.error(Peer("192.0.2.2"))

    lines = [
        (each.actor, each.address, each.code, each.result, each.reason) for each in events_in(str(login_service.log))
    ]
    assert lines == [
        ("CN=Jane,O=Acme,DC=org", ADDRESS, 200, "done", ""),
        ("CN=Joe", ADDRESS, 404, "refused", "Binding was not found"),
        ("", "192.0.2.2", 400, "refused", "No certificate provided"),
    ]
    events = list(events_in(str(login_service.log)))
    assert {each.resource for each in events} == {"/service-types/ams/hosts/localhost:authx509"}
    assert {(each.service, each.action) for each in events} == {("authn", "login")}


async def test_no_token_and_no_secret_is_in_any_line_of_any_log(login_service: LoginService) -> None:
    await login_service.all()
    with capture_logs() as logs:
        await login_service.ask()
        for behaviour in (answers(TOKEN, "500 Error"), answers(TOKEN, "404 Not Found"), answers(TOKEN)):
            login_service.world.service.behaviour = behaviour
            await login_service.error()

    written = login_service.log.read_text() + repr(logs)
    assert re.search("could not|answered|was not", written)
    assert SECRET not in written
    assert TOKEN not in written
