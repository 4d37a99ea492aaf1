"""The wire of a push server: its methods and messages, and the connection with whom it trusts (push contract 2, 5)."""

import asyncio
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

import grpc
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID
from google.protobuf.message import Message
from grpc_health.v1 import health_pb2

from ams.core.errors import BadSettings
from ams.core.push_config import MATTERMOST, MAX_PERIOD_MS
from ams.core.settings import Settings
from ams.push.rpc import push_service_pb2 as pb
from ams.push.upstream import Target

SERVICE = "PushService"
HEALTH = "grpc.health.v1.Health"

Q = TypeVar("Q", bound=Message)
A = TypeVar("A", bound=Message)

_OPTIONS = (
    ("grpc.enable_http_proxy", 0),
    ("grpc.use_local_subchannel_pool", 1),
    ("grpc.initial_reconnect_backoff_ms", 250),
    ("grpc.max_reconnect_backoff_ms", 5000),
)  # a push server that is back is found soon, and no variable of the environment leads elsewhere


class Method(NamedTuple, Generic[Q, A]):
    """A method: its name, the messages it takes and gives, and its service, which has no package."""

    name: str
    request: type[Q]
    answer: type[A]
    service: str = SERVICE

    @property
    def path(self) -> str:
        """The name of a call."""
        return f"/{self.service}/{self.name}"


ACTIVATE = Method("ActivateSubscription", pb.ActivateSubscriptionRequest, pb.ActivateSubscriptionResponse)
DEACTIVATE = Method("DeactivateSubscription", pb.DeactivateSubscriptionRequest, pb.DeactivateSubscriptionResponse)
SUBSCRIPTION_STATUS = Method("SubscriptionStatus", pb.SubscriptionStatusRequest, pb.SubscriptionStatusResponse)
STATUS = Method("Status", pb.StatusRequest, pb.StatusResponse)
CHECK = Method("Check", health_pb2.HealthCheckRequest, health_pb2.HealthCheckResponse, HEALTH)
WATCH = CHECK._replace(name="Watch")


def subscription(target: Target) -> pb.Subscription:
    """Return a target as it is sent to a push server; the wire has no secrets, dead letters or deadlines."""
    config = target.config
    sent = pb.PushConfig(
        type=pb.MATTERMOST if config.type == MATTERMOST else pb.HTTP_ENDPOINT,
        push_endpoint=config.endpoint,
        max_messages=config.max_messages,
        authorization_header=config.header_value,
        retry_policy=pb.RetryPolicy(type=config.retry_policy, period=min(config.retry_period, MAX_PERIOD_MS)),
        mattermost_url=config.mattermost_url,
        mattermost_username=config.mattermost_username,
        mattermost_channel=config.mattermost_channel,
        base_64_decode=config.base64_decode,
    )
    return pb.Subscription(full_name=target.path, full_topic=target.topic, push_config=sent)


@dataclass(frozen=True, slots=True)
class ChannelTrust:
    """Certificates for TLS to a push server, as files held them; None: the library's own, or none to show."""

    roots: bytes | None
    chain: bytes | None
    key: bytes | None


def trust(settings: Settings) -> ChannelTrust | None:
    """Read the certificates for a push server, None without TLS; raise `BadSettings` for files that cannot be used."""
    if not settings.push_tls_enabled:
        return None
    folder = settings.certificate_authorities_dir if settings.verify_push_server else ""
    roots = authorities(folder) if folder else None
    if not settings.cert:
        return ChannelTrust(roots, None, None)
    return ChannelTrust(roots, read_file("cert", settings.cert), read_file("key", settings.key))


def authorities(folder: str) -> bytes:
    """Return the certificates of all `*.pem` files of a folder; raise `BadSettings` for none or a bad one."""
    setting = "certificate_authorities_dir"
    pems = {str(file): read_file(setting, str(file)) for file in sorted(Path(folder).glob("*.pem"))}
    if not pems:
        raise BadSettings(f"{setting} {folder}: there is no *.pem file")
    for file, pem in pems.items():
        try:
            x509.load_pem_x509_certificates(pem)
        except ValueError:
            raise BadSettings(f"{setting}: {file} holds no certificate in PEM form") from None
    return b"\n".join(pems.values())


async def connect(settings: Settings, trusted: ChannelTrust | None) -> grpc.aio.Channel:
    """Return a lazy channel; one that does not verify trusts exactly the certificate it sees now. Raises `OSError`."""
    host = settings.push_server_host
    address = f"{f'[{host}]' if ':' in host else host}:{settings.push_server_port}"
    if trusted is None:
        return grpc.aio.insecure_channel(address, _OPTIONS)
    if settings.verify_push_server:
        shown = grpc.ssl_channel_credentials(trusted.roots, trusted.key, trusted.chain)
        return grpc.aio.secure_channel(address, shown, _OPTIONS)
    certificate = await _certificate_of(settings)
    shown = grpc.ssl_channel_credentials(certificate.public_bytes(Encoding.PEM), trusted.key, trusted.chain)
    named = ("grpc.ssl_target_name_override", _name_in(certificate) or host)
    return grpc.aio.secure_channel(address, shown, (*_OPTIONS, named))


async def _certificate_of(settings: Settings) -> x509.Certificate:
    """Return what a server shows, by any signer; our own certificate is not asked for until that is known."""
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # what is set: push servers are not to be verified
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["h2"])
    _, writer = await asyncio.open_connection(settings.push_server_host, settings.push_server_port, ssl=context)
    try:
        return x509.load_der_x509_certificate(writer.get_extra_info("ssl_object").getpeercert(binary_form=True))
    except ValueError as error:
        raise OSError("The push server shows a certificate that cannot be read") from error
    finally:
        writer.close()


def _name_in(certificate: x509.Certificate) -> str:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        if hosts := names.get_values_for_type(x509.DNSName):
            return hosts[0].replace("*", "any")
        if addresses := names.get_values_for_type(x509.IPAddress):
            return str(addresses[0])
    except (x509.ExtensionNotFound, ValueError):
        pass
    common = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(common[-1].value).replace("*", "any") if common else ""


def read_file(setting: str, path: str) -> bytes:
    """Return what the file of a setting holds; raise `BadSettings` when it cannot be read."""
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadSettings(f"{setting} {path}: {error.strerror}") from error
