"""Management of service types, auth methods, bindings and keys by an administrator (contract 5 to 7).

Error texts are those of contract 4. Secrets of auth methods are write-only: answers show `MASK` instead, and an update
with `MASK` keeps the stored secret (15, A16). Named keys of the management interface can be created, listed without
their secrets, and revoked (15, A15).
"""

import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeVar, cast

from ams.authn import values
from ams.authn.settings import AuthnSettings
from ams.authn.store import Store
from ams.authn.store.records import Page, PageRequest, Types
from ams.core.distinguished_names import normalise_name
from ams.core.errors import NotFound, Unavailable, Unprocessable
from ams.core.names import new_uuid
from ams.core.versions import ANY_VERSION, Precondition
from ams.storage.secrets import new_token
from ams.wire.authn import AuthMethodFields, BindingFields, ServiceTypeFields

T = TypeVar("T")

SERVICE_TYPE, AUTH_METHOD, BINDING, KEY = "service-type", "auth method", "binding", "key"  # in error texts
MASK = "***"  # shown instead of a secret
MAX_NAME_CHARACTERS = 512  # characters; names that provisioning joins from three others are far shorter
_NAME = re.compile(r"[A-Za-z0-9._-]+")
_HOST = re.compile(r"(?=.{1,253}\Z)[A-Za-z0-9_]([A-Za-z0-9_-]{0,62})(\.[A-Za-z0-9_][A-Za-z0-9_-]{0,62})*\.?")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"[\t -~\x80-\xff]*")
_SHA256 = re.compile(r"([0-9a-f]{64})?")
_BINDING_FIELDS = ("name", "service_uuid", "host", "auth_identifier", "unique_key", "auth_type")


def _require_fields(what: str, of: object, *names: str) -> None:
    for name in names:
        if getattr(of, name) in (None, "", 0):
            raise _empty_error(what, name)


def _empty_error(what: str, field: str) -> Unprocessable:
    return Unprocessable(f"{what} object contains empty fields. empty value for field: {field}")


def _invalid_error(what: str, field: str, rule: str) -> Unprocessable:
    return Unprocessable(f"{what} object contains invalid fields. invalid value for field: {field}. {rule}")


def require_supported(place: str, value: str, supported: Iterable[str]) -> None:
    """Raise `Unprocessable` for an unsupported value."""
    listed = tuple(supported)
    if value not in listed:
        raise Unprocessable(f"{place}: {value} is not yet supported.Supported:[{' '.join(listed)}]")


def _require_name(what: str, name: str) -> None:
    # Names are used in paths (15, A7).
    if len(name) > MAX_NAME_CHARACTERS or not _NAME.fullmatch(name) or name in (".", ".."):
        raise _invalid_error(what, "name", f"Allowed: up to {MAX_NAME_CHARACTERS} of [A-Za-z0-9._-]")


def existing(found: T | None, gone: str) -> T:
    """Return a record. Raises `NotFound` with the text `gone` for None."""
    if found is None:
        raise NotFound(gone)
    return found


def _apply_fields(present: T, fields: Any, *, but: Collection[str] = ()) -> T:
    """Return an object updated by the fields of a request, except `but`; None means unchanged."""
    said = {each: getattr(fields, each) for each in fields.__struct_fields__ if each not in but}
    changed: T = replace(cast("Any", present), **{each: value for each, value in said.items() if value is not None})
    return changed


def require_host_of(service_type: values.ServiceType, host: str) -> None:
    """Raise `NotFound` if a service type does not have this host."""
    if host not in service_type.hosts:
        raise NotFound(values.HOST_GONE)


