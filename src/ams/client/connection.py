"""Which service to talk to, and as whom.

Each of endpoint, token, project and CA file is taken from the first place that names it: what the caller says (options
of a command or of a data source), the environment, the profile (the one named, or the one in use), and last, for what
is on this machine, the data folder in the current folder, so that `ams topics list --project demo` works beside a
service started there.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field

from ams.client.endpoint import LOOPBACK, host
from ams.client.errors import BadConnection, InvalidInput, NoService
from ams.client.profiles import Source, profiles_path, read_profile, read_profiles

LOCAL_ENDPOINT = "https://localhost:8080"
LOCAL_FOLDER = "ams-data"


@dataclass(frozen=True, slots=True, kw_only=True)
class Connection:
    """Where to, as whom, in which project."""

    endpoint: str
    token: str = field(repr=False)
    """Empty when there is none; status and version answer without."""
    project: str | None
    ca: str | None


def connection(options: Source, profile: str | None, environment: Mapping[str, str]) -> Connection:
    """Put a connection together; raise `BadConnection` when no place names an endpoint or a place cannot be read."""
    sources = [options, _from_environment(environment)]
    path = profiles_path(environment)
    name = profile or environment.get("AMS_PROFILE") or _profile_in_use(path, sources)
    if name:
        sources.append(read_profile(path, name))
    local = _local_folder()
    endpoint = endpoint_of(_first(sources, "endpoint") or (LOCAL_ENDPOINT if local else None))
    if local and _is_local(endpoint):
        sources.append(local)
    return Connection(
        endpoint=endpoint, token=_token(sources), project=_first(sources, "project"), ca=_first(sources, "ca")
    )


def _profile_in_use(path: str, sources: list[Source]) -> str | None:
    """Return the profile to use when nobody names one: none if a service was named, which must not get its token."""
    return None if _first(sources, "endpoint") else read_profiles(path).current


def _from_environment(environment: Mapping[str, str]) -> Source:
    return Source(
        endpoint=environment.get("AMS_ENDPOINT") or None,
        token=environment.get("AMS_TOKEN") or None,
        token_file=environment.get("AMS_TOKEN_FILE") or None,
        project=environment.get("AMS_PROJECT") or None,
        ca=environment.get("AMS_CA") or None,
    )


def _local_folder() -> Source | None:
    token_file, ca = os.path.join(LOCAL_FOLDER, "admin.token"), os.path.join(LOCAL_FOLDER, "ca.pem")
    if not os.path.exists(token_file) or not os.path.exists(ca):
        return None
    return Source(token_file=token_file, ca=ca)


def endpoint_of(named: str | None) -> str:
    """Return an endpoint with its scheme; raise `BadConnection` for none and for what cannot be one."""
    if named is None:
        raise NoService("no service to talk to: give --endpoint, set AMS_ENDPOINT, or use --profile")
    endpoint = named if "://" in named else f"https://{named}"
    try:
        host(endpoint)
    except InvalidInput as error:
        raise BadConnection(f"{named!r} is no endpoint: {error.message}") from None
    return endpoint


def _is_local(endpoint: str) -> bool:
    """Whether the local admin's token may go there: this machine, behind a certificate of the local CA."""
    return endpoint.startswith("https:") and host(endpoint) in LOOPBACK


def _first(sources: list[Source], field: str) -> str | None:
    values: list[str | None] = [getattr(source, field) for source in sources]
    return next((value for value in values if value), None)


def _token(sources: list[Source]) -> str:
    for source in sources:
        if source.token and source.token_file:
            raise BadConnection("a token and a token file were given in one place; give one of them")
        if source.token:
            return source.token
        if source.token_file:
            return _read_token(source.token_file)
    return ""


def _read_token(path: str) -> str:
    try:
        with open(path, encoding="ascii") as file:
            return file.read(4096).strip()
    except OSError as error:
        raise BadConnection(f"token file {path}: {error.strerror}") from error
    except UnicodeDecodeError:
        raise BadConnection(f"token file {path} does not hold a token") from None
