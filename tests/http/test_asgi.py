import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.core.errors import BadSettings
from ams.http.asgi import client_address, is_within, usual_address
from ams.outgoing.guard import networks

PROXIES = networks("127.0.0.1, 10.0.0.0/8,::1", "trusted_proxies")


def asked(peer: str | None, *forwarded: str) -> str:
    headers = [(b"x-forwarded-for", each.encode()) for each in forwarded]
    return client_address({"client": (peer, 1) if peer else None, "headers": headers}, PROXIES)


@pytest.mark.parametrize(
    ("peer", "forwarded", "address"),
    [("192.0.2.1", [], "192.0.2.1"), ("192.0.2.1", ["198.51.100.1"], "192.0.2.1"),  # anybody may write it
     ("127.0.0.1", ["198.51.100.1"], "198.51.100.1"), ("127.0.0.1", ["203.0.113.9, 198.51.100.1"], "198.51.100.1"),
     ("127.0.0.1", ["203.0.113.9", "198.51.100.1, 10.1.2.3"], "198.51.100.1"),
     ("127.0.0.1", ["10.1.2.3"], "10.1.2.3"), ("127.0.0.1", ["198.51.100.1, unknown"], "127.0.0.1"),
     ("127.0.0.1", [""], "127.0.0.1"), ("127.0.0.1", [], "127.0.0.1"), (None, ["198.51.100.1"], ""),
     ("::ffff:127.0.0.1", ["::ffff:198.51.100.1"], "198.51.100.1"), ("::1", ["2001:DB8::0:1"], "2001:db8::1")],
)  # fmt: skip
def test_the_client_is_the_last_hop_that_is_no_proxy_of_ours(peer: str | None, forwarded: list[str], address: str):
    assert asked(peer, *forwarded) == address


@settings(max_examples=30, deadline=None)
@given(st.text(st.characters(max_codepoint=255)), st.sampled_from(["192.0.2.1", "127.0.0.1"]))
def test_what_a_client_writes_before_the_hop_of_a_proxy_never_counts(written: str, peer: str):
    scope = {"client": (peer, 1), "headers": [(b"x-forwarded-for", f"{written}, 198.51.100.1".encode("latin-1"))]}

    assert client_address(scope, PROXIES) == ("198.51.100.1" if peer == "127.0.0.1" else peer)
    assert client_address(scope, ()) == peer


def test_a_network_that_is_none_stops_the_start():
    with pytest.raises(BadSettings, match="trusted_proxies"):
        networks("10.0.0.1/8", "trusted_proxies")


def test_an_address_is_compared_in_its_usual_form() -> None:
    assert usual_address("::ffff:192.0.2.1") == "192.0.2.1"
    assert usual_address("fe80::1%eth0") == "fe80::1"
    assert usual_address("nobody") == ""
    assert is_within(usual_address("::ffff:192.0.2.1"), networks("192.0.2.0/24", ""))
    assert not is_within(usual_address("nobody"), networks("0.0.0.0/0", ""))
