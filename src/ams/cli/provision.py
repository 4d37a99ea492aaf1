"""`ams provision`: users, bindings and access lists of what GOCDB lists (docs/how-to/provision-from-gocdb.md)."""

import dataclasses
from collections.abc import Sequence
from configparser import ConfigParser
from configparser import Error as IniError
from dataclasses import dataclass, field
from typing import Annotated, Any

import typer

from ams.cli.arguments import Texts, option
from ams.cli.command import CommandGroup, OptionSet, SessionOptions
from ams.cli.exit_codes import Exit, Usage, file_named
from ams.cli.output import columns, fields, note, printable, write
from ams.client import Client
from ams.client.connection import TOKEN_VARIABLES, ConnectionSettings, SettingsSource, authn_connection, connection
from ams.client.errors import NoService
from ams.client.transport import beside, host
from ams.core.errors import BadSettings
from ams.core.settings import environment
from ams.provisioning.endpoints import LeftOut, Reason
from ams.provisioning.execution import both
from ams.provisioning.gocdb import Feed, sites_address
from ams.provisioning.plan import find_target
from ams.provisioning.provision import ProvisionReport, RunOptions, as_object, cells, provision

PUBLIC_FEED = "https://goc.egi.eu/gocdbpi/public/?method=get_service_endpoint&service_type={{service-type}}"

app = CommandGroup(
    "ams provision gocdb --service-type gLite-APEL --project accounting --dry-run",
    "ams provision gocdb --feed endpoints.xml --sites sites.xml --service-type gLite-APEL -p accounting",
    "ams provision cloud-info -c ams-create-users-cloud-info.cfg --remove",
)

_WITHOUT_EFFECT = {("LOGS", "syslog_socket")}  # what is said on stderr gets into the journal by itself


