"""Long-lived objects that hold a time or a file's content, each used at two times.

A test moves a clock or replaces a file between two uses of one object. The second use must behave like a new object.
"""

import asyncio
import datetime
import os
import shutil
import socket
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from cryptography import x509

from ams.app import lifecycle
from ams.app.push_server.selection import OK, Condition
from ams.app.push_server.service import listening
from ams.app.push_server.settings import PushSettings
from ams.authn import program
from ams.authn.settings import AuthnSettings
from ams.core.settings import Settings
from ams.http.tls import Certificate, self_signed
from ams.pipeline.jobs.accounting import envelope
from ams.push.rpc.client import UNAVAILABLE, DrivenPushServer
from ams.storage.cursors.postgresql_rows import DatabaseTime
from tests.app.push_server.keepers import TargetTable
from tests.app.push_server.test_service import StatefulTable
from tests.push.test_push_server import run_secure_server
from tests.support import certificates
from tests.support.authorities import DAY, NOW, Authority
from tests.support.clock import ManualClock

NOW_MS = int(NOW.timestamp()) * 1000


def milliseconds(span: datetime.timedelta) -> int:
    return span // datetime.timedelta(milliseconds=1)


def days_left(certificate: Certificate, clock: ManualClock) -> int:
    """Return how many days a context's certificate is still valid."""
    shown = x509.load_pem_x509_certificate(Path(certificate.chain).read_bytes())
    return (shown.not_valid_after_utc - datetime.datetime.fromtimestamp(clock.wall() / 1000, datetime.UTC)).days


def served_certificate(context: ssl.SSLContext) -> bytes:
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    trusting = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    server = context.wrap_bio(to_server, to_client, server_side=True)
    client = trusting.wrap_bio(to_client, to_server)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
    shown = client.getpeercert(binary_form=True)
    assert shown is not None
    return shown


