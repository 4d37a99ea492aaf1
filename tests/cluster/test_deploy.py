"""The files in deploy/: settings, units, containers and rules match the program, and services are hardened as
stated."""

import asyncio
import json
import re
import ssl
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import httpx
import psycopg
import pytest
import yaml
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaConnectionError

from ams.app.push_server.program import DRAIN_SECONDS as PUSH_DRAIN_SECONDS
from ams.app.push_server.settings import PushSettings
from ams.core.settings import Settings
from ams.outgoing.address_guard import networks
from ams.workers.pool import MAX_WORKERS
from ams.workers.program import MEMORY_BYTES
from local_cluster.certificates import Authority
from local_cluster.deployed import DEPLOY, kafka_properties, postgres_settings
from local_cluster.haproxy import Backend, Haproxy
from local_cluster.kafka import Brokers, Login, Security
from local_cluster.postgres import Postgres
from tests.support.service import running_service

PROMETHEUS = DEPLOY / "prometheus"
FIGURE = re.compile(r"\b((?:ams|haproxy|process)_\w+)(?=[{\[)\s]|$)")


def run_command(*command: str, folder: Path = DEPLOY) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=60)


def expressions() -> Iterator[str]:
    rules = yaml.safe_load((PROMETHEUS / "ams.rules.yml").read_text())
    yield from (rule["expr"] for group in rules["groups"] for rule in group["rules"])
    dashboard = json.loads((DEPLOY / "grafana" / "ams.json").read_text())
    yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])


def figures(name: str) -> set[str]:
    """Return the metrics that rules and dashboard use, by prefix."""
    return {found for each in expressions() for found in FIGURE.findall(each) if found.startswith(name)}


def fetch(url: str) -> str:
    return httpx.get(url, trust_env=False, timeout=5).text


def metric_names(text: str) -> set[str]:
    described = set(re.findall(r"^# TYPE (\S+)", text, re.MULTILINE))
    return described | {re.split(r"[{ ]", line)[0] for line in text.splitlines() if not line.startswith("#")}


def secrets() -> dict[str, str]:
    lines = (DEPLOY / "ams" / "secrets.env").read_text().splitlines()
    return dict(line.split("=") for line in lines if not line.startswith("#"))


def settings_of_a_node() -> Settings:
    return Settings.load({}, secrets(), str(DEPLOY / "ams" / "ams.toml"), pytest.fail)


def test_the_settings_of_a_node_are_settings_and_what_is_secret_is_in_a_file_of_its_own() -> None:
    settings = settings_of_a_node()
    secret = {Settings.variable(each.name) for each in Settings.fields() if each.metadata["secret"]}
    plain = {Settings.variable(name) for name in tomllib.loads((DEPLOY / "ams" / "ams.toml").read_text())}

    assert (settings.log, settings.kafka_replication, settings.kafka_min_isr) == ("kafka", 3, 2)
    assert secrets().keys() <= secret
    assert not plain & secret


def test_the_settings_of_push_workers_are_settings_without_a_secret() -> None:
    path = DEPLOY / "ams" / "push.toml"
    settings = PushSettings.load({}, {"AMS_TOKEN": "a-token"}, str(path))
    secret = {each.name for each in PushSettings.fields() if each.metadata["secret"]}

    assert networks(settings.push_allow, "push_allow")
    assert not secret & tomllib.loads(path.read_text()).keys()


@pytest.mark.systemd
@pytest.mark.parametrize("name", ["ams", "ams-push", "ams-authn"])
def test_a_unit_is_in_order_and_gives_the_program_little(name: str, tmp_path: Path) -> None:
    unit = tmp_path / f"{name}.service"
    unit.write_text((DEPLOY / "systemd" / unit.name).read_text().replace("/opt/ams/bin/ams", "/bin/true"))
    verified = run_command("systemd-analyze", "verify", str(unit))
    exposure = run_command("systemd-analyze", "security", "--offline=yes", "--threshold=20", "--no-pager", str(unit))

    assert (verified.returncode, verified.stderr) == (0, "")
    assert exposure.returncode == 0, exposure.stdout


def test_units_outlast_a_worker_that_takes_too_much_memory_and_the_stop_of_their_programs() -> None:
    units = {name: (DEPLOY / "systemd" / f"{name}.service").read_text() for name in ("ams", "ams-push")}
    stops = {name: int(*re.findall(r"^TimeoutStopSec=(\d+)s$", unit, re.MULTILINE)) for name, unit in units.items()}
    [most] = re.findall(r"^MemoryMax=(\d+)G$", units["ams"], re.MULTILINE)

    assert re.search("^OOMPolicy=continue$", units["ams"], re.MULTILINE)
    assert int(most) * 2**30 >= 2 * 2**30 + MAX_WORKERS * MEMORY_BYTES
    assert stops["ams"] > settings_of_a_node().drain_seconds + 10
    assert stops["ams-push"] > PUSH_DRAIN_SECONDS + 10


@pytest.mark.prometheus
def test_the_rules_are_in_order_and_fire_when_they_should() -> None:
    for command in ("check config prometheus.yml", "check rules ams.rules.yml", "test rules ams.rules.test.yml"):
        checked = run_command("promtool", *command.split(), folder=PROMETHEUS)
        assert checked.returncode == 0, checked.stdout + checked.stderr


