"""The authn.cfg of deploy/, before a front: TLS passed through with the PROXY protocol, or ended with a header."""

import ipaddress
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.web.listener import ListenerLimits
from tests.authn.http.front import Served, relaying, served
from tests.support.certificates import Authority, Pair
from tests.support.waiting import wait_until

pytestmark = pytest.mark.haproxy


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as sock:
        return int(sock.getsockname()[1])


@pytest.fixture(scope="module")
def ports(
    front_authority: Authority, front_pair: Pair, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[int, int]]:
    """Run haproxy before two fronts; gives its ports, that of each form."""
    folder = tmp_path_factory.mktemp("haproxy")
    ca = front_authority.pair.chain
    proxy = front_authority.signs("haproxy", ("O", "Site"), ("CN", "proxy.example"))
    for pair in (front_pair, proxy):
        Path(f"{folder}/{Path(pair.chain).stem}.pem").write_bytes(pair.pem + pair.key_pem)
    through, ended = free_port(), free_port()

    app = relaying(["CN=proxy.example,O=Site"])
    networks = [ipaddress.ip_network("127.0.0.0/8")]
    limits = ListenerLimits(connections=100, unshared=networks, only_from=networks)
    with (
        served(front_pair, ca, proxied=True, limits=limits) as behind_through,
        served(front_pair, ca, app=app) as behind_ended,
    ):
        text = Path("deploy/haproxy/authn.cfg").read_text(encoding="utf-8")
        for old, new in (
            ("maxconn 20000", "maxconn 100"),
            ("bind :8443", f"bind 127.0.0.1:{through}"),
            ("bind :9443", f"bind 127.0.0.1:{ended}"),
            ("authn1.example:8443 send", f"127.0.0.1:{behind_through.port} send"),
            ("authn1.example:8443 ssl", f"127.0.0.1:{behind_ended.port} ssl"),
            ("/etc/haproxy/authn.pem", f"{folder}/server.pem"),
            ("/etc/haproxy/clients.pem", ca),
            ("/etc/haproxy/authn-ca.pem", ca),
            ("/etc/haproxy/proxy.pem", f"{folder}/haproxy.pem"),
            ("verifyhost authn1.example", "verifyhost localhost"),
        ):
            assert old in text
            text = text.replace(old, new)
        (folder / "haproxy.cfg").write_text(text)
        program = shutil.which("haproxy", path="/usr/sbin:/usr/bin:/usr/local/sbin:/usr/local/bin")
        assert program is not None
        process = subprocess.Popen([program, "-db", "-f", str(folder / "haproxy.cfg")])
        try:
            wait_until(lambda: listens(through) and listens(ended))
            yield through, ended
        finally:
            process.kill()
            process.wait()


def listens(port: int) -> bool:
    with socket.socket() as sock:
        return sock.connect_ex(("127.0.0.1", port)) == 0


@pytest.mark.parametrize("form", [0, 1])
def test_a12_a_client_behind_haproxy_is_known_by_its_certificate_and_address(
    ports: tuple[int, int], front_authority: Authority, jane: Pair, form: int
) -> None:
    client = Served(None, ports[form], front_authority.pair.chain)  # type: ignore[arg-type]

    assert client.ask(cert=jane, headers={"X-SSL-Client-Cert": "forged"})["subject"] == "CN=Jane,C=GR"
    said = client.ask(headers={"X-SSL-Client-Cert-Chain": "forged"})
    assert (said["subject"], said["unreadable"], said["address"]) == (None, "", "127.0.0.1")


def test_a12_unknown_certificates_pass_it(ports: tuple[int, int], front_authority: Authority, tmp_path: Path) -> None:
    stranger = Authority.make(tmp_path, "stranger").signs("eve")
    client = Served(None, ports[1], front_authority.pair.chain)  # type: ignore[arg-type]
    assert client.ask(cert=stranger)["subject"] == "CN=eve"
