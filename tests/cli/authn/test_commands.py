"""`ams authn` against a certificate service: service types, auth methods, bindings, keys and the audit log."""

import json
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.serialization import Encoding

from ams.cli.exit_codes import Exit
from tests.cli.authn.conftest import Authn
from tests.support.certificate_service import DATE, CertificateService
from tests.support.certificates import Authority


def bind(authn: Authn, name: str = "jane", *more: str) -> str:
    return authn("bindings", "create", name, "--dn", "/C=GR/O=Acme, Inc. + Co/CN=Jane", "--unique-key", "id-1", *more)


def test_a_service_type_is_made_shown_changed_and_deleted(authn: Authn, certificates: CertificateService) -> None:
    authn("service-types", "create", "web.one", "--host", "a.example", "--host", "b.example", "--type", "web-api",
          "--auth-method", "api-key", "--verify-client-host")  # fmt: skip
    assert "a.example, b.example" in authn("service-types", "show", "web.one")
    authn("service-types", "update", "web.one", "--host", "c.example", "--rename", "web.two")
    assert "web.two" in authn("service-types", "list")
    authn("service-types", "delete", "web.two")

    assert [(method, path) for method, path, _ in certificates.changes] == [
        ("POST", "/v1/service-types"), ("PUT", "/v1/service-types/web.one"), ("DELETE", "/v1/service-types/web.two"),
    ]  # fmt: skip
    assert certificates.changes[0][2]["verify_client_host"] is True
    assert certificates.changes[1][2] == {"name": "web.two", "hosts": ["c.example"]}


def test_a16_secrets_are_in_files_never_printed(authn: Authn, certificates: CertificateService, tmp_path: Path) -> None:
    (tmp_path / "authn.token").write_text("hush\n")

    header = ("--header-file", "x-api-key=authn.token")
    said = authn("auth-methods", "create", "ams", "ams.example", "--port", "444", *header)
    said += authn("auth-methods", "update", "ams", "ams.example", *header)
    said += authn("auth-methods", "show", "ams", "ams.example", "-o", "json")
    said += authn("auth-methods", "list")
    authn("auth-methods", "delete", "ams", "ams.example")

    assert certificates.changes[0][2]["headers"] == {"x-api-key": "hush"}
    assert "x-api-key" in said
    assert "hush" not in said
    assert certificates.auth_methods == []


def test_a_subject_is_bound_in_any_spelling(authn: Authn, certificates: CertificateService, tmp_path: Path) -> None:
    bind(authn)

    assert certificates.bindings[0]["auth_identifier"] == "CN=Jane,O=Acme\\, Inc. \\+ Co,C=GR"
    assert certificates.bindings[0]["service_uuid"] == "u-ams"
    spelled = "C=GR, O=Acme\\, Inc. \\+ Co, CN=Jane"
    assert "jane" in authn("bindings", "find", "--dn", spelled)
    assert "jane" in authn("bindings", "find", "--dn", spelled, "--service-type", "ams", "--host", "ams.example")
    assert "jane" not in authn("bindings", "find", "--dn", "/CN=Joe")
    pair = Authority.make(tmp_path).signs("joe", ("C", "GR"), ("CN", "Joe"))
    authn("bindings", "create", "joe", "--cert", pair.chain, "--unique-key", "id-2", "--with-issuer")
    assert certificates.bindings[1]["auth_identifier"] == "CN=Joe,C=GR"
    assert certificates.bindings[1]["issuer"] == "CN=authority"
    assert "joe" in authn("bindings", "find", "--cert", pair.chain)
    odd = pair.certificate.public_bytes(Encoding.DER).replace(b"\x0c\x03Joe", b"\x13\x03J_e")  # as some CAs sign it
    (tmp_path / "odd.der").write_bytes(odd)
    authn("bindings", "create", "odd", "--cert", str(tmp_path / "odd.der"), "--unique-key", "id-3")
    assert certificates.bindings[-1]["auth_identifier"] == "CN=J_e,C=GR"