class ServiceTypes:
    """Service types by name; the settings limit their fields (contract 11)."""

    def __init__(self, store: Store, settings: AuthnSettings) -> None:
        self.records, self._clock, self._settings = store.service_types, store.clock, settings

    async def get(self, name: str) -> values.ServiceType:
        """Return a service type. Raises `NotFound`."""
        return existing(await self.records.find(name), values.SERVICE_TYPE_GONE)

    async def create(self, fields: ServiceTypeFields) -> values.ServiceType:
        """Create a service type. Raises `Unprocessable`, then `AlreadyExists`."""
        self._check(fields)
        _require_name(SERVICE_TYPE, fields.name or "")
        hosts = _without_repetition(fields.hosts or ())
        _check_hosts(hosts)
        return await self.records.create(values.ServiceType(
            uuid=values.ServiceTypeId(new_uuid()), name=fields.name or "", hosts=hosts,
            auth_types=_without_repetition(fields.auth_types or ()), auth_method=fields.auth_method or "",
            type=fields.type or "", verify_client_host=bool(fields.verify_client_host),
            created_on=self._clock.wall(),
        ))  # fmt: skip

    async def update(
        self, found: values.ServiceType, fields: ServiceTypeFields, expected: Precondition = ANY_VERSION
    ) -> values.ServiceType:
        """Change fields, but not `type` (contract 5). Raises as `create`, `ChangedMeanwhile`, `Conflict` (15, A6)."""

        def change(present: values.ServiceType, _types: Types) -> values.ServiceType:
            said = _apply_fields(present, fields, but=("type",))
            hosts, auth_types = _without_repetition(said.hosts), _without_repetition(said.auth_types)
            changed = replace(said, hosts=hosts, auth_types=auth_types)
            self._check(changed)
            if changed.name != present.name:
                _require_name(SERVICE_TYPE, changed.name)
            _check_hosts([host for host in changed.hosts if host not in present.hosts])
            return changed

        return await self.records.change(found, self._clock.wall(), change, expected)

    def _check(self, fields: ServiceTypeFields | values.ServiceType) -> None:
        _require_fields(SERVICE_TYPE, fields, "name", "hosts", "auth_types", "auth_method", "type")
        if not fields.hosts:
            raise _empty_error(SERVICE_TYPE, "hosts")
        require_supported("auth_method", fields.auth_method or "", self._settings.supported_auth_methods)
        for each in fields.auth_types or ("empty",):
            require_supported("auth_types", each, self._settings.supported_auth_types)
        require_supported("type", fields.type or "", self._settings.supported_service_types)


def _check_hosts(hosts: Iterable[str]) -> None:
    """Raise `Unprocessable` for a text that is neither a host name nor an IPv4 address (15, A7)."""
    for host in hosts:
        if not _HOST.fullmatch(host):
            raise _invalid_error(SERVICE_TYPE, "hosts", "Allowed: a host name without port")


def _without_repetition(values: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(values))


class AuthMethods:
    """Auth methods by service type and host."""

    def __init__(self, store: Store) -> None:
        self.records, self._clock = store.auth_methods, store.clock

    @staticmethod
    def require_kind(service_type: values.ServiceType) -> None:
        """Raise `Unavailable` for a kind that the settings allow but is not implemented (contract 6)."""
        if service_type.auth_method not in (values.API_KEY, values.HEADERS):
            raise Unavailable("Type is supported but not found")

    async def get(self, service_type: values.ServiceType, host: str) -> values.AuthMethod:
        """Return a host's auth method and secrets. Raises `NotFound` for an unknown host, or one without method."""
        require_host_of(service_type, host)
        return existing(await self.records.find(service_type.uuid, host), values.AUTH_METHOD_GONE)

    async def create(self, service_type: values.ServiceType, fields: AuthMethodFields) -> values.AuthMethod:
        """Create an auth method of the service type's kind. Raises `Unprocessable`, `NotFound`, `AlreadyExists`."""
        _require_fields(AUTH_METHOD, fields, "port", "host")
        require_host_of(service_type, fields.host or "")
        return await self.records.create(_checked_method(values.AuthMethod(
            uuid=new_uuid(), service_uuid=service_type.uuid, host=fields.host or "", port=fields.port or 0,
            type=service_type.auth_method, access_key=fields.access_key or "", headers=dict(fields.headers or {}),
            created_on=self._clock.wall(),
        )))  # fmt: skip

    async def update(
        self, found: values.AuthMethod, fields: AuthMethodFields, expected: Precondition = ANY_VERSION
    ) -> values.AuthMethod:
        """Change fields; headers as a whole (15, A2). Raises as `create`, `ChangedMeanwhile`, `Conflict`."""

        def change(present: values.AuthMethod, types: Types) -> values.AuthMethod:
            changed = replace(
                _apply_fields(present, fields, but=("access_key", "headers")),
                access_key=_keep_masked(fields.access_key, present.access_key),
                headers=present.headers if fields.headers is None else _kept_headers(fields.headers, present.headers),
            )
            _require_fields(AUTH_METHOD, changed, "service_uuid", "port", "host")
            require_host_of(existing(types(changed.service_uuid), values.SERVICE_TYPE_GONE), changed.host)
            return _checked_method(changed)

        return await self.records.change(found, self._clock.wall(), change, expected)


def mask_secrets(method: values.AuthMethod) -> values.AuthMethod:
    """Return an auth method with its secrets masked."""
    return replace(method, access_key=MASK if method.access_key else "", headers=dict.fromkeys(method.headers, MASK))


def _keep_masked(given: str | None, stored: str) -> str:
    return stored if given is None or given == MASK else given


def _kept_headers(given: Mapping[str, str], stored: Mapping[str, str]) -> dict[str, str]:
    known = {name.lower(): value for name, value in stored.items()}
    return {name: _keep_masked(value, known.get(name.lower(), MASK)) for name, value in given.items()}


