import itertools
import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from structlog.testing import capture_logs

from ams.client import Client, wire
from ams.provisioning.gocdb import Endpoint
from tests.provisioning.listings import APEL, Gocdb, endpoints_xml, gocdb, site, sites_xml
from tests.support.certificate_service import KEY, CertificateService, certificate_service
from tests.support.commands import Ran, run_ams
from tests.support.served import InProcessService

UUID = "11111111-2222-3333-4444-555555555555"
_AMS = {"auth_types": ["x509"], "auth_method": "headers", "type": "ams"}
_NUMBERS = itertools.count()


@pytest.fixture
def certificates() -> Iterator[CertificateService]:
    with certificate_service() as run:
        run.service_types.append({"name": "ams", "uuid": UUID, "hosts": ["localhost"], **_AMS})
        yield run


@pytest.fixture
def listed_gocdb() -> Iterator[Gocdb]:
    with gocdb() as run:
        run.answers["SITE-A"] = sites_xml(site())
        yield run


@dataclass(frozen=True)
class Project:
    client: Client
    name: str

    def members(self) -> dict[str, wire.User]:
        return {user.name: user for user in self.client.call(wire.list_members(self.name, details=True)).users}

    def topic(self, name: str) -> None:
        self.client.call(wire.create_topic(self.name, name))

    def on_list(self, topic: str) -> list[str]:
        return sorted(self.client.call(wire.get_topic_acl(self.name, topic)).authorized_users)


@pytest.fixture
def project(service: InProcessService) -> Iterator[Project]:
    name = f"project-{next(_NUMBERS)}"
    with Client(f"http://localhost:{urlsplit(service.run.base_url).port}", service.token) as client:
        client.call(wire.create_project(name))
        yield Project(client, name)


Provision = Callable[..., Ran]


@pytest.fixture
def provision(
    project: Project, service: InProcessService, certificates: CertificateService, listed_gocdb: Gocdb, tmp_path: Path
) -> Provision:
    """Run `ams provision` as the administrator, against the three services."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("AMS_")}
    environment = own | {
        "HOME": str(tmp_path), "AMS_ENDPOINT": project.client.endpoint, "AMS_TOKEN": service.token,
        "AMS_PROJECT": project.name, "AMS_AUTHN_ENDPOINT": certificates.url, "AMS_AUTHN_KEY": KEY,
    }  # fmt: skip

    def run_provision(*arguments: str, **variables: str | None) -> Ran:
        given = {name: value for name, value in {**environment, **variables}.items() if value is not None}
        with capture_logs():  # of the AMS, which is in this process
            return run_ams(("provision", *arguments), given, folder=tmp_path)

    return run_provision


@dataclass(frozen=True)
class Site:
    project: Project
    certificates: CertificateService
    gocdb: Gocdb
    provision: Provision

    def set_listing(self, service_type: str, *endpoints: Endpoint) -> None:
        self.gocdb.answers[service_type] = endpoints_xml(*endpoints)

    def run_gocdb(self, *more: str, **said: str | None) -> Ran:
        return self.provision("gocdb", "--feed", self.gocdb.feed_url, "--service-type", APEL, *more, **said)

    @property
    def bindings_by_name(self) -> dict[str, Any]:
        return {each["name"]: each for each in self.certificates.bindings}


@pytest.fixture
def egi(project: Project, certificates: CertificateService, listed_gocdb: Gocdb, provision: Provision) -> Site:
    project.topic(APEL)
    return Site(project, certificates, listed_gocdb, provision)
