"""The configuration files of the reference's scripts (authn contract 14.1): every key of theirs is understood."""

from configparser import ConfigParser
from configparser import Error as IniError
from dataclasses import dataclass, field

from ams.core.errors import BadSettings

_KEYS = {
    ("AMS", "ams_project"): "project",
    ("AMS", "goc_db_host"): "feed",
    ("AMS", "service-types"): "service_types",
    ("AMS", "users_role"): "role",
    ("AMS", "cert"): "cert",
    ("AMS", "cert_key"): "key",
    ("AMS", "ams_token"): "token",
    ("AMS", "ams_host"): "endpoint",
    ("AMS", "ams_email"): "email",
    ("AMS", "ams_consumer"): "consumer",
    ("AUTHN", "authn_token"): "authn_key",
    ("AUTHN", "authn_host"): "authn_endpoint",
    ("AUTHN", "service_uuid"): "service_uuid",
    ("AUTHN", "service_host"): "service_host",
}
_WITHOUT_EFFECT = {("LOGS", "syslog_socket")}
"""What is said on stderr gets into the journal by itself."""
_ADDRESSES = frozenset({"feed", "endpoint", "authn_endpoint"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ini:
    """What a file says; empty where it says nothing."""

    project: str = ""
    feed: str = ""
    service_types: tuple[str, ...] = ()
    role: str = ""
    cert: str = ""
    key: str = ""
    token: str = field(default="", repr=False)
    endpoint: str = ""
    email: str = ""
    consumer: str = ""
    authn_key: str = field(default="", repr=False)
    authn_endpoint: str = ""
    service_uuid: str = ""
    service_host: str = ""
    unknown: tuple[str, ...] = ()
    """Keys that mean nothing here."""


def read_ini(path: str) -> Ini:
    """Read a file; raise `BadSettings` for one that cannot be read."""
    parser = ConfigParser(interpolation=None)
    try:
        with open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except OSError as error:
        raise BadSettings(f"{path}: {error.strerror}") from error
    except (IniError, UnicodeDecodeError):
        # The parser's text would quote the line, which may hold a token.
        raise BadSettings(f"{path} is no configuration of sections and keys") from None
    given = {(section, key): value.strip() for section in parser.sections() for key, value in parser[section].items()}
    said = {_KEYS[place]: _value(_KEYS[place], value) for place, value in given.items() if place in _KEYS}
    unknown = tuple(f"{section}.{key}" for section, key in given if (section, key) not in {*_KEYS, *_WITHOUT_EFFECT})
    types = tuple(each.strip() for each in said.pop("service_types", "").split(",") if each.strip())
    return Ini(service_types=types, unknown=unknown, **said)


def _value(name: str, text: str) -> str:
    """Return a value; a host without a scheme is one behind TLS, as the scripts have it."""
    return f"https://{text}" if name in _ADDRESSES and text and "://" not in text else text