async def test_rules_and_dashboard_speak_of_figures_that_nodes_print(tmp_path: Path) -> None:
    async with running_service(tmp_path / "data") as (running, _):
        text = await asyncio.to_thread(fetch, f"{running.operations_url}/metrics")
    assert figures("ams_")
    assert figures("ams_") | figures("process_") <= metric_names(text)


@pytest.mark.haproxy
def test_rules_and_dashboard_speak_of_figures_that_haproxy_prints(tmp_path: Path) -> None:
    certificate = Authority(tmp_path).sign("haproxy").both
    with Haproxy(tmp_path, [Backend("one", 1, 1)], certificate) as haproxy:
        text = fetch(f"http://127.0.0.1:{haproxy.figures_port}/metrics")

    assert figures("haproxy_")
    assert figures("haproxy_") <= metric_names(text)


def test_the_containers_have_the_deployed_settings_of_brokers_and_settings_of_nodes() -> None:
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    services = compose["services"]
    brokers = {name: str(value) for name, value in services["kafka1"]["environment"].items()}
    deployed = {f"KAFKA_{name.upper().replace('.', '_')}": value for name, value in kafka_properties().items()}
    own = ("LISTENER", "QUORUM_VOTERS", "LOG_DIRS")
    same = {name for name in brokers.keys() & deployed.keys() if not any(word in name for word in own)}
    node = services["node1"]["environment"]

    assert len(same) > 10
    assert {name: brokers[name] for name in same} == {name: deployed[name] for name in same}
    assert set(node) <= {Settings.variable(each.name) for each in Settings.fields()}
    shown = {"kafka_servers": node["AMS_KAFKA_SERVERS"], "log": node["AMS_LOG"]}
    assert Settings.of(shown, "compose.yaml") != Settings()
    assert set(services["haproxy"]["depends_on"]) == {"node1", "node2", "node3"}
    assert services["kafka1"]["volumes"] == [f"kafka1:{brokers['KAFKA_LOG_DIRS']}"]


def test_the_containers_serve_googles_clients_through_haproxy_alone() -> None:
    compose = yaml.safe_load((DEPLOY / "compose" / "compose.yaml").read_text())
    node, haproxy = compose["services"]["node1"]["environment"], compose["services"]["haproxy"]
    balanced = (DEPLOY / "haproxy" / "haproxy.cfg").read_text()
    exposed = re.findall(r"^EXPOSE (.*)$", (DEPLOY / "compose" / "Dockerfile").read_text(), re.MULTILINE)
    subnets = [each["subnet"] for each in compose["networks"]["default"]["ipam"]["config"]]

    assert set(exposed[0].split()) >= {"8080", "8081", str(node["AMS_PUBSUB_PORT"])}
    assert f":{node['AMS_PUBSUB_PORT']} track ams_nodes/" in balanced
    assert [f"{port}:{port}" for port in re.findall(r"^ +bind :(\d+) ssl", balanced, re.MULTILINE)] == haproxy["ports"]
    assert [str(each) for each in networks(node["AMS_TRUSTED_PROXIES"], "trusted_proxies")] == subnets
    assert "google-cloud-pubsub==" in (DEPLOY.parent / "requirements" / "service.txt").read_text()


def test_a_commit_is_never_answered_before_it_is_safe() -> None:
    settings = postgres_settings()
    assert {settings[name] for name in ("fsync", "full_page_writes", "synchronous_commit")} == {"on"}
    assert settings["synchronous_standby_names"] == "ANY 1 (server1, server2, server3)"


LOGIN = Login("ams", "s3cr3t")


@pytest.mark.kafka
@pytest.mark.long
async def test_a_broker_takes_tls_and_a_password_only(tmp_path: Path, authority: Authority) -> None:
    login = {
        "security_protocol": "SASL_SSL", "ssl_context": ssl.create_default_context(cafile=authority.ca),
        "sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": LOGIN.user, "sasl_plain_password": LOGIN.password,
    }  # fmt: skip
    with Brokers(tmp_path, quick=True, security=Security(authority, LOGIN)) as brokers:
        for refused in ({}, login | {"sasl_plain_password": "guessed"}):
            admin = AIOKafkaAdminClient(bootstrap_servers=brokers.servers, **refused, request_timeout_ms=2000)
            with pytest.raises(KafkaConnectionError):
                await admin.start()
            await admin.close()
        admin = AIOKafkaAdminClient(bootstrap_servers=brokers.servers, **login)
        await admin.start()
        await admin.create_topics([NewTopic("t", 1, 1)])
        await admin.close()


def count(url: str) -> int:
    with psycopg.connect(url) as connection:
        row = connection.execute("SELECT count(*) FROM t").fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.postgres
@pytest.mark.long
def test_a_commit_that_was_answered_outlives_the_primary_and_then_a_standby(tmp_path: Path) -> None:
    with Postgres(tmp_path, 2, authority=Authority(tmp_path / "ca")) as three:
        with pytest.raises(psycopg.OperationalError, match="no encryption"):
            psycopg.connect(three.url().replace("verify-full", "disable"))
        assert three.password not in three.address()
        with three.open_connection() as connection:
            connection.execute("CREATE TABLE t (n int)")
            for n in range(20):
                connection.execute("INSERT INTO t VALUES (%s)", [n])
        first = three.primary
        three.kill(first)
        assert three.promote() != first
        assert count(three.url()) == 20

        three.rejoin(first)
        three.kill(next(n for n in three.numbers if n not in {first, three.primary}))
        with three.open_connection() as connection:
            connection.execute("INSERT INTO t VALUES (20)")
        assert count(three.url()) == 21