def test_a_certificate_made_here_is_made_again_while_it_serves(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    certificate = Certificate.local(str(tmp_path), clock=clock)
    first = served_certificate(certificate.context)

    clock.advance(milliseconds(1000 * DAY))
    certificate.reload()
    assert served_certificate(certificate.context) == first
    clock.advance(milliseconds(800 * DAY))
    certificate.reload()
    assert served_certificate(certificate.context) != first
    assert days_left(certificate, clock) > 1000


@pytest.mark.parametrize("is_authn", [False, True])
def test_both_services_make_their_certificate_again(tmp_path: Path, is_authn: bool) -> None:
    of_ams: Any = SimpleNamespace(folder=SimpleNamespace(path=str(tmp_path)))
    of_authn: Any = SimpleNamespace(place=lambda _: str(tmp_path))
    if is_authn:
        certificate = program._certificate(AuthnSettings(tls_self_signed=True), of_authn)[0]
    else:
        certificate = lifecycle._certificate(Settings(tls_self_signed=True), of_ams)
    assert certificate is not None
    first = Path(certificate.chain).read_bytes()

    os.unlink(tmp_path / "ca.pem")  # what is missing is made as what is about to expire
    certificate.reload()
    assert Path(certificate.chain).read_bytes() != first


def test_a_certificate_renamed_over_another_of_the_same_time_is_read(tmp_path: Path) -> None:
    old, new = (self_signed(str(folder)) for folder in made_folders(tmp_path, "old", "new"))
    for path in (*old, *new):
        os.utime(path, (1, 1))
    certificate = Certificate.load(*old[1:])
    first = served_certificate(certificate.context)

    for source, target in zip(new[1:], old[1:], strict=True):
        os.replace(source, target)
    certificate.reload()
    assert served_certificate(certificate.context) != first


def test_a_certificate_that_is_replaced_while_it_is_read_is_read_again(tmp_path: Path) -> None:
    old, new = (self_signed(str(folder)) for folder in made_folders(tmp_path, "old", "new"))

    class Slow(ssl.SSLContext):
        def load_cert_chain(self, *files: object) -> None:  # type: ignore[override]
            super().load_cert_chain(*files)  # type: ignore[arg-type]
            for source, target in zip(new[1:], old[1:], strict=True):
                shutil.copy2(source, target)

    for path in old:
        os.utime(path, (1, 1))  # both may have been made within one tick of the file system's clock
    certificate = Certificate.load(*old[1:], Slow(ssl.PROTOCOL_TLS_SERVER))
    first = served_certificate(certificate.context)

    certificate.reload()
    assert served_certificate(certificate.context) != first


def made_folders(folder: Path, *names: str) -> list[Path]:
    for name in names:
        (folder / name).mkdir()
    return [folder / name for name in names]


async def test_a_renewed_certificate_is_shown_to_a_push_server_without_a_restart(tmp_path: Path) -> None:
    authority, other = (certificates.Authority.make(tmp_path, name) for name in ("authority", "other"))
    stale, fresh = other.signs("stale"), authority.signs("fresh")
    async with run_secure_server(authority, "127.0.0.1") as server:
        client = DrivenPushServer(Settings(
            push_server_host="127.0.0.1", push_server_port=server.port, cert=stale.chain, key=stale.key,
            certificate_authorities_dir=str(authority.folder),
        ))  # fmt: skip
        try:
            assert await client.health(details=False) == UNAVAILABLE
            Path(stale.key).unlink()
            assert await client.health(details=False) == UNAVAILABLE  # a pair that is being written is no error
            shutil.copy(fresh.chain, stale.chain)
            shutil.copy(fresh.key, stale.key)
            assert await client.health(details=False) == UNAVAILABLE
            assert await client.health(details=False) == "SERVING"
        finally:
            await client.close()


async def test_a_push_server_shows_its_renewed_certificate_and_trusts_its_new_cas(tmp_path: Path) -> None:
    authority, other = (certificates.Authority.make(tmp_path, name) for name in ("authority", "other"))
    pair, renewed = (authority.signs(name, hosts=["127.0.0.1"]) for name in ("server", "renewed"))
    settings = PushSettings(
        endpoint="http://127.0.0.1:1", token="x", port=0, cert=pair.chain, key=pair.key, acl=("client",),
        certificate_authorities_dir=str(authority.folder),
    )  # fmt: skip
    client = other.signs("client")

    def shown_certificate(address: str) -> tuple[str, bool]:
        """Return the server's name, and whether it accepted the client's certificate."""
        context = ssl.create_default_context(cafile=authority.pair.chain)
        context.load_cert_chain(client.chain, client.key)
        context.set_alpn_protocols(["h2"])
        host, port = address.rsplit(":", 1)
        with (socket.create_connection((host, int(port)), timeout=10) as plain,
              context.wrap_socket(plain, server_hostname=host) as secure):  # fmt: skip
            found = secure.getpeercert()
            try:
                is_taken = bool(secure.recv(1))
            except OSError:  # as those of TLS are
                is_taken = False
        assert found is not None
        return dict(pair for part in found["subject"] for pair in part)["commonName"], is_taken  # type: ignore[misc]

    async with listening(settings, StatefulTable(TargetTable()), Condition(OK)) as address:
        assert await asyncio.to_thread(shown_certificate, address) == ("server", False)
        shutil.copy(renewed.chain, pair.chain)  # the key is still to come
        assert (await asyncio.to_thread(shown_certificate, address))[0] == "server"
        shutil.copy(renewed.key, pair.key)
        shutil.copy(other.pair.chain, authority.folder / "other.pem")
        assert await asyncio.to_thread(shown_certificate, address) == ("renewed", True)


def test_authorities_of_usage_records_are_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    minute = [0]
    monkeypatch.setattr(envelope, "time", SimpleNamespace(monotonic=lambda: 60 * minute[0]))
    (tmp_path / "0.pem").write_bytes(Authority.make("First").pem)
    assert len(envelope.authorities(str(tmp_path))) == 1

    (tmp_path / "1.pem").write_bytes(Authority.make("Second").pem)
    assert len(envelope.authorities(str(tmp_path))) == 1
    minute[0] += 1
    assert len(envelope.authorities(str(tmp_path))) == 2


def test_the_time_of_the_database_goes_on_and_follows_what_it_says() -> None:
    clock = ManualClock(NOW_MS)
    time = DatabaseTime(clock)
    time.note(1_000_000, time.moment())

    clock.advance(5_000)
    assert time.now() == 1_005_000
    clock.step(-milliseconds(DAY))
    assert time.now() == 1_005_000
    time.note(2_000_000, time.moment())
    clock.advance(1)
    assert time.now() == 2_000_001
    time.note(1_000_000, time.moment())
    assert time.now() == 1_000_000


def test_an_answer_that_is_old_when_it_is_read_does_not_set_the_time_of_the_database_back() -> None:
    clock = ManualClock(NOW_MS)
    time = DatabaseTime(clock)
    time.note(1_000_000, time.moment())

    asked = time.moment()
    clock.advance(20_000)  # the process is stopped between the answer and its reading
    time.note(1_000_003, asked)

    assert time.now() == 1_020_000
    time.note(1_021_000, time.moment())
    assert time.now() == 1_021_000
