"""`ams serve`: run the service."""

import sys
from typing import Any

import click

from ams.settings import FIELDS, Settings, environment, flag, load, variable


def serve_command() -> click.Command:
    """Return the command; its options are the settings."""
    options: list[click.Parameter] = [
        click.Option(["--config"], metavar="FILE", help="TOML file with settings (or AMS_CONFIG).")
    ]
    options += [_option(each) for each in FIELDS]
    return click.Command(
        "serve",
        callback=_serve,
        params=options,
        help="Run the service. Prints one line beginning 'ready ' with the base URL; SIGTERM stops it.\n\n"
        "Each option is a setting: it may also come from the environment variable named beside it or from a TOML file.",
    )


def _option(setting: Any) -> click.Option:
    is_switch = setting.type is bool
    names = [flag(setting.name), setting.name]
    if is_switch:
        names[0] += f"/--no-{setting.name.replace('_', '-')}"
    default = "" if setting.metadata["secret"] or setting.default == "" else f", default {setting.default}"
    return click.Option(
        names,
        default=None,
        is_flag=is_switch,
        type=None if is_switch else str,
        metavar=None if is_switch else "VALUE",
        help=f"{setting.metadata['help']} [{variable(setting.name)}{default}]",
    )


def _serve(config: str | None, **flags: object) -> None:
    run(load(flags, environment(), lambda line: print(f"ams: {line}", file=sys.stderr), config))


def run(settings: Settings) -> None:
    """Run the service with these settings until it is told to stop."""
    # Here, not above: `ams serve --help` needs none of it.
    import uvloop

    from ams.observing import configure_logs
    from ams.serving import serve

    configure_logs(settings.log_level, settings.log_format, settings.log_facilities)
    uvloop.run(serve(settings))
