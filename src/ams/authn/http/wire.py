"""The objects of the certificate service as JSON (contract 5 to 8): what leaves, indented by one blank."""

from collections.abc import Callable
from typing import TypeVar

import msgspec

from ams.authn.management import masked
from ams.authn.store.paging import Page
from ams.authn.values import AuthMethod, Binding, Key, ServiceType
from ams.core.clock import Milliseconds, resource_date

T = TypeVar("T")


class ServiceTypeBody(msgspec.Struct, omit_defaults=True):
    """A service type (contract 5); `verify_client_host` is ours."""

    name: str
    hosts: list[str]
    auth_types: list[str]
    auth_method: str
    uuid: str
    created_on: str
    updated_on: str = ""
    type: str | msgspec.UnsetType = msgspec.UNSET
    verify_client_host: bool = False


class AuthMethodBody(msgspec.Struct, omit_defaults=True):
    """An auth method (contract 6), its secrets masked (15, A16)."""

    service_uuid: str
    port: int
    host: str
    type: str
    uuid: str
    created_on: str
    updated_on: str = ""
    access_key: str = ""
    headers: dict[str, str] | msgspec.UnsetType = msgspec.UNSET


class BindingBody(msgspec.Struct, omit_defaults=True):
    """A binding (contract 7); `issuer` and `subject_sha256` are ours."""

    name: str
    service_uuid: str
    host: str
    auth_identifier: str
    uuid: str
    auth_type: str
    unique_key: str
    created_on: str
    updated_on: str = ""
    last_auth: str = ""
    issuer: str = ""
    subject_sha256: str = ""


class KeyBody(msgspec.Struct, omit_defaults=True):
    """A named key; the secret only in the answer that made it (15, A15)."""

    name: str
    scope: str
    created_on: str
    key: str = ""


def service_type_body(value: ServiceType) -> ServiceTypeBody:
    """Return a service type as it is shown."""
    return ServiceTypeBody(
        name=value.name,
        hosts=list(value.hosts),
        auth_types=list(value.auth_types),
        auth_method=value.auth_method,
        uuid=value.uuid,
        created_on=resource_date(value.created_on),
        updated_on=_date(value.updated_on),
        type=value.type,
        verify_client_host=value.verify_client_host,
    )


def auth_method_body(value: AuthMethod) -> AuthMethodBody:
    """Return an auth method as it is shown: without its secrets."""
    shown = masked(value)
    return AuthMethodBody(
        service_uuid=shown.service_uuid,
        port=shown.port,
        host=shown.host,
        type=shown.type,
        uuid=shown.uuid,
        created_on=resource_date(shown.created_on),
        updated_on=_date(shown.updated_on),
        access_key=shown.access_key,
        headers=dict(shown.headers) or msgspec.UNSET,
    )


def binding_body(value: Binding) -> BindingBody:
    """Return a binding as it is shown."""
    return BindingBody(
        name=value.name,
        service_uuid=value.service_uuid,
        host=value.host,
        auth_identifier=value.auth_identifier,
        uuid=value.uuid,
        auth_type=value.auth_type,
        unique_key=value.unique_key,
        created_on=resource_date(value.created_on),
        updated_on=_date(value.updated_on),
        last_auth=_date(value.last_auth),
        issuer=value.issuer,
        subject_sha256=value.subject_sha256,
    )


def key_body(value: Key, secret: str = "") -> KeyBody:
    """Return a key as it is shown."""
    return KeyBody(value.name, value.scope, resource_date(value.created_on), secret)


def listed(name: str, page: Page[T], body: Callable[[T], object]) -> dict[str, object]:
    """Return a list as it is shown; a token is there only when there is another page."""
    shown: dict[str, object] = {name: [body(each) for each in page.items]}
    return shown | {"nextPageToken": page.next_token} if page.next_token else shown


def encoded(body: object) -> bytes:
    """Write an answer."""
    return msgspec.json.format(msgspec.json.encode(body), indent=1)


def _date(moment: Milliseconds | None) -> str:
    return "" if moment is None else resource_date(moment)
