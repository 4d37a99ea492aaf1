"""Reads the configuration in `deploy/`, so that parts on loopback run with the same lines."""

from pathlib import Path

DEPLOY = Path(__file__).parents[1] / "deploy"


def kafka_properties() -> dict[str, str]:
    """Return the properties of `deploy/kafka/server.properties`."""
    return _pairs("kafka/server.properties")


def postgres_settings() -> dict[str, str]:
    """Return the settings of `deploy/postgresql/ams.conf`, without quotes."""
    return {name: value.strip("'") for name, value in _pairs("postgresql/ams.conf").items()}


def postgres_rules() -> str:
    """Return which clients may connect: the text of `deploy/postgresql/ams.hba.conf`."""
    return (DEPLOY / "postgresql" / "ams.hba.conf").read_text()


def haproxy_configuration() -> str:
    """Return the text of `deploy/haproxy/haproxy.cfg`."""
    return (DEPLOY / "haproxy" / "haproxy.cfg").read_text()


def _pairs(file: str) -> dict[str, str]:
    lines = [line.strip() for line in (DEPLOY / file).read_text().splitlines()]
    pairs = [line.partition("=") for line in lines if line and not line.startswith("#")]
    return {name.strip(): value.strip() for name, _, value in pairs}
