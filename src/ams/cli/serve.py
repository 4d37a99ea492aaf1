"""`ams serve`, `ams push` and `ams authn serve`: programs whose options are their settings.

Each program's code is loaded only when it runs, not for its help.
"""

import importlib
import sys
from typing import Any

import click

from ams.cli.extras import require_extras
from ams.core.settings import Settings, SettingsTable, environment, flag

_READY = "Prints one line beginning 'ready ' with the base URL; SIGTERM stops it."
_TOML = "TOML file with settings (or AMS_CONFIG)."
_OR_JSON = "TOML file with settings, or the JSON of the reference (*.json)."


def serve_command() -> click.Command:
    """Return the command that runs the service."""
    return _command(Settings, "ams.app.lifecycle", f"Run the service. {_READY}")


def push_command() -> click.Command:
    """Return the command that runs a push server."""
    from ams.app.push_server.settings import PushSettings

    text = (
        "Deliver messages to push endpoints: a push server for a service elsewhere. Prints one line"
        " 'ready HOST:PORT' when it answers gRPC; SIGTERM stops it, deliveries in flight end first."
    )
    return _command(PushSettings, "ams.app.push_server.program", text, "push", warns=False)


def authn_serve_command() -> click.Command:
    """Return the command that runs the certificate service."""
    from ams.authn.settings import AuthnSettings

    return _command(AuthnSettings, "ams.authn.program", f"Run the certificate service. {_READY}")


def _command(settings: type[SettingsTable], program: str, text: str, *extras: str, warns: bool = True) -> click.Command:
    """Return a command that runs `serve` of a module, with settings as options, and requires these extras."""

    def warn(line: str) -> None:
        if warns:
            print(f"ams: {line}", file=sys.stderr)

    def callback(config: str | None, **flags: object) -> None:
        require_extras("service", *extras)
        loaded = settings.load(flags, environment(), config, warn)
        import uvloop

        from ams.core.telemetry import configure_logs

        serve = importlib.import_module(program).serve
        configure_logs(loaded.log_level, loaded.log_format, loaded.log_facilities)
        uvloop.run(serve(loaded))

    file, config = ("a TOML file", _TOML) if settings is Settings else ("a file", _OR_JSON)
    return click.Command(
        None,
        callback=callback,
        params=[
            click.Option(["--config"], metavar="FILE", help=config),
            *(_option(each, settings.variable(each.name)) for each in settings.fields()),
        ],
        help=f"{text}\n\nEach option is a setting: it may also come from the environment variable named beside it or"
        f" from {file}.",
    )


def _option(setting: Any, variable: str) -> click.Option:
    is_switch = isinstance(setting.default, bool)
    names = [flag(setting.name), setting.name]
    if is_switch:
        names[0] += f"/--no-{setting.name.replace('_', '-')}"
    default = "" if setting.default in ("", (), None) else f", default {setting.default}"
    return click.Option(
        names,
        default=None,
        is_flag=is_switch,
        type=None if is_switch else str,
        metavar=None if is_switch else "VALUE",
        help=f"{setting.metadata['help']} [{variable}{default}]",
    )
