import json
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ams.client.errors import InvalidInput
from ams.client.wire import authn, list_topics

SUBJECT = "CN=12345,O=Acme\\, Inc. \\+ Co,C=GR,DC=v1+DC=v2"


def test_calls_are_as_the_contract_has_them() -> None:
    made = authn.create_service_type("ams", ["ams.example"], verify_client_host=True)
    bound = authn.create_binding("site.one", "u-1", "ams.example", SUBJECT, "id-1", issuer="CN=CA")

    assert (made.method, made.path) == ("POST", "/v1/service-types")
    assert json.loads(made.body or b"") == {
        "name": "ams",
        "hosts": ["ams.example"],
        "auth_types": ["x509"],
        "auth_method": "headers",
        "type": "ams",
        "verify_client_host": True,
    }
    assert (bound.method, bound.path) == ("POST", "/v1/bindings/site.one")
    assert json.loads(bound.body or b"") == {
        "service_uuid": "u-1",
        "host": "ams.example",
        "auth_identifier": SUBJECT,
        "unique_key": "id-1",
        "auth_type": "x509",
        "issuer": "CN=CA",
    }


def test_an_update_says_what_is_given_and_an_empty_issuer_too() -> None:
    call = authn.update_binding("jane", unique_key="id-2", issuer="")

    assert json.loads(call.body or b"") == {"unique_key": "id-2", "issuer": ""}


def test_the_plus_of_a_subject_is_sent_so_that_it_stays_one() -> None:
    call = authn.find_binding("ams", "ams.example", SUBJECT)
    url = str(httpx.Request(call.method, f"https://h{call.path}", params=dict(call.query)).url)

    assert parse_qs(urlsplit(url).query) == {"authID": [SUBJECT]}
    assert url.count("%2B") == SUBJECT.count("+")


@pytest.mark.parametrize("name", ["", "a b", "a/b", "..", "a:b", "ä"])
def test_a7_nothing_new_gets_a_name_that_no_path_could_hold(name: str) -> None:
    with pytest.raises(InvalidInput):
        authn.create_binding(name, "u", "h", "CN=x", "k")
    with pytest.raises(InvalidInput):
        authn.create_key(name, "read")


@settings(max_examples=30)
@given(st.text(min_size=1, max_size=20).filter(lambda name: "/" not in name and name not in (".", "..")))
def test_a7_what_was_imported_under_another_name_can_still_be_asked_for(name: str) -> None:
    try:
        path = authn.get_binding(name).path
    except UnicodeEncodeError:
        return  # lone surrogates are no text

    assert path.isascii()
    assert path.count("/") == 3
    assert httpx.URL(f"https://h{path}").path == f"/v1/bindings/{name}"


def test_calls_know_which_service_they_are_for() -> None:
    assert authn.is_for_authn(authn.list_bindings())
    assert authn.is_for_authn(authn.delete_auth_method("ams", "h"))
    assert not authn.is_for_authn(list_topics("p"))


def test_no_secret_is_shown_by_repr() -> None:
    method = authn.AuthMethod(
        host="h", port=1, service_uuid="u", type="headers", uuid="m", access_key="hush", headers={"x": "hush"}
    )

    assert "hush" not in repr(method)
    assert "hush" not in repr(authn.Token(token="hush"))
    assert "hush" not in repr(authn.Key(name="n", scope="read", key="hush"))
    assert authn.without_secrets(method).headers == {"x": ""}
