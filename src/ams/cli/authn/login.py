"""`ams authn login`: from a certificate to the token of the user it stands for."""

from typing import Annotated

import typer

from ams.cli.arguments import Output
from ams.cli.output import Format, document, emit
from ams.client import Client
from ams.client import login as logging_in
from ams.client.connection import authn_connection
from ams.client.profiles import Source
from ams.core.settings import environment


def login(
    cert: Annotated[str, typer.Option(metavar="FILE", help="Your certificate (PEM).", show_default=False)],
    cert_key: Annotated[str | None, typer.Option(metavar="FILE", help="Its key; absent: it is in FILE too.")] = None,
    service_type: Annotated[str, typer.Option(metavar="TYPE", help="What to log in to.")] = logging_in.AMS,
    host: Annotated[
        str | None, typer.Option(help="On which of its hosts; absent: that of the certificate service.")
    ] = None,
    endpoint: Annotated[
        str | None, typer.Option(help="Certificate service, https://HOST:PORT (AMS_AUTHN_ENDPOINT).")
    ] = None,
    ca: Annotated[str | None, typer.Option(help="File of CA certificates to trust (AMS_AUTHN_CA).")] = None,
    profile: Annotated[str | None, typer.Option(help="Profile to take the rest from (AMS_PROFILE).")] = None,
    timeout: Annotated[float, typer.Option(min=0.1, help="Seconds an answer may take.")] = 30.0,
    output: Output = Format.TABLE,
) -> None:
    """Log in with a certificate and print the token.

    It is a token as any other: `export AMS_TOKEN=$(ams authn login --cert FILE --cert-key FILE)`.
    """
    found = authn_connection(Source(authn_endpoint=endpoint, authn_ca=ca), profile, environment())
    with Client(found.endpoint, ca=found.ca, cert=cert, key=cert_key, timeout=timeout, retry=None) as client:
        token = client.call(logging_in.asking(client.endpoint, service_type, host))
    emit(document(token) if output is Format.JSON else token.token)
