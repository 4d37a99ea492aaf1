"""A real PgBouncer before PostgreSQL: accepted with session pooling, otherwise refused with the reason."""

import contextlib
import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from ams.core.errors import Unusable
from ams.pipeline.postgres import open_session
from ams.storage.postgresql import POOLED
from local_cluster.ports import free_port
from local_cluster.processes import Process
from tests.support.administration import make_project, open_registry_at
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.pgbouncer]


@contextlib.contextmanager
def pooler(folder: Path, url: str, mode: str) -> Iterator[str]:
    """Run a pooler with two sessions; yields the URL through it."""
    behind, port = conninfo_to_dict(url), free_port()
    (folder / "users").write_text(f'"{behind["user"]}" "{behind.get("password", "")}"\n')
    (folder / "pgbouncer.ini").write_text(
        f"[databases]\n* = host={behind['host']} port={behind['port']}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nauth_type = plain\nauth_file = {folder}/users\npool_mode = {mode}\n"
        f"default_pool_size = {40 if mode == 'session' else 2}\nunix_socket_dir =\n"
        "ignore_startup_parameters = extra_float_digits\n"
    )
    user = "postgres" if os.getuid() == 0 else None  # it refuses to be root
    if user:
        for each in (folder, *folder.iterdir()):
            os.chown(each, pwd.getpwnam(user).pw_uid, -1)
    program = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin") or "pgbouncer"
    process = Process("pgbouncer", [program, str(folder / "pgbouncer.ini")], folder / "log", user=user)
    through = f"postgresql://{behind['user']}:{behind.get('password', '')}@127.0.0.1:{port}/{behind['dbname']}"
    process.start()
    try:
        assert wait_until(lambda: _has_answer(through) or not process.alive)
        assert process.alive, process.log.read_text()
        yield through
    finally:
        process.stop()


def _has_answer(url: str) -> bool:
    try:
        psycopg.connect(url).close()
    except psycopg.OperationalError:
        return False
    return True


@pytest.fixture
def shared_folder() -> Iterator[Path]:
    """A folder that another user can enter."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize("mode", ["transaction", "statement"])
async def test_a_pooler_but_by_the_session_is_refused_with_a_reason(postgres_url: str, shared_folder: Path, mode: str):
    with pooler(shared_folder, postgres_url, mode) as through, pytest.raises(Unusable) as refused:
        async with open_registry_at(through):
            pass
    assert str(refused.value) == POOLED


async def test_a_pooler_by_the_session_may_stand_there(postgres_url: str, shared_folder: Path) -> None:
    with pooler(shared_folder, postgres_url, "session") as through:
        async with open_registry_at(through) as registry:
            await make_project(registry, "P")
            assert [each.name for each in await registry.projects.all()] == ["P"]


def test_jobs_write_through_a_pooler_by_the_transaction(postgres_url: str, shared_folder: Path) -> None:
    with pooler(shared_folder, postgres_url, "transaction") as through, open_session(through) as connection:
        for number in range(20):
            with connection.transaction():
                row = connection.execute("SELECT %s::int", (number,)).fetchone()
            assert row == (number,)