def _ini_field(section: str, key: str, *, secret: bool = False) -> Any:
    return field(default="", repr=not secret, metadata={"place": (section, key)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Ini:
    """Settings of an INI file; empty if absent."""

    project: str = _ini_field("AMS", "ams_project")
    feed: str = _ini_field("AMS", "goc_db_host")
    service_types: tuple[str, ...] = field(default=(), metadata={"place": ("AMS", "service-types")})
    role: str = _ini_field("AMS", "users_role")
    cert: str = _ini_field("AMS", "cert")
    key: str = _ini_field("AMS", "cert_key")
    token: str = _ini_field("AMS", "ams_token", secret=True)
    endpoint: str = _ini_field("AMS", "ams_host")
    email: str = _ini_field("AMS", "ams_email")
    consumer: str = _ini_field("AMS", "ams_consumer")
    authn_key: str = _ini_field("AUTHN", "authn_token", secret=True)
    authn_endpoint: str = _ini_field("AUTHN", "authn_host")
    service_uuid: str = _ini_field("AUTHN", "service_uuid")
    service_host: str = _ini_field("AUTHN", "service_host")
    unknown: tuple[str, ...] = ()  # ignored keys


_KEYS = {each.metadata["place"]: each.name for each in dataclasses.fields(Ini) if each.metadata}


@dataclass(frozen=True, slots=True, kw_only=True)
class ProvisionOptions(OptionSet):
    """Options of both commands, besides those of client commands."""

    config: Annotated[str, option("Configuration of the scripts.", "--config", "-c", metavar="FILE")] = ""
    feed: Annotated[str, option("URL or file of endpoints. [default: EGI's]", metavar="ADDRESS")] = ""
    sites: Annotated[str, option("URL or file of sites; default: beside --feed.", metavar="ADDRESS")] = ""
    feed_ca: Annotated[str, option("File or folder of CAs to trust for both.", metavar="PATH")] = ""
    feed_cert: Annotated[str, option("Certificate to show GOCDB.", metavar="FILE")] = ""
    feed_key: Annotated[str, option("Its key.", metavar="FILE")] = ""
    service_type: Annotated[Texts, option("In GOCDB; repeatable.", metavar="TYPE")] = None
    role: Annotated[str, option("Of new members. [default: publisher]")] = ""
    email: Annotated[str, option("Of users whose site has none.")] = ""
    authn_endpoint: Annotated[
        str, option("Certificate service (AMS_AUTHN_ENDPOINT); default: port 8443 of the service's host.")
    ] = ""
    authn_key_file: Annotated[
        str, option("File of its key (AMS_AUTHN_KEY_FILE, AMS_AUTHN_KEY); default: token.", metavar="FILE")
    ] = ""
    authn_ca: Annotated[str, option("Its CA (AMS_AUTHN_CA); default: as --ca.", metavar="FILE")] = ""
    service: Annotated[str, option("Service type of AMS there.", metavar="NAME")] = "ams"
    service_host: Annotated[str, option("Host of it; default: the service's.", metavar="HOST")] = ""
    service_uuid: Annotated[str, option("Its uuid, to be held against what is there.", metavar="UUID")] = ""
    dry_run: Annotated[bool, option("Show the plan, change nothing.", "--dry-run")] = False
    remove: Annotated[bool, option("Take away what vanished endpoints had.", "--remove")] = False
    max_removals: Annotated[int, option("If they are no more than these.", min=0, metavar="N")] = 5
    _verify: Annotated[bool, option("As the scripts have it; always so here.", "-verify", "-v")] = True


@app.does()
def gocdb(given: ProvisionOptions, session: SessionOptions) -> None:
    """Let the endpoints of a type publish to the topic of the type.

    Each gets a user and a binding for its certificate, and is put on the access list of the topic that is called as the
    type, with dashes for dots. Run again, there is nothing to do. Ends with 1 when something went wrong.
    """
    _run_provision(given, session)


@app.does("cloud-info")
def cloud_info(
    *,
    consumer: Annotated[str, option("Member who reads the subscriptions of endpoints.", metavar="USER")] = "",
    given: ProvisionOptions,
    session: SessionOptions,
) -> None:
    """Let each endpoint publish to a topic for itself, SITE_<site>_ENDPOINT_<key>.

    Each gets a user, a binding for its certificate, the topic and a subscription of the same name. Run again, there is
    nothing to do. Ends with 1 when something went wrong.
    """
    _run_provision(given, session, consumer)


def _run_provision(given: ProvisionOptions, session: SessionOptions, consumer: str | None = None) -> None:
    """Provision, with topics of endpoints for a `consumer`, or for the one of the file if it is empty."""
    ini = read_ini(given.config) if given.config else Ini()
    found = connection(_or_of_file(session.source, ini), session.profile, environment())
    if not found.project:
        raise Usage("no project: give --project, set AMS_PROJECT, or name it in a profile")
    endpoints_at = given.feed or ini.feed or PUBLIC_FEED
    sites_at = given.sites or sites_address(endpoints_at)
    cert, key = (given.feed_cert, given.feed_key) if given.feed_cert else (ini.cert, ini.key)
    service_types = list(dict.fromkeys(given.service_type or ini.service_types))
    if not service_types:
        raise Usage("which endpoints? name their types with --service-type")
    at = _authn(given, session.profile, ini, found)
    feed = Feed(endpoints_at, sites_at, ca=given.feed_ca, cert=cert, key=key)
    ams = Client(found.endpoint, found.token, bearer=found.bearer, ca=found.ca, timeout=session.timeout)
    certificates = Client(at.endpoint, at.token, ca=at.ca, timeout=session.timeout)
    reads = None if consumer is None else consumer or ini.consumer
    if reads == "":
        raise Usage("who reads the subscriptions? name a member with --consumer")
    options = RunOptions(
        service_types=service_types, role=given.role or ini.role or "publisher", email=given.email or ini.email,
        dry_run=given.dry_run, remove=given.remove, max_removals=given.max_removals, own_topics=reads is not None,
        consumer=reads or "",
    )  # fmt: skip
    for name in ini.unknown:
        note(f"{printable(name)} in the configuration means nothing here")
    service_host = given.service_host or ini.service_host or host(found.endpoint)
    with feed, ams, certificates:
        ask = both(ams.call, certificates.call)
        target = find_target(ask, found.project, given.service, service_host, given.service_uuid or ini.service_uuid)
        report = provision(feed, ask, target, options, lambda text: note(printable(text)))
    write(session.output, _as_object(report, options), _text(report, options))
    if not report.well:
        raise typer.Exit(Exit.REFUSED)


def _text(report: ProvisionReport, options: RunOptions) -> str:
    rows = [cells(step) for step in report.steps]
    parts = [columns(("STEP", "WHAT", "WITH"), rows)] if rows and options.dry_run else []
    if not rows:
        parts.append("nothing to do")
    served = sum(len(each.served) for each in report.judged.values())
    summary = {"endpoints": str(served + len(report.left_out)), "served": str(served)}
    for reason in Reason:
        if reason.by_rule:
            left_out = [str(each.endpoint) for each in report.left_out if each.reason is reason]
            summary[reason.value] = _count_and_names(left_out)
    summary |= {
        "users to create" if options.dry_run else "users created": _count_and_names(report.users_created),
        "bindings to update" if options.dry_run else "bindings updated": _count_and_names(report.bindings_updated),
        "vanished": _count_and_names(report.vanished.who),
        "vanished topics": _count_and_names(report.vanished.topics),
        "failed": str(len(report.failed) + len(report.faults)),
    }
    parts.append(fields(summary))
    parts += [f"FAILED  {printable(f'{each.endpoint}: {each.text}')}" for each in report.failed]
    parts += [f"FAILED  {printable(text)}" for text in report.faults]
    if report.kept:
        parts.append(f"FAILED  no user was removed: {printable(report.kept)}")
    return "\n".join(parts)


def _count_and_names(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names)}" if names else "0"


def _as_object(report: ProvisionReport, options: RunOptions) -> dict[str, Any]:
    vanished = report.vanished
    return {
        "applied": not options.dry_run,
        "steps": [as_object(step) for step in report.steps],
        "served": sorted({each.name for judged in report.judged.values() for each in judged.served}),
        "left_out": [_left_out(each, reason=True) for each in report.left_out if each.reason.by_rule],
        "users_created": report.users_created,
        "bindings_updated": report.bindings_updated,
        "vanished": {
            "users": vanished.users,
            "bindings": vanished.bindings,
            "topics": vanished.topics,
            "access": [{"topic": topic, "user": user} for topic, user in vanished.entries],
            "kept": report.kept,
        },
        "failed": [*(_left_out(each) for each in report.failed), *({"text": text} for text in report.faults)],
    }


def _left_out(left_out: LeftOut, *, reason: bool = False) -> dict[str, str]:
    endpoint = left_out.endpoint
    place = {"host": endpoint.host, "service_type": endpoint.service_type, "site": endpoint.site}
    return place | ({"reason": left_out.reason.value} if reason else {}) | {"text": left_out.text}


def _or_of_file(asked: SettingsSource, ini: Ini) -> SettingsSource:
    """Return the options, with the file's values for settings that are neither in them nor in the environment."""
    given = environment()
    token = asked.token or asked.token_file or asked.bearer_token_file or any(map(given.get, TOKEN_VARIABLES))
    return dataclasses.replace(
        asked,
        endpoint=asked.endpoint or given.get("AMS_ENDPOINT") or ini.endpoint or None,
        project=asked.project or given.get("AMS_PROJECT") or ini.project or None,
        token=asked.token if token else ini.token or None,
    )


def _authn(asked: ProvisionOptions, profile: str | None, ini: Ini, ams: ConnectionSettings) -> ConnectionSettings:
    """Return the connection to the certificate service; the AMS token is its key only on the host of AMS."""
    given = environment()
    key = asked.authn_key_file or given.get("AMS_AUTHN_KEY") or given.get("AMS_AUTHN_KEY_FILE")
    said = SettingsSource(
        authn_endpoint=asked.authn_endpoint or given.get("AMS_AUTHN_ENDPOINT") or ini.authn_endpoint or None,
        authn_key=None if key else ini.authn_key or None, authn_key_file=asked.authn_key_file, authn_ca=asked.authn_ca,
    )  # fmt: skip
    try:
        found = authn_connection(said, profile, given)
    except NoService:
        found = authn_connection(dataclasses.replace(said, authn_endpoint=beside(ams.endpoint)), profile, given)
    if not found.token and host(found.endpoint) != host(ams.endpoint):
        raise Usage("the token of AMS is not given to another host: name a key of the certificate service")
    return dataclasses.replace(found, token=found.token or ams.token, ca=found.ca or ams.ca)


def read_ini(path: str) -> Ini:
    """Read an INI file. Raises `BadSettings`."""
    parser = ConfigParser(interpolation=None)
    try:
        with file_named(path, BadSettings), open(path, encoding="utf-8") as file:
            parser.read_file(file)
    except (IniError, UnicodeDecodeError):
        # The parser's error would quote the line, which may hold a token.
        raise BadSettings(f"{path} is no configuration of sections and keys") from None
    given = {(section, key): value.strip() for section in parser.sections() for key, value in parser[section].items()}
    said = {_KEYS[place]: value for place, value in given.items() if place in _KEYS}
    for name in ("feed", "endpoint", "authn_endpoint"):
        if said.get(name) and "://" not in said[name]:
            said[name] = f"https://{said[name]}"  # without a scheme it is https, as in the reference's scripts
    unknown = tuple(f"{section}.{key}" for section, key in given if (section, key) not in {*_KEYS, *_WITHOUT_EFFECT})
    types = tuple(each.strip() for each in said.pop("service_types", "").split(",") if each.strip())
    return Ini(service_types=types, unknown=unknown, **said)
