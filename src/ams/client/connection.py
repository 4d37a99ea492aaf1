"""Settings of a connection: endpoint, credentials, project and CA file.

Each setting comes from the first place that has it: the caller's options, the environment, the profile (the named one,
or the one in use), and last the data folder in the current folder. So `ams topics list --project demo` works beside a
service started there. The settings of the certificate service work alike, under their own names.

The profiles file has a TOML table for each profile. Its keys are endpoint, token, token_file, bearer_token_file,
project and ca; for the certificate service authn_endpoint, authn_key, authn_key_file and authn_ca. The top-level key
`current` names the profile in use. The file, and token files beside it, are readable by their owner only.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from ams.client import Client
from ams.client.bearer import Bearer, BearerFile
from ams.client.errors import BadConnection, InvalidInput, NoService
from ams.client.transport import LOOPBACK, host

TOKEN_VARIABLES = ("AMS_TOKEN", "AMS_TOKEN_FILE", "AMS_BEARER_TOKEN", "AMS_BEARER_TOKEN_FILE")
"""Variables that hold or name a token."""
LOCAL_FOLDER = "ams-data"
_OF_AUTHN = ("authn_endpoint", "authn_key", "authn_key_file", "authn_ca")
KEYS = ("endpoint", "token", "token_file", "bearer_token_file", "project", "ca", *_OF_AUTHN)  # keys of a profile
_FILES = ("token_file", "bearer_token_file", "ca", "authn_key_file", "authn_ca")
CURRENT = "current"
OPTION, VARIABLE = "an option", "a variable"  # places of settings

Environment = Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingsSource:
    """Settings from one place; None for an absent one."""

    endpoint: str | None = None
    token: str | None = None
    token_file: str | None = None
    bearer_token: str | None = None
    bearer_token_file: str | None = None
    project: str | None = None
    ca: str | None = None
    authn_endpoint: str | None = None
    authn_key: str | None = None
    authn_key_file: str | None = None
    authn_ca: str | None = None
    place: str = ""  # `OPTION`, `VARIABLE` or `profile NAME`; empty for a local data folder


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of the file."""

    tables: Mapping[str, Mapping[str, str]]
    current: str | None = None


@dataclass(frozen=True, slots=True)
class ConnectionSettings:
    """The settings of a connection."""

    endpoint: str
    token: str = field(repr=False)  # may be empty: status and version need no token
    project: str | None
    ca: str | None
    bearer: Bearer | None = field(default=None, repr=False)  # replaces the token
    login_from: str = ""  # source of the token: an option, a variable, a file or a profile; empty without a token

    def client(self, timeout: float = 30.0) -> Client:
        """Return a client without retries; raises what `Client` raises."""
        return Client(self.endpoint, self.token, bearer=self.bearer, ca=self.ca, timeout=timeout, retry=None)


def connection(options: SettingsSource, profile: str | None, environment: Environment) -> ConnectionSettings:
    """Resolve a connection. Raises `BadConnection` if there is no endpoint or a place cannot be read."""
    sources = _sources(options, profile, environment, "endpoint")
    token_file, ca = os.path.join(LOCAL_FOLDER, "admin.token"), os.path.join(LOCAL_FOLDER, "ca.pem")
    local = SettingsSource(token_file=token_file, ca=ca) if os.path.exists(token_file) and os.path.exists(ca) else None
    endpoint = endpoint_of(_first(sources, "endpoint") or ("https://localhost:8080" if local else None))
    if local and _is_local(endpoint):
        sources.append(local)
    token, bearer, place = _login(sources)
    return ConnectionSettings(endpoint, token, _first(sources, "project"), _first(sources, "ca"), bearer, place)


def authn_connection(options: SettingsSource, profile: str | None, environment: Environment) -> ConnectionSettings:
    """Resolve a connection to the certificate service; its token is a management key.

    Without a CA file of its own, that of AMS is used. Raises `BadConnection` if there is no endpoint or a place cannot
    be read.
    """
    sources = _sources(options, profile, environment, "authn_endpoint")
    local = _local_authn()
    named = _first(sources, "authn_endpoint") or ("https://localhost:8443" if local else None)
    if named is None:
        raise NoService("no certificate service to talk to: set AMS_AUTHN_ENDPOINT, or name it in a profile")
    endpoint = endpoint_of(named)
    if local and _is_local(endpoint):
        sources.append(local)
    ca = _first(sources, "authn_ca") or _first(sources, "ca")
    return ConnectionSettings(endpoint, _secret(sources, "authn_key"), None, ca)


def _sources(options: SettingsSource, profile: str | None, environment: Environment, key: str) -> list[SettingsSource]:
    """Return the options, the variables, and the named profile or, without an endpoint (`key`), the one in use.

    An explicit endpoint must not get a profile's token. Each field has a variable: `AMS_ENDPOINT`, `AMS_TOKEN`, ...
    """
    said = {name: environment.get(f"AMS_{name.upper()}") or None for name in (*KEYS, "bearer_token")}
    sources = [options, SettingsSource(place=VARIABLE, **said)]
    path, name = profiles_path(environment), profile or environment.get("AMS_PROFILE")
    if not name and not _first(sources, key):
        name = read_profiles(path).current
    return [*sources, read_profile(path, name)] if name else sources


