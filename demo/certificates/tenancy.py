"""Who may log in as whom: users of AMS, and in the certificate service the bindings of certificates to them."""

import ssl
from collections.abc import Mapping

import httpx

from ams.client import wire
from ams.client.wire import UserDetails
from ams.core.distinguished_names import of_certificate
from demo.certificates.authority import Credentials
from demo.federation import PROJECT, SUBSCRIPTION, TOPIC, administrator, member
from demo.service import Service

SERVICE_TYPE = "ams"
"""The name that the official library uses."""
HOST = "localhost"
"""The name of both services, as the library uses one name for both."""


def make_users(ams: Service, publishers: list[str], consumer: str) -> dict[str, str]:
    """Make project, topic, subscription and users in AMS; return the users' uuids by name."""
    with administrator(ams) as admin:
        admin.call(wire.create_project(PROJECT))
        project = admin.project(PROJECT)
        topic, subscription = project.topic(TOPIC), project.subscription(SUBSCRIPTION)
        topic.create()
        subscription.create(TOPIC)
        uuids = {name: member(admin, name, "publisher").uuid for name in publishers}
        uuids[consumer] = member(admin, consumer, "consumer").uuid
        admin.call(wire.modify_topic_acl(PROJECT, TOPIC, publishers))
        admin.call(wire.modify_subscription_acl(PROJECT, SUBSCRIPTION, [consumer]))
        return uuids


def make_service_user(ams: Service) -> str:
    """Make the user of AMS by which the certificate service reads others' tokens; return its token."""
    with administrator(ams) as admin:
        return admin.call(wire.create_user("certificates", UserDetails(service_roles=["argo_api_authn"]))).token


class Administrator:
    """Administers the certificate service with its management key."""

    def __init__(self, authn: Service, ams: Service) -> None:
        key = (authn.data / "authn.key").read_text().strip()
        trust = ssl.create_default_context(cafile=str(ams.ca))
        url = f"{authn.url}/v1"
        self._http = httpx.Client(base_url=url, headers={"x-api-key": key}, verify=trust, trust_env=False)
        self._service = ""

    def add_service(self, ams: Service, token: str) -> None:
        """Tell of AMS, and how it is asked for the tokens of its users."""
        kind = {"name": SERVICE_TYPE, "type": "ams", "hosts": [HOST], "auth_types": ["x509"], "auth_method": "headers"}
        self._service = self._create("service-types", kind)["uuid"]
        method = {"host": HOST, "port": int(ams.url.rpartition(":")[2]), "headers": {"x-api-key": token}}
        self._create(f"service-types/{SERVICE_TYPE}/authm", method)

    def bind(self, name: str, credentials: Credentials, uuid: str) -> None:
        """Bind a certificate to a user."""
        binding = {
            "service_uuid": self._service,
            "host": HOST,
            "auth_identifier": of_certificate(credentials.certificate.subject),
            "unique_key": uuid,
            "auth_type": "x509",
        }
        self._create(f"bindings/{name}", binding)

    def close(self) -> None:
        """End the connection."""
        self._http.close()

    def _create(self, path: str, body: Mapping[str, object]) -> dict[str, str]:
        answer = self._http.post(path, json=body)
        answer.raise_for_status()
        made: dict[str, str] = answer.json()
        return made
