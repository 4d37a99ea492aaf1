"""PostgreSQL on loopback: one server, or a primary with standbys, one of them synchronous."""

import contextlib
import os
import pwd
import secrets
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from urllib.parse import quote

import psycopg
from psycopg import sql

from local_cluster.certificates import Authority
from local_cluster.deployed import postgres_rules, postgres_settings
from local_cluster.ports import LOOPBACK, free_port
from local_cluster.processes import DidNotStart, Process, Startable

START_SECONDS = 60.0
USER = "ams"
DATABASE = "ams"
DEBIAN = Path("/usr/lib/postgresql")

SMALL = {"listen_addresses": LOOPBACK, "shared_buffers": "64MB", "max_wal_size": "256MB", "wal_keep_size": "256MB"}
"""Settings that differ from the deployed ones: addresses, and less memory and disk."""
NO_SYNC = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
"""For tests of content only: such a server survives a killed process, but no power cut."""


class Postgres(Startable):
    """A primary and `standbys` others, each with its log in `folder/postgres-N.log`.

    The data are in a temporary folder of the system, removed at the stop: PostgreSQL refuses to run as root, and its
    user could not enter ours. Commits are synced to disk unless `careless`.
    With an `authority` the servers take TLS connections only. `settings` win over ours.
    """

    def __init__(
        self,
        folder: Path,
        standbys: int = 0,
        *,
        careless: bool = False,
        authority: Authority | None = None,
        settings: Mapping[str, str] | None = None,
    ) -> None:
        self.folder = folder.absolute()
        self.numbers = range(1, 2 + standbys)
        self.primary = 1
        """Number of the primary."""
        self.password = secrets.token_urlsafe(12)
        self._authority = authority
        self._settings = {**_deployed_settings(), **SMALL, **(NO_SYNC if careless else {}), **(settings or {})}
        self._ports = {number: free_port() for number in self.numbers}
        self._user = _unprivileged_user()
        self._data = Path(tempfile.gettempdir()) / f"ams-postgres-{secrets.token_hex(6)}"
        self._home = {"HOME": str(self._data)}  # its user may look for certificates there
        self._processes = {number: self._process(number) for number in self.numbers}

    def url(self, database: str = DATABASE) -> str:
        """Return the address of a database with the password in it."""
        return self.address(database).replace(f"//{USER}@", f"//{USER}:{self.password}@")

    def address(self, database: str = DATABASE, ports: Sequence[int] | None = None) -> str:
        """Return the address of a database without a password; it lists all servers, and the client finds the primary.

        `ports` of links replace the servers' own.
        """
        chosen = list(self._ports.values()) if ports is None else ports
        hosts = ",".join(f"{LOOPBACK}:{port}" for port in chosen)
        words = [] if len(self.numbers) == 1 else ["target_session_attrs=read-write", "connect_timeout=2"]
        if self._authority:
            words += ["sslmode=verify-full", f"sslrootcert={quote(str(self._authority.ca), safe='/')}"]
        return f"postgresql://{USER}@{hosts}/{database}" + ("?" + "&".join(words) if words else "")

    def port(self, number: int) -> int:
        """Return the port of a server."""
        return self._ports[number]

    def process(self, number: int) -> Process:
        """Return a server's main process."""
        return self._processes[number]

    def start(self) -> None:
        """Make the servers and the database `ams`, and return when all serve; raise `DidNotStart`, leaving none."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._data.mkdir(mode=0o700)
        if self._user:
            shutil.chown(self._data, self._user, self._user)
        try:
            self._make_primary()
            self.create_database(DATABASE)
            for number in self.numbers[1:]:
                self._make_standby(number)
            self._ask_standbys()
        except BaseException:
            self.stop()
            raise

    def create_database(self, name: str, template: str = "template1") -> str:
        """Make a database as a copy of another, to which no connection may be open; return its URL."""
        words = sql.SQL("CREATE DATABASE {} TEMPLATE {}").format(sql.Identifier(name), sql.Identifier(template))
        with self.open_connection("postgres") as connection:
            connection.execute(words)
        return self.url(name)

    @contextlib.contextmanager
    def open_connection(self, database: str = DATABASE, *, server: int | None = None) -> Iterator["psycopg.Connection"]:
        """Connect to the primary or to one server, in autocommit mode."""
        url = self.url(database) if server is None else self._own_url(server, database)
        with contextlib.closing(psycopg.connect(url, autocommit=True, connect_timeout=5)) as connection:
            yield connection

    def kill(self, number: int) -> None:
        """End a server and all its processes, as a power cut would."""
        self.process(number).kill()

    def freeze(self, number: int) -> None:
        """Stop a server and all its processes without ending them."""
        self.process(number).freeze()

    def thaw(self, number: int) -> None:
        """Let a frozen server go on."""
        self.process(number).thaw()

    def restart(self, number: int) -> None:
        """Start a killed server in its old role, and return when it accepts connections.

        After another was promoted, use `rejoin` for a killed primary.
        """
        (self._folder(number) / "postmaster.pid").unlink(missing_ok=True)
        process = self.process(number)
        process.start()
        process.wait_until(lambda: self._answers(number), START_SECONDS)

    def promote(self) -> int:
        """Promote the standby with the newest data; return its number when it accepts writes.

        The others follow it by themselves: they look for the server that accepts writes.
        """
        standbys = [number for number in self.numbers if number != self.primary and self.process(number).alive]
        chosen = max(standbys, key=self._received_bytes)
        with self.open_connection("postgres", server=chosen) as connection:
            connection.execute("SELECT pg_promote()")
        self.primary = chosen
        return chosen

    def rejoin(self, number: int) -> None:
        """Make a stopped server a standby of the current primary, with a new copy of its data."""
        shutil.rmtree(self._folder(number))
        self._make_standby(number)

    def stop(self) -> None:
        """Kill all servers and remove their data."""
        for process in self._processes.values():
            process.kill()
        shutil.rmtree(self._data, ignore_errors=True)

    def _folder(self, number: int) -> Path:
        return self._data / str(number)

    def _own_url(self, number: int, database: str) -> str:
        """Return the URL of one server's database, primary or standby."""
        mode = "require" if self._authority else "disable"
        return f"postgresql://{USER}:{self.password}@{LOOPBACK}:{self._ports[number]}/{database}?sslmode={mode}"

    def _process(self, number: int) -> Process:
        program = _program("postgres")
        log = self.folder / f"postgres-{number}.log"
        # SIGINT: PostgreSQL's fast stop, which does not wait for clients to leave.
        return Process(
            f"postgres {number}",
            [program, "-D", str(self._folder(number))],
            log,
            user=self._user,
            environment=self._home,
            stop_signal=signal.SIGINT,
        )

    def _make_primary(self) -> None:
        secret = self._data / "password"
        secret.touch(mode=0o600)
        secret.write_text(self.password)
        if self._user:
            shutil.chown(secret, self._user)
        login = ["-U", USER, "--pwfile", str(secret), "-A", "scram-sha-256"]
        self._run("initdb", "-D", str(self._folder(1)), *login, "-E", "UTF8", "--locale", "C", "--no-sync")
        secret.unlink()
        self._certify(1)
        self._configure(1)
        self.restart(1)

    def _make_standby(self, number: int) -> None:
        """Copy the primary, and follow the server that accepts writes."""
        source = ["-d", self._own_url(self.primary, "postgres"), "-D", str(self._folder(number))]
        self._run("pg_basebackup", *source, "-X", "stream", "-c", "fast", "--no-sync")
        self._certify(number)
        self._configure(number)
        (self._folder(number) / "standby.signal").touch()
        self.restart(number)

    def _configure(self, number: int) -> None:
        hosts = ",".join([LOOPBACK] * len(self.numbers))
        ports = ",".join(str(self._ports[each]) for each in self.numbers)
        follow = {
            "host": hosts,
            "port": ports,
            "user": USER,
            "password": self.password,
            "target_session_attrs": "read-write",
            "application_name": f"server{number}",
            "connect_timeout": "2",
        }
        settings = {
            **self._settings,
            "ssl": "on" if self._authority else "off",
            "port": str(self._ports[number]),
            "unix_socket_directories": str(self._data),
            "primary_conninfo": " ".join(f"{key}={value}" for key, value in follow.items()),
        }
        file = self._folder(number) / "postgresql.auto.conf"
        file.write_text("".join(f"{key} = '{value}'\n" for key, value in settings.items()))

    def _certify(self, number: int) -> None:
        """Give the server a certificate of its own, and let it refuse connections without TLS."""
        if self._authority is None:
            return
        signed = self._authority.sign(f"postgres-{number}")
        data = self._folder(number)
        for source, name in ((signed.key, "server.key"), (signed.certificate, "server.crt")):
            shutil.copy(source, data / name)
            if self._user:
                shutil.chown(data / name, self._user)
        (data / "pg_hba.conf").write_text(postgres_rules())

    def _ask_standbys(self) -> None:
        """Wait for one standby at each commit, on this primary and on later ones.

        Set last: without a standby every commit would wait.
        """
        if len(self.numbers) == 1:
            return
        self._settings["synchronous_standby_names"] = postgres_settings()["synchronous_standby_names"]
        for number in self.numbers:
            self._configure(number)
            self.process(number).send(signal.SIGHUP)

    def _received_bytes(self, number: int) -> int:
        with self.open_connection("postgres", server=number) as connection:
            row = connection.execute("SELECT pg_last_wal_receive_lsn() - '0/0'").fetchone()
        return int(row[0]) if row and row[0] is not None else 0

    def _answers(self, number: int) -> bool:
        try:
            with self.open_connection("postgres", server=number):
                return True
        except psycopg.OperationalError:
            return False

    def _run(self, program: str, *flags: str) -> None:
        run = subprocess.run(
            [_program(program), *flags],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd="/",
            env={**os.environ, **self._home},
            user=self._user,
            group=self._user,
            extra_groups=[] if self._user else None,
            timeout=START_SECONDS,
        )
        if run.returncode:
            raise DidNotStart(f"{program} failed:\n{run.stdout}{run.stderr}")


