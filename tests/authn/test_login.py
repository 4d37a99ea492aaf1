"""From a certificate to a token: each step in its order, by real certificates, a real store and a real service."""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass
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
from tests.support.authorities import NOW, Authority, Credentials, Subject
from tests.support.receiver import Receiver, answers, is_silent, receiver, waits

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


@dataclass
class LoginService:
    """The certificate service without its doors."""

    store: Store
    login: Login
    clock: ManualClock
    log: Path
    world: World

    async def offer(self, *auth_types: str, host: str = "localhost", **other: bool) -> None:
        """Make the service type."""
        settings = AuthnSettings(supported_auth_types=("x509", "other"))
        await ServiceTypes(self.store, settings).create(
            ServiceTypeFields(
                name="ams", hosts=(host,), auth_types=auth_types or ("x509",), auth_method="headers", type="ams",
                **other,
            )
        )  # fmt: skip

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
        identifier = of_certificate(certificate.subject)
        fields = BindingFields(
            service_uuid=service_type.uuid, host="localhost", auth_identifier=identifier, unique_key="u-1",
            auth_type="x509",
        )  # fmt: skip
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


@pytest.fixture
async def site(world: World, tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[LoginService]:
    """A service that has nothing yet, made with the options that a test is marked with."""
    options = {"per_minute": 30, "seconds": 5.0, "token_seconds": 0.0} | getattr(request, "param", {})
    world.service.behaviour = GOOD
    world.service.heads.clear()
    clock = ManualClock(NOW_MS)
    store = await Store.open(sqlite_url(str(tmp_path / "authn.db")), bytes(32), clock=clock)
    trail = FileTrail(str(tmp_path / "audit.jsonl"), AuditRecords(store.database, audit), clock)
    failures = FailedLogins("authn", trail, Attempts(options.pop("per_minute"), clock), clock)
    services = Services(
        {"ams": "/v1/users:byUUID/{{identifier}}"}, {"ams": "token"}, trust(world.service.ca), seconds=5
    )
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


def made_with(**options: float) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("site", [options], indirect=True, ids=[""])


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
    found = await site.store.service_types.find("ams")
    assert found is not None
    await site.store.service_types.delete(found.uuid)
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


async def test_a1_a_binding_that_is_given_another_user_logs_in_as_that_one(site: LoginService) -> None:
    await site.all()
    await site.ask()

    await Bindings(site.store).update(await site.binding(), BindingFields(unique_key="u-2"))
    await site.ask()

    asked = [head.split()[1] for head in site.world.service.heads]
    assert asked == [b"/v1/users:byUUID/u-1", b"/v1/users:byUUID/u-2"]


async def test_a5_the_last_login_is_noted_once_a_minute(site: LoginService) -> None:
    await site.all()
    assert (await site.binding()).last_auth is None

    await site.ask()
    first = (await site.binding()).last_auth
    site.clock.advance(59_000)
    await site.ask()
    await site.login.settled()
    assert (await site.binding()).last_auth == first == NOW_MS

    site.clock.advance(1_000)
    await site.ask()
    await site.login.settled()
    assert (await site.binding()).last_auth == NOW_MS + 60_000


async def test_a8_the_first_login_decides_whose_subject_a_binding_means(site: LoginService) -> None:
    await site.all()
    turned = site.world.authority.signs(tuple(reversed(JANE)))
    assert of_certificate(turned.certificate.subject) == of_certificate(site.world.jane.certificate.subject)

    await site.ask()

    said = "Your certificate has another subject than the one first used with this binding"
    assert await site.error(peer(turned)) == (403, said)
    assert await site.ask() == TOKEN


async def test_a22_a_binding_that_is_given_another_subject_is_for_that_from_then_on(site: LoginService) -> None:
    """A site has a new certificate, and the scripts of the reference put its subject, and know of nothing else."""
    await site.all()
    await site.ask()
    new = site.world.authority.signs((("O", "Acme"), ("CN", "Jane of today")))
    identifier = of_certificate(new.certificate.subject)

    await Bindings(site.store).update(await site.binding(), BindingFields(auth_identifier=identifier))

    assert await site.ask(new) == TOKEN
    assert await site.error() == (404, "Binding was not found")
    assert (await site.binding()).subject_sha256 == subject_sha256(new.certificate.subject)


async def test_a8_of_two_subjects_that_look_alike_and_come_first_at_once_one_is_let_in(site: LoginService) -> None:
    await site.all()
    turned = site.world.authority.signs(tuple(reversed(JANE)))

    ended = await asyncio.gather(*(site.ask(each) for each in (site.world.jane, turned) * 3), return_exceptions=True)

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
async def test_a8_an_ambiguous_subject_needs_a_binding_with_its_digest(site: LoginService, subject: Subject) -> None:
    await site.all()
    told = site.world.authority.signs(subject)
    binding = await site.bind(told.certificate, "told")

    code, said = await site.error(peer(told))
    assert (code, said.partition(": ")[0]) == (403, "Your certificate cannot be told from others by its subject")

    sha256 = subject_sha256(told.certificate.subject)
    await Bindings(site.store).update(binding, BindingFields(subject_sha256=sha256))
    assert await site.ask(told) == TOKEN


async def test_a8_a_binding_with_an_issuer_is_for_certificates_of_that_issuer(site: LoginService) -> None:
    await site.all()
    binding = await site.binding()

    await Bindings(site.store).update(binding, BindingFields(issuer="CN=Other CA"))
    assert await site.error() == (403, "Your certificate is of another issuer than this binding names")

    await Bindings(site.store).update(await site.binding(), BindingFields(issuer="CN=Grid CA"))
    assert await site.ask() == TOKEN


@made_with(seconds=0.15)
async def test_a18_a_login_ends_in_its_time_whatever_it_waits_for(site: LoginService) -> None:
    await site.all()
    site.world.service.behaviour = is_silent

    with pytest.raises(ServiceTimeout, match="^The login could not be finished in time$"):
        await site.ask()
    assert site.login.results == {"done": 0, "refused": 0, "failed": 1}


async def test_logins_of_one_user_at_one_time_are_one_request(site: LoginService) -> None:
    await site.all()
    await site.ask()
    site.world.service.heads.clear()
    site.world.service.behaviour = waits(0.5, GOOD)  # long enough for all of them to come

    assert await asyncio.gather(*(site.ask() for _ in range(20))) == [TOKEN] * 20
    assert len(site.world.service.heads) == 1
    await site.ask()
    assert len(site.world.service.heads) == 2


@made_with(token_seconds=1)
async def test_a_token_is_used_again_for_as_long_as_is_set_and_for_its_user_only(site: LoginService) -> None:
    await site.all()
    await site.ask()
    site.world.service.behaviour = answers('{"token": "another"}')

    site.clock.advance(999)
    assert await site.ask() == TOKEN
    await Bindings(site.store).update(await site.binding(), BindingFields(unique_key="u-2"))
    assert await site.ask() == "another"
    await Bindings(site.store).update(await site.binding(), BindingFields(unique_key="u-1"))
    assert await site.ask() == TOKEN
    site.clock.advance(1)
    assert await site.ask() == "another"
    site.world.service.behaviour = answers('{"token": "a third"}')
    await site.reach_by("another key")
    assert await site.ask() == "a third"


async def test_who_goes_away_while_others_wait_for_the_same_user_takes_nothing_from_them(site: LoginService) -> None:
    await site.all()
    await site.ask()
    site.world.service.behaviour = waits(0.05, GOOD)
    first, second = (asyncio.create_task(site.ask()) for _ in range(2))
    await asyncio.sleep(0.01)

    first.cancel()

    assert await second == TOKEN


@made_with(per_minute=3)
async def test_an_address_that_failed_often_is_refused_unless_it_logged_in_before(site: LoginService) -> None:
    await site.all()
    await site.ask()
    for _ in range(3):
        assert (await site.error(Peer(ADDRESS)))[0] == 400

    assert await site.error(Peer(ADDRESS)) == (429, "Too many failed logins")
    assert (await site.error(peer(site.world.authority.signs("Joe"))))[0] == 429
    assert (await site.error(Peer("192.0.2.2")))[0] == 400
    assert await site.ask() == TOKEN

    site.clock.advance(LATELY)
    for _ in range(3):
        await site.error(Peer(ADDRESS))
    with pytest.raises(RateLimited):
        await site.ask()


@made_with(per_minute=2)
async def test_failures_of_a_certificate_that_logged_in_before_count(site: LoginService) -> None:
    await site.all()
    await site.ask()
    await Bindings(site.store).delete("jane")

    assert [(await site.error())[0] for _ in range(3)] == [404, 404, 429]


@made_with(per_minute=1)
async def test_a_service_that_fails_is_not_counted_against_who_logs_in(site: LoginService) -> None:
    await site.all()
    site.world.service.behaviour = answers("", "500 Error")
    assert [(await site.error())[0] for _ in range(3)] == [502] * 3


async def test_a16_a_key_in_a_path_is_not_in_the_audit_log(site: LoginService) -> None:
    await site.all()
    await site.error(host="0123456789abcdef" * 4)
    assert [each.resource for each in events_in(str(site.log))] == ["/service-types/ams/hosts/***:authx509"]


async def test_every_login_is_in_the_audit_log_with_who_from_where_and_how_it_ended(site: LoginService) -> None:
    await site.all()
    await site.ask()
    await site.error(peer(site.world.authority.signs("Joe")), "localhost")
    await site.error(Peer("192.0.2.2"))

    lines = [(each.actor, each.address, each.code, each.result, each.reason) for each in events_in(str(site.log))]
    assert lines == [
        ("CN=Jane,O=Acme,DC=org", ADDRESS, 200, "done", ""),
        ("CN=Joe", ADDRESS, 404, "refused", "Binding was not found"),
        ("", "192.0.2.2", 400, "refused", "No certificate provided"),
    ]
    events = list(events_in(str(site.log)))
    assert {each.resource for each in events} == {"/service-types/ams/hosts/localhost:authx509"}
    assert {(each.service, each.action) for each in events} == {("authn", "login")}


async def test_no_token_and_no_secret_is_in_any_line_of_any_log(site: LoginService) -> None:
    await site.all()
    with capture_logs() as logs:
        await site.ask()
        for behaviour in (answers(TOKEN, "500 Error"), answers(TOKEN, "404 Not Found"), answers(TOKEN)):
            site.world.service.behaviour = behaviour
            await site.error()

    written = site.log.read_text() + repr(logs)
    assert re.search("could not|answered|was not", written)
    assert SECRET not in written
    assert TOKEN not in written
