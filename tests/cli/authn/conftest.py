from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Ams
from tests.support.certificate_service import KEY, CertificateService, certificate_service
from tests.support.commands import Ran


@pytest.fixture
def certificates() -> Iterator[CertificateService]:
    with certificate_service() as service:
        service.service_types.append(
            {
                "name": "ams", "hosts": ["ams.example"], "auth_types": ["x509"], "auth_method": "headers",
                "type": "ams", "uuid": "u-ams", "created_on": "2026-01-02T03:04:05Z",
            }
        )  # fmt: skip
        yield service


@pytest.fixture
def environment(certificates: CertificateService, tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path), "AMS_AUTHN_ENDPOINT": certificates.url, "AMS_AUTHN_KEY": KEY}


class Authn:
    def __init__(self, ams: Ams) -> None:
        self.ams = ams

    def __call__(self, *arguments: str) -> str:
        ran = self.run_command(*arguments)
        assert ran.returncode == 0, ran.stderr
        return ran.stdout

    def run_command(self, *arguments: str, **variables: str) -> Ran:
        return self.ams("authn", *arguments, **variables)


@pytest.fixture
def authn(ams: Ams) -> Authn:
    return Authn(ams)