def _local_authn() -> SettingsSource | None:
    for folder in ("ams-authn", LOCAL_FOLDER):  # its own folder, or AMS's
        key, ca = os.path.join(folder, "authn.key"), os.path.join(folder, "authn-tls", "ca.pem")
        if os.path.exists(key):
            return SettingsSource(authn_key_file=key, authn_ca=ca if os.path.exists(ca) else None)
    return None


def endpoint_of(named: str | None) -> str:
    """Return an endpoint with its scheme. Raises `BadConnection` if it is missing or invalid."""
    if named is None:
        raise NoService("no service to talk to: give --endpoint, set AMS_ENDPOINT, or use --profile")
    endpoint = named if "://" in named else f"https://{named}"
    try:
        host(endpoint)
    except InvalidInput as error:
        raise BadConnection(f"{named!r} is no endpoint: {error.message}") from None
    return endpoint


def _is_local(endpoint: str) -> bool:
    """Return whether the local admin's token may be sent there: this machine, with a certificate of the local CA."""
    return endpoint.startswith("https:") and host(endpoint) in LOOPBACK


def _first(sources: list[SettingsSource], field: str) -> str | None:
    return next(filter(None, (getattr(source, field) for source in sources)), None)


def _login(sources: list[SettingsSource]) -> tuple[str, Bearer | None, str]:
    """Return token, bearer token and their place, from the first source that has one of them."""
    for source in sources:
        bearer, token = source.bearer_token or source.bearer_token_file, source.token or source.token_file
        if bearer and token:
            raise BadConnection("a token and a bearer token were given in one place; give one of them")
        if source.bearer_token and source.bearer_token_file:
            raise BadConnection("a bearer token and a bearer token file were given in one place; give one of them")
        if path := source.bearer_token_file or source.token_file:
            place = f"file {path}" + (f" of {source.place}" if source.place else "")
        else:
            kind = "bearer_token" if bearer else "token"
            place = {OPTION: f"--{kind}", VARIABLE: f"AMS_{kind.upper()}"}.get(source.place, source.place)
        if source.bearer_token_file:
            file = BearerFile(os.path.abspath(source.bearer_token_file))
            file()  # raises before any request
            return "", file, place
        if bearer or token:
            return _secret([source], "token"), source.bearer_token, place
    return "", None, ""


def _secret(sources: list[SettingsSource], field: str) -> str:
    what = "token" if field == "token" else "key"
    for source in sources:
        said, path = getattr(source, field), getattr(source, f"{field}_file")
        if said and path:
            raise BadConnection(f"a {what} and a {what} file were given in one place; give one of them")
        if said:
            return str(said)
        if path:
            return read_secret(path, what)
    return ""


def read_secret(path: str, what: str) -> str:
    """Read a secret from a file. Raises `BadConnection` if there is none."""
    try:
        with open(path, encoding="ascii") as file:
            return file.read(4096).strip()
    except OSError as error:
        raise BadConnection(f"{what} file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadConnection(f"{what} file {path} does not hold a {what}") from None


def profiles_path(environment: Environment) -> str:
    """Return the path of the profiles file: `$XDG_CONFIG_HOME/ams/profiles.toml`, by default in `~/.config`."""
    config = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(config, "ams", "profiles.toml")


def read_profile(path: str, name: str) -> SettingsSource:
    """Read one profile. Raises `BadConnection` if it is missing or invalid."""
    table = _check_profile(path, name, _toml(path).get(name))
    folder = os.path.dirname(path)
    files = {key: os.path.join(folder, os.path.expanduser(table[key])) for key in _FILES if key in table}
    return SettingsSource(**(table | files), place=f"profile {name}")


def read_profiles(path: str) -> Profiles:
    """Read all profiles; an absent file is empty. Raises `BadConnection` if the file is invalid."""
    if not os.path.exists(path):
        return Profiles({})
    content = _toml(path)
    current = content.pop(CURRENT) if isinstance(content.get(CURRENT), str) else None
    return Profiles({name: _check_profile(path, name, table) for name, table in content.items()}, current)


def _check_profile(path: str, name: str, table: object) -> dict[str, str]:
    if not isinstance(table, dict):
        raise BadConnection(f"no profile {name!r} in {path}")
    for key, value in table.items():
        if key not in KEYS or not isinstance(value, str):
            raise BadConnection(f"profile {name!r} in {path}: {key} must be one of {', '.join(sorted(KEYS))}, as text")
    return table


def _toml(path: str) -> dict[str, Any]:
    try:
        with open(path, "rb") as file:
            return tomllib.load(file)
    except OSError as error:
        raise BadConnection(f"profiles file {path}: {error.strerror}") from error
    except ValueError:
        # The parser's error could quote a token.
        raise BadConnection(f"profiles file {path} is not TOML") from None
