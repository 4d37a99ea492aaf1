"""The gRPC server: its port, its certificate, and whom it lets in (push contract 5)."""

import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import structlog

from ams.app.push_server.access import AccessList
from ams.app.push_server.condition import Condition
from ams.app.push_server.gate import Gate
from ams.app.push_server.health import Health
from ams.app.push_server.service import Following, PushService
from ams.app.push_server.settings import PushSettings
from ams.core.errors import BadSettings, Unusable
from ams.push.rpc.channel import authorities

logger = structlog.get_logger("ams.push_server")

STOP_SECONDS = 1.0
"""For calls under way, at a stop."""

_OPTIONS = (("grpc.so_reuseport", 0),)
"""A port that another process has is an error, not shared."""


@contextlib.asynccontextmanager
async def listening(settings: PushSettings, following: Following, condition: Condition) -> AsyncIterator[str]:
    """Answer calls until the block ends; gives host and port. Raises `BadSettings` and `Unusable` with one line."""
    access = AccessList(settings.acl) if settings.tls_enabled else None
    server = grpc.aio.server(interceptors=[Gate(access, condition)], options=_OPTIONS)
    server.add_generic_rpc_handlers((PushService(following, condition).handlers(), Health(condition).handlers()))
    host = f"[{settings.host}]" if ":" in settings.host else settings.host
    credentials = _credentials(settings)
    try:
        place = f"{host}:{settings.port}"
        port = server.add_secure_port(place, credentials) if credentials else server.add_insecure_port(place)
    except RuntimeError as error:
        raise Unusable(f"Could not listen: {host} port {settings.port} is in use, or no address of ours") from error
    await server.start()
    try:
        yield f"{host}:{port}"
    finally:
        await server.stop(STOP_SECONDS)


def _credentials(settings: PushSettings) -> grpc.ServerCredentials | None:
    """Return what TLS goes by: 1.2 at least, as the library has it, and a certificate of every client.

    The files are read again for each connection, so that renewed ones need no restart.
    """
    if not settings.tls_enabled:
        return None
    files = _Files(settings)
    fetch: Any = files.changed  # it may return None; its types do not say so
    return grpc.dynamic_ssl_server_credentials(files.known, fetch, require_client_authentication=True)


class _Files:
    """The certificates as their files hold them."""

    def __init__(self, settings: PushSettings) -> None:
        self._settings = settings
        self._content = self._read()

    @property
    def known(self) -> grpc.ServerCertificateConfiguration:
        """What was read last."""
        chain, key, roots = self._content
        return grpc.ssl_server_certificate_configuration([(key, chain)], root_certificates=roots)

    def changed(self) -> grpc.ServerCertificateConfiguration | None:
        """Return what is new; None to go on with what there is, also where a file cannot be used."""
        try:
            content = self._read()
        except BadSettings as error:
            logger.error("certificate.unusable", reason=str(error))
            return None
        if content == self._content:
            return None
        self._content = content
        logger.info("certificate.loaded", chain=self._settings.cert)
        return self.known

    def _read(self) -> tuple[bytes, bytes, bytes]:
        settings = self._settings
        chain, key = _read("cert", settings.cert), _read("key", settings.key)
        return chain, key, authorities(settings.certificate_authorities_dir)


def _read(setting: str, path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise BadSettings(f"{setting} {path}: {error.strerror}") from error
