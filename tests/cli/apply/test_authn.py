"""Service types, auth methods and bindings in files of declarations."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.cli.exits import Exit
from ams.core.errors import BadDocument
from ams.provisioning.document import read_documents
from tests.cli.apply.conftest import Files
from tests.cli.conftest import Ams
from tests.support.certificate_service import KEY, CertificateService, certificate_service

TYPES = """
service_types:
  ams:
    hosts: [ams.example]
    auth_methods:
      ams.example: {port: 444, headers: {x-api-key: {file: authn.token}}}
"""
TEXT = (
    TYPES
    + """
projects:
  PROJECT:
    members:
      PROJECT-jane: [publisher]
bindings:
  PROJECT.jane:
    service_type: ams
    host: ams.example
    auth_identifier: /C=GR/CN=Jane
    user: PROJECT-jane
"""
)


@pytest.fixture
def certificates(tmp_path: Path) -> Iterator[CertificateService]:
    (tmp_path / "authn.token").write_text("hush\n")
    with certificate_service() as service:
        yield service


@pytest.fixture
def environment(environment: dict[str, str], certificates: CertificateService) -> dict[str, str]:
    return environment | {"AMS_AUTHN_ENDPOINT": certificates.url, "AMS_AUTHN_KEY": KEY}


def test_users_then_service_types_then_bindings_are_made_and_again_there_is_nothing_to_do(
    ams: Ams, files: Files, certificates: CertificateService
) -> None:
    said = files.settle(TEXT)

    project = files.project
    kinds = ["project", "member", "service type", "auth method", "binding"]
    assert [line.split(f" {project}")[0].split(" ams")[0][2:] for line in said.splitlines()] == kinds
    assert "hush" not in said
    assert certificates.auth_methods[0]["headers"] == {"x-api-key": "hush"}
    [binding] = certificates.bindings
    assert binding["auth_identifier"] == "CN=Jane,C=GR"
    assert binding["unique_key"] in ams("users", "show", f"{project}-jane").stdout


def test_a22_a_binding_follows_a_user_who_was_made_anew(
    ams: Ams, files: Files, certificates: CertificateService
) -> None:
    files.settle(TEXT)
    ams("users", "delete", f"{files.project}-jane")

    said = files.settle(TEXT)

    assert f"~ binding {files.project}.jane: user {files.project}-jane" in said
    assert certificates.bindings[0]["unique_key"] in ams("users", "show", f"{files.project}-jane").stdout


def test_what_differs_is_altered_and_secrets_only_when_asked(files: Files, certificates: CertificateService) -> None:
    files.settle(TEXT)
    before = len(certificates.changes)

    assert files.apply(TEXT.replace("444", "445").replace("CN=Jane", "CN=Joe"), "--yes").returncode == 0
    assert [body for _, _, body in certificates.changes[before:]] == [
        {"port": 445},
        {"auth_identifier": "CN=Joe,C=GR"},
    ]
    ran = files.apply(TEXT.replace("444", "445").replace("CN=Jane", "CN=Joe"), "--yes", "--set-secrets")
    assert ran.stdout == "~ auth method ams/ams.example: headers {...}\n"
    assert certificates.changes[-1][2] == {"headers": {"x-api-key": "hush"}}


def test_pruning_removes_bindings_and_auth_methods_of_declared_service_types_only(
    files: Files, certificates: CertificateService
) -> None:
    files.settle(TEXT)
    foreign = certificates.bindings[0] | {"name": "foreign", "service_uuid": "other", "auth_identifier": "CN=f"}
    certificates.bindings.append(foreign)
    less = TYPES.split("    auth_methods")[0] + "    auth_methods:\nbindings:\n"

    said = files.settle(less, "--prune")

    assert said.splitlines() == [f"- binding {files.project}.jane", "- auth method ams/ams.example"]
    assert certificates.bindings == [foreign]
    assert len(certificates.service_types) == 1


def test_a_secret_that_is_not_there_stops_it_before_anything_is_done(
    files: Files, certificates: CertificateService
) -> None:
    ran = files.apply(TYPES.replace("file: authn.token", "env: NO_SUCH_VARIABLE"), "--yes")

    assert ran.returncode == Exit.USAGE
    assert "NO_SUCH_VARIABLE" in ran.stderr
    assert certificates.changes == []


def test_a_service_type_cannot_change_its_type(files: Files, certificates: CertificateService) -> None:
    files.settle(TYPES)

    ran = files.apply(TYPES.replace("    hosts", "    type: custom\n    hosts"))

    assert ran.returncode == Exit.USAGE
    assert "is of type ams" in ran.stderr


def test_a_user_who_is_nowhere_is_told_with_the_line(files: Files, certificates: CertificateService) -> None:
    ran = files.apply(TEXT.replace("user: PROJECT-jane", "user: nobody"))

    assert ran.returncode == Exit.USAGE
    assert "file.yaml:17: user nobody is neither declared nor there" in ran.stderr


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("service_types: {a/b: {hosts: [h]}}", "is no name"),
        ("service_types: {a: {}}", "names its hosts"),
        ("service_types: {a: {hosts: [h], auth_method: x}}", "none of headers, api-key"),
        ("service_types: {a: {hosts: [h], auth_methods: {i: {access_key: {env: X}}}}}", "i is no host"),
        ("service_types: {a: {hosts: [h], auth_methods: {h: {port: 1}}}}", "has headers, or an access_key"),
        ("service_types: {a: {hosts: [h], auth_methods: {h: {headers: {}}}}}", "one header at least"),
        ("service_types: {a: {hosts: [h], auth_methods: {h: {access_key: hush}}}}", "is not in this file"),
        ("bindings: {a: {host: h, auth_identifier: /CN=x, user: u}}", "says its service_type"),
        ("bindings: {a: {service_type: t, host: h, auth_identifier: /CN=x}}", "says its user"),
        ("bindings: {a: {service_type: t, host: h, auth_identifier: x, user: u}}", "distinguished name"),
    ],
)
def test_what_cannot_be_is_said_with_its_line_and_no_secret(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "f.yaml").write_text(text)

    with pytest.raises(BadDocument, match=said) as raised:
        read_documents([str(tmp_path / "f.yaml")])

    assert "f.yaml:1" in str(raised.value)
    assert "hush" not in str(raised.value)
