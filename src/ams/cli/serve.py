"""`ams serve`: run the service."""

import sys

import click

from ams.cli.setting_options import option
from ams.core.settings import Settings, environment


def serve_command() -> click.Command:
    """Return the command; its options are the settings."""
    options: list[click.Parameter] = [
        click.Option(["--config"], metavar="FILE", help="TOML file with settings (or AMS_CONFIG).")
    ]
    options += [option(each, Settings.variable(each.name)) for each in Settings.fields()]
    return click.Command(
        "serve",
        callback=_serve,
        params=options,
        help="Run the service. Prints one line beginning 'ready ' with the base URL; SIGTERM stops it.\n\n"
        "Each option is a setting: it may also come from the environment variable named beside it or from a TOML file.",
    )


def _serve(config: str | None, **flags: object) -> None:
    run(Settings.load(flags, environment(), config, lambda line: print(f"ams: {line}", file=sys.stderr)))


def run(settings: Settings) -> None:
    """Run the service with these settings until it is told to stop."""
    # Here, not above: `ams serve --help` needs none of it.
    import uvloop

    from ams.app.serving import serve
    from ams.core.observing import configure_logs

    configure_logs(settings.log_level, settings.log_format, settings.log_facilities)
    uvloop.run(serve(settings))