def test_a_binding_is_changed_listed_and_deleted(authn: Authn, certificates: CertificateService) -> None:
    bind(authn)
    authn("bindings", "update", "jane", "--unique-key", "id-2", "--issuer", "/C=GR/CN=CA", "--rename", "jane.two")
    assert certificates.changes[-1][2] == {"name": "jane.two", "unique_key": "id-2", "issuer": "CN=CA,C=GR"}
    assert "id-2" in authn("bindings", "list", "--service-type", "ams", "--host", "ams.example")
    assert json.loads(authn("bindings", "list", "-o", "json"))["bindings"][0]["name"] == "jane.two"
    authn("bindings", "delete", "jane.two")
    assert certificates.bindings == []


def test_a15_a_key_is_shown_when_it_is_made_and_never_again(authn: Authn) -> None:
    assert "key-of-dashboard" in authn("keys", "create", "dashboard", "--scope", "read")
    listed = authn("keys", "list")
    assert "dashboard" in listed
    assert "key-of-dashboard" not in listed
    authn("keys", "delete", "dashboard")
    assert "dashboard" not in authn("keys", "list")


@pytest.mark.parametrize(("arguments", "code", "said"), [
    (["service-types", "update", "ams"], Exit.USAGE, "say what to change"),
    (["service-types", "show", "none"], Exit.NOT_FOUND, "Service-type was not found"),
    (["service-types", "create", "a b", "--host", "h"], Exit.REFUSED, "Invalid service-type name"),
    (["auth-methods", "create", "ams", "ams.example", "--header-file", "x"], Exit.USAGE, "NAME=FILE"),
    (["bindings", "create", "jane", "--dn", "nonsense", "--unique-key", "i"], Exit.USAGE, "distinguished name"),
    (["bindings", "create", "jane", "--unique-key", "i"], Exit.USAGE, "needs a subject"),
    (["bindings", "find"], Exit.USAGE, "--dn or --cert"),
    (["bindings", "list", "--host", "h"], Exit.USAGE, "--service-type and --host"),
])  # fmt: skip
def test_a_mistake_is_said_in_one_line(authn: Authn, arguments: list[str], code: Exit, said: str) -> None:
    ran = authn.run_command(*arguments)
    assert (ran.returncode, ran.stdout) == (code, "")
    assert said in ran.stderr.splitlines()[-1]


def test_a_wrong_key_is_not_allowed_and_a_missing_one_is_told_apart(authn: Authn) -> None:
    wrong = authn.run_command("keys", "list", AMS_AUTHN_KEY="wrong")
    missing = authn.run_command("keys", "list", AMS_AUTHN_KEY="")

    assert (wrong.returncode, missing.returncode) == (Exit.NOT_ALLOWED, Exit.NOT_ALLOWED)
    assert "Wrong Credentials\n" in wrong.stderr
    assert "no key was given" in missing.stderr


def test_names_are_completed_from_the_service(authn: Authn, certificates: CertificateService) -> None:
    bind(authn)
    for line, offered in (("service-types show a", "ams\n"), ("bindings show j", "jane\n"), ("keys delete k", "\n")):
        variables = {"COMP_WORDS": f"ams authn {line}", "COMP_CWORD": "4", "_AMS_COMPLETE": "complete_bash"}
        assert authn.ams(**variables) == (0, offered, "")


def test_audit_log_of_service_or_file_is_shown(authn: Authn, certificates: CertificateService, tmp_path: Path) -> None:
    said = {"time": DATE, "id": "1", "service": "authn", "actor": "management key", "address": "192.0.2.7",
            "action": "bindings:delete", "resource": "/bindings/jane", "code": 204, "result": "done"}  # fmt: skip
    certificates.events = [said, said | {"actor": "CN=Jane", "action": "login", "code": 404, "result": "refused",
                                         "reason": "Binding was not found"}]  # fmt: skip
    (tmp_path / "authn-audit.jsonl").write_text(json.dumps(said) + "\n")

    assert "refused (404: Binding was not found)" in authn("audit")
    assert "/bindings/jane" not in authn("audit", "--actor", "anna")
    assert "bindings:delete" in authn("audit", "--file", str(tmp_path / "authn-audit.jsonl"))
    assert "no pages" in authn.run_command("audit", "--file", "x", "--all").stderr
