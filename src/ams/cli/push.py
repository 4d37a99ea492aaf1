"""`ams push`: deliver messages to push endpoints, as a program of its own."""

import click

from ams.app.push_server.settings import PushSettings
from ams.cli.setting_options import option
from ams.core.settings import environment


def push_command() -> click.Command:
    """Return the command; its options are the settings."""
    options: list[click.Parameter] = [
        click.Option(
            ["--config"], metavar="FILE", help="TOML file with settings, or the JSON of the reference (*.json)."
        )
    ]
    options += [option(each, PushSettings.variable(each.name)) for each in PushSettings.fields()]
    return click.Command(
        "push",
        callback=_push,
        params=options,
        help="Deliver messages to push endpoints: a push server for a service elsewhere. Prints one line"
        " 'ready HOST:PORT' when it answers gRPC; SIGTERM stops it, deliveries in flight end first.\n\n"
        "Each option is a setting: it may also come from the environment variable named beside it or from a file.",
    )


def _push(config: str | None, **flags: object) -> None:
    run(PushSettings.load(flags, environment(), config))


def run(settings: PushSettings) -> None:
    """Run the push server with these settings until it is told to stop."""
    # Here, not above: `ams push --help` needs none of it.
    import uvloop

    from ams.core.errors import Unusable
    from ams.core.observing import configure_logs

    try:
        from ams.app.push_server.program import serve
    except ImportError:
        raise Unusable("ams push needs libraries that are missing: install argo-messaging[push]") from None
    configure_logs(settings.log_level, settings.log_format, settings.log_facilities)
    uvloop.run(serve(settings))
