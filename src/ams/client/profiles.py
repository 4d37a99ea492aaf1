"""The file of profiles: services to talk to, by name, and the one in use.

A TOML table for each profile with any of endpoint, token, token_file, bearer_token_file, project and ca, and the same
of the certificate service: authn_endpoint, authn_key, authn_key_file, authn_ca. Above them perhaps `current`, the name
of the profile in use. The file, and files of tokens beside it, are for their owner alone.
"""

import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ams.client.errors import BadConnection

AUTHN_KEYS = ("authn_endpoint", "authn_key", "authn_key_file", "authn_ca")
"""What a profile says of the certificate service."""
KEYS = ("endpoint", "token", "token_file", "bearer_token_file", "project", "ca", *AUTHN_KEYS)
_FILES = ("token_file", "bearer_token_file", "ca", "authn_key_file", "authn_ca")
CURRENT = "current"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What one place says of a connection; None where it says nothing."""

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


@dataclass(frozen=True, slots=True)
class Profiles:
    """The content of the file."""

    tables: Mapping[str, Mapping[str, str]]
    current: str | None = None


def profiles_path(environment: Mapping[str, str]) -> str:
    """Return the place of the profiles file: `$XDG_CONFIG_HOME/ams/profiles.toml`, by default in `~/.config`."""
    config = environment.get("XDG_CONFIG_HOME") or os.path.join(os.path.expanduser("~"), ".config")
    return os.path.join(config, "ams", "profiles.toml")


def read_profile(path: str, name: str) -> Source:
    """Read one profile; raise `BadConnection` if it is not there or bad."""
    table = _checked(path, name, _toml(path).get(name))
    folder = os.path.dirname(path)
    files = {key: os.path.join(folder, os.path.expanduser(table[key])) for key in _FILES if key in table}
    return Source(**(table | files))


def read_profiles(path: str) -> Profiles:
    """Read the whole file, an absent one as empty; raise `BadConnection` for what is bad."""
    if not os.path.exists(path):
        return Profiles({})
    content = _toml(path)
    current = content.get(CURRENT)
    if not isinstance(current, str):
        return Profiles({name: _checked(path, name, table) for name, table in content.items()})
    del content[CURRENT]
    return Profiles({name: _checked(path, name, table) for name, table in content.items()}, current)


def _checked(path: str, name: str, table: object) -> dict[str, str]:
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
        # The parser's text could quote a token.
        raise BadConnection(f"profiles file {path} is not TOML") from None
