"""Service types, auth methods and bindings in files of declarations."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from ams.cli.exit_codes import Exit
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


def test_users_types_and_bindings_are_made_once(ams: Ams, files: Files, certificates: CertificateService) -> None:
    said = files.settle(TEXT)

    project = files.project
    kinds = ["project", "member", "service type", "auth method", "binding"]
    assert [line.split(f" {project}")[0].split(" ams")[0][2:] for line in said.splitlines()] == kinds
    assert "hush" not in said
    assert certificates.auth_methods[0]["headers"] == {"x-api-key": "hush"}
    [binding] = certificates.bindings
    assert binding["auth_identifier"] == "CN=Jane,C=GR"
    assert binding["unique_key"] in ams("users", "show", f"{project}-jane").stdout


def test_what_differs_is_altered_and_secrets_only_when_asked(files: Files, certificates: CertificateService) -> None:
    files.settle(TEXT)
    before = len(certificates.changes)

    assert files.apply(TEXT.replace("444", "445").replace("CN=Jane", "CN=Joe"), "--yes").returncode == 0
    assert [body for _, _, body in certificates.changes[before:]] == [{"port": 445}, {"auth_identifier": "CN=Joe,C=GR"}]
    ran = files.apply(TEXT.replace("444", "445").replace("CN=Jane", "CN=Joe"), "--yes", "--set-secrets")
    assert ran.stdout == "~ auth method ams/ams.example: headers {...}\n"
    assert certificates.changes[-1][2] == {"headers": {"x-api-key": "hush"}}


def test_pruning_is_of_declared_service_types_only(files: Files, certificates: CertificateService) -> None:
    files.settle(TEXT)
    foreign = certificates.bindings[0] | {"name": "foreign", "service_uuid": "other", "auth_identifier": "CN=f"}
    certificates.bindings.append(foreign)
    less = TYPES.split("    auth_methods")[0] + "    auth_methods:\nbindings:\n"

    said = files.settle(less, "--prune")

    assert said.splitlines() == [f"- binding {files.project}.jane", "- auth method ams/ams.example"]
    assert certificates.bindings == [foreign]
    assert len(certificates.service_types) == 1


@pytest.mark.parametrize(("text", "said"), [
    (TYPES.replace("file: authn.token", "env: NO_SUCH_VARIABLE"), "NO_SUCH_VARIABLE"),
    (TYPES.replace("    hosts", "    type: custom\n    hosts"), "is of type ams"),
    (TEXT.replace("user: PROJECT-jane", "user: nobody"), ":17: user nobody is neither declared nor there"),
], ids=["a missing secret", "another type", "a user who is nowhere"])  # fmt: skip
def test_the_impossible_is_told_first(files: Files, certificates: CertificateService, text: str, said: str) -> None:
    if "custom" in text:
        files.settle(TYPES)
    before = list(certificates.changes)

    ran = files.apply(text, "--yes")

    assert (ran.returncode, said in ran.stderr) == (Exit.USAGE, True)
    assert certificates.changes == before