def _deployed_settings() -> dict[str, str]:
    """Return the deployed settings without those that need certificates or standbys."""
    later = {"ssl", "synchronous_standby_names"}
    return {name: value for name, value in postgres_settings().items() if name not in later}


def _unprivileged_user() -> str | None:
    """Return PostgreSQL's user when we are root: that of the Debian package; else None."""
    if os.geteuid() != 0:
        return None
    try:
        return pwd.getpwnam("postgres").pw_name
    except KeyError:
        raise DidNotStart("PostgreSQL refuses to run as root, and there is no user postgres") from None


def is_installed() -> bool:
    """Return whether this machine has PostgreSQL's programs."""
    try:
        return bool(_program("initdb"))
    except DidNotStart:
        return False


def _program(name: str) -> str:
    """Return the path of one of PostgreSQL's programs, of the newest version; Debian keeps them off PATH."""
    versions: Sequence[Path] = sorted(DEBIAN.glob("*/bin"), key=lambda folder: float(folder.parent.name), reverse=True)
    places = [str(folder) for folder in versions] + os.get_exec_path()
    program = shutil.which(name, path=os.pathsep.join(places))
    if program is None:
        raise DidNotStart(f"PostgreSQL 15 or newer is missing (the Debian package postgresql): no {name}")
    return program
