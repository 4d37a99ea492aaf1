"""Who may ask our push server: TLS, client certificates, and the access list by either kind of name (P22)."""

import contextlib
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import grpc
import pytest

from ams.app.push_server.condition import OK, Condition
from ams.app.push_server.following import ByActivation
from ams.app.push_server.service import AccessList, listening
from ams.app.push_server.settings import PushSettings
from ams.core.errors import BadSettings
from tests.app.push_server.keepers import Table
from tests.app.push_server.test_service import CHECK, STATUS, WATCH, _Told
from tests.support.certificates import Authority, Pair
from tests.support.wire_bytes import call

JANE = (("C", "GR"), ("O", "Acme"), ("CN", "ams.example.com"))


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority.make(tmp_path_factory.mktemp("certificates"))


@contextlib.asynccontextmanager
async def guarded(authority: Authority, acl: Sequence[str]) -> AsyncIterator[str]:
    pair = authority.signs("server", hosts=["127.0.0.1"])
    settings = PushSettings(
        endpoint="http://127.0.0.1:1", token="x", port=0, cert=pair.chain, key=pair.key, acl=tuple(acl),
        certificate_authorities_dir=str(authority.folder),
    )  # fmt: skip
    async with listening(settings, _Told(Table()), Condition(OK)) as address:
        yield address


def channel(address: str, authority: Authority, shown: Pair | None) -> grpc.aio.Channel:
    keys = (shown.key_pem, shown.pem) if shown else (None, None)
    return grpc.aio.secure_channel(address, grpc.ssl_channel_credentials(authority.pair.pem, *keys))


@pytest.mark.parametrize(
    ("acl", "code"),
    [
        (["ams.example.com"], "OK"), (["AMS.example.com"], "UNAUTHENTICATED"), (["other", "ams.example.com"], "OK"),
        (["/C=GR/O=Acme/CN=ams.example.com"], "OK"), (["CN=ams.example.com,O=Acme,C=GR"], "OK"),
        (["C = GR, O = Acme, CN = ams.example.com"], "OK"), (["CN=ams.example.com,O=Other,C=GR"], "UNAUTHENTICATED"),
        (["CN=ams.example.com"], "UNAUTHENTICATED"), ([], "UNAUTHENTICATED"),
    ],
)  # fmt: skip
async def test_p22_a_client_is_let_in_by_common_or_whole_name(authority: Authority, acl: list[str], code: str) -> None:
    client = authority.signs("client", *JANE)
    async with guarded(authority, acl) as address, channel(address, authority, client) as connection:
        found = await call(connection, STATUS)

    assert found == (code, "UNAUTHORISED" if code != "OK" else "")


async def test_p22_health_is_told_to_nobody_else_either(authority: Authority) -> None:
    client = authority.signs("client", *JANE)
    async with guarded(authority, ["somebody"]) as address, channel(address, authority, client) as connection:
        assert await call(connection, CHECK) == ("UNAUTHENTICATED", "UNAUTHORISED")
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await connection.unary_stream(WATCH)(b"", timeout=5).read()

    assert refused.value.code() is grpc.StatusCode.UNAUTHENTICATED


@pytest.mark.parametrize("client", ["none", "of another authority"])
async def test_without_a_good_certificate_nobody_connects(authority: Authority, tmp_path: Path, client: str) -> None:
    shown = None if client == "none" else Authority.make(tmp_path, "other").signs("client", *JANE)
    async with guarded(authority, ["ams.example.com"]) as address, channel(address, authority, shown) as connection:
        assert (await call(connection, STATUS))[0] == "UNAVAILABLE"


def test_an_entry_that_is_no_name_stops_the_start() -> None:
    with pytest.raises(BadSettings, match="acl: 'foo=bar': this is no distinguished name"):
        AccessList(["foo=bar"])


@pytest.mark.parametrize("identity", [None, {}, {"x509_pem_cert": []}, {"x509_pem_cert": [b"nonsense"]}])
def test_who_is_not_known_is_not_permitted(identity: dict[str, list[bytes]] | None) -> None:
    assert not AccessList(["", "nonsense"]).permits(identity)


async def test_authorities_that_cannot_be_read_stop_the_start(authority: Authority, tmp_path: Path) -> None:
    pair = authority.signs("server", hosts=["127.0.0.1"])
    settings = PushSettings(
        endpoint="http://127.0.0.1:1", token="x", port=0, cert=pair.chain, key=pair.key,
        certificate_authorities_dir=str(tmp_path),
    )  # fmt: skip
    with pytest.raises(BadSettings, match=r"there is no \*.pem file"):
        async with listening(settings, ByActivation(Table()), Condition(OK)):  # type: ignore[arg-type]
            pass
    (tmp_path / "broken.pem").write_text("nonsense")
    with pytest.raises(BadSettings, match=r"broken.pem holds no certificate"):
        async with listening(settings, ByActivation(Table()), Condition(OK)):  # type: ignore[arg-type]
            pass