def _checked_method(method: values.AuthMethod) -> values.AuthMethod:
    """Return a valid auth method, without secrets of the other kind."""
    is_by_key = method.type == values.API_KEY
    method = replace(method, headers={}) if is_by_key else replace(method, access_key="")
    if not (method.access_key or method.headers):
        raise _empty_error(AUTH_METHOD, "access_key" if is_by_key else "headers")
    if method.access_key == MASK:
        raise _invalid_error(AUTH_METHOD, "access_key", f"{MASK} stands for a secret that is stored, and none is")
    for name, value in method.headers.items():
        if not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value):
            raise _invalid_error(AUTH_METHOD, "headers", "Allowed: names and values as HTTP has them")
        if value == MASK:
            raise _invalid_error(AUTH_METHOD, "headers", f"{MASK} stands for a secret that is stored, and none is")
    if not 1 <= method.port <= 65535:
        raise _invalid_error(AUTH_METHOD, "port", "Allowed: 1 to 65535")
    return method


class SubjectBindings:
    """Bindings by name."""

    def __init__(self, store: Store) -> None:
        self.records, self._types, self._clock = store.bindings, store.service_types, store.clock

    async def get(self, name: str) -> values.SubjectBinding:
        """Return a binding. Raises `NotFound`."""
        return existing(await self.records.find(name), values.BINDING_GONE)

    async def of_host(
        self, service_type: values.ServiceType, host: str, identifier: str, page: PageRequest
    ) -> Page[values.SubjectBinding]:
        """Return the bindings of one host, oldest first; with an `identifier` that of a certificate's subject.

        Raises `NotFound` for an unknown host or an unbound subject.
        """
        require_host_of(service_type, host)
        if not identifier:
            return await self.records.of_host(service_type.uuid, host, page)
        found = await self.records.for_login(identifier, service_type.uuid, host, values.X509)
        return Page([await self.get(found.name if found else "")])

    async def create(self, name: str, fields: BindingFields) -> values.SubjectBinding:
        """Create a binding. Raises `Unprocessable`, `NotFound`, `AlreadyExists`, in the order of contract 7."""
        said: dict[str, Any] = {each: getattr(fields, each) or "" for each in BindingFields.__struct_fields__}
        said["name"] = name
        made = values.SubjectBinding(**said, uuid=values.BindingId(new_uuid()), created_on=self._clock.wall())
        _require_fields(BINDING, made, *_BINDING_FIELDS)
        made = _checked_binding(made, await self._types.find_by_uuid(made.service_uuid))
        _require_name(BINDING, name)
        return await self.records.create(made)

    async def update(
        self, found: values.SubjectBinding, fields: BindingFields, expected: Precondition = ANY_VERSION
    ) -> values.SubjectBinding:
        """Change the given fields, `unique_key` too (15, A1). Raises as `create`, and `ChangedMeanwhile`."""

        def change(present: values.SubjectBinding, types: Types) -> values.SubjectBinding:
            changed = _apply_fields(present, fields)
            if fields.subject_sha256 is None and changed.auth_identifier != present.auth_identifier:
                changed = replace(changed, subject_sha256="")  # the old subject's
            _require_fields(BINDING, changed, *_BINDING_FIELDS)
            changed = _checked_binding(changed, types(changed.service_uuid))
            if changed.name != present.name:
                _require_name(BINDING, changed.name)
            return changed

        return await self.records.change(found, self._clock.wall(), change, expected)


def without_logins(binding: values.SubjectBinding) -> values.SubjectBinding:
    """Return the part of a binding that has a version: logins do not change it."""
    return replace(binding, last_auth=None)


def _checked_binding(binding: values.SubjectBinding, service_type: values.ServiceType | None) -> values.SubjectBinding:
    service_type = existing(service_type, values.SERVICE_TYPE_GONE)
    require_host_of(service_type, binding.host)
    require_supported("Auth type", binding.auth_type, service_type.auth_types)
    if not _SHA256.fullmatch(binding.subject_sha256):
        raise _invalid_error(BINDING, "subject_sha256", "Allowed: 64 hex digits in small letters, or nothing")
    try:
        return replace(binding, issuer=normalise_name(binding.issuer)) if binding.issuer else binding
    except ValueError:
        raise _invalid_error(BINDING, "issuer", "Allowed: a distinguished name, or nothing") from None


async def create_key(store: Store, name: str, scope: str | None) -> tuple[values.ManagementKey, str]:
    """Create a key. Returns it and its secret, shown only here. Raises `Unprocessable`, `AlreadyExists`."""
    made, secret = values.ManagementKey(name=name, scope=scope or "", created_on=store.clock.wall()), new_token()
    _require_fields(KEY, made, "name", "scope")
    require_supported("scope", made.scope, (values.READ, values.WRITE))
    _require_name(KEY, name)
    await store.keys.create(made, secret)
    return made, secret
