"""Who may log in as whom: users of AMS, and in the certificate service the bindings of certificates to them."""

from ams.client import Client, wire
from ams.client.wire import UserDetails, authn
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


def certificate_administrator(certificates: Service, ams: Service) -> Client:
    """Return a client with the management key of the certificate service."""
    return Client(certificates.url, (certificates.data / "authn.key").read_text().strip(), ca=str(ams.ca))


def add_service(admin: Client, ams_url: str, token: str) -> str:
    """Tell the certificate service of AMS, and how it is asked for the tokens of its users; return the uuid."""
    made = admin.call(authn.create_service_type(SERVICE_TYPE, [HOST]))
    port = int(ams_url.rpartition(":")[2])
    admin.call(authn.create_auth_method(SERVICE_TYPE, HOST, port, headers={"x-api-key": token}))
    return made.uuid


def bind(admin: Client, service: str, name: str, credentials: Credentials, uuid: str) -> None:
    """Bind a certificate to a user."""
    admin.call(authn.create_binding(name, service, HOST, of_certificate(credentials.certificate.subject), uuid))
