"""`ams authn serve`: run the certificate service."""

import sys

import click

from ams.authn.settings import AuthnSettings
from ams.cli.setting_options import option
from ams.core.settings import environment


def serve_command() -> click.Command:
    """Return the command; its options are the settings."""
    options: list[click.Parameter] = [
        click.Option(
            ["--config"], metavar="FILE", help="TOML file with settings, or the JSON of the reference (*.json)."
        )
    ]
    options += [option(each, AuthnSettings.variable(each.name)) for each in AuthnSettings.fields()]
    return click.Command(
        "serve",
        callback=_serve,
        params=options,
        help="Run the certificate service. Prints one line beginning 'ready ' with the base URL; SIGTERM stops it.\n\n"
        "Each option is a setting: it may also come from the environment variable named beside it or from a file.",
    )


def _serve(config: str | None, **flags: object) -> None:
    run(AuthnSettings.load(flags, environment(), config, lambda line: print(f"ams: {line}", file=sys.stderr)))


def run(settings: AuthnSettings) -> None:
    """Run the certificate service with these settings until it is told to stop."""
    # Here, not above: `ams authn serve --help` needs none of it.
    import uvloop

    from ams.authn.program import serve
    from ams.core.observing import configure_logs

    configure_logs(settings.log_level, settings.log_format, settings.log_facilities)
    uvloop.run(serve(settings))
