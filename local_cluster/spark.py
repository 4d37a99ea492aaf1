"""A standalone cluster of Spark on one machine: a master and workers, from the jars that pyspark brings.

Each worker has its own loopback address, work folder and environment, like another machine.
"""

import contextlib
import json
import os
import re
import urllib.request
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from local_cluster.caretaker import Part
from local_cluster.environment import make_environment, site_packages
from local_cluster.ports import LOOPBACK, free_port
from local_cluster.processes import Process, Startable, descendants

START_SECONDS = 60.0
SMALL_JAVA = ("-Xmx192m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
"""Java options of processes that only distribute work."""
_NO_PROXY = urllib.request.build_opener(urllib.request.ProxyHandler({}))


class Application(NamedTuple):
    """A driver that the master knows."""

    id: str
    name: str


class Worker:
    """A worker of Spark: its folder has `environment/`, and files of its executors in `work/`."""

    def __init__(self, number: int, folder: Path, master: str, cores: int, memory: str) -> None:
        self.name = f"worker {number}"
        self.host = f"127.0.0.{number + 1}"
        self.port, self.page = free_port(), free_port()
        self.folder = folder
        self.environment = folder / "environment"
        self.process = Process(self.name, (), folder / "log")
        self._master = master
        self._size = ("--cores", str(cores), "--memory", memory)

    def launch(self) -> None:
        """Start it without waiting. The first start makes its environment."""
        if not self.environment.exists():
            make_environment(self.environment)
        spark = site_packages(self.environment) / "pyspark"
        scratch = self.folder / "scratch"
        scratch.mkdir(parents=True, exist_ok=True)
        where = ("--host", self.host, "--port", str(self.port), "--webui-port", str(self.page))
        work = ("--work-dir", str(self.folder / "work"))
        self.process.command = [
            *_java(spark, "org.apache.spark.deploy.worker.Worker", f"-Djava.io.tmpdir={scratch}"),
            *where, *self._size, *work, self._master,
        ]  # fmt: skip
        self.process.environment = {
            **_environment(spark),
            # Like a machine with only this environment's Python on PATH.
            "PATH": f"{self.environment / 'bin'}:{os.environ['PATH']}",
            "PYTHONPATH": "",
            "SPARK_LOCAL_DIRS": str(scratch),
        }
        self.process.start()

    def executors(self) -> list[int]:
        """Return the process ids of its executors."""
        return [pid for pid in descendants(self.process.pid) if _runs_an_executor(pid)] if self.process.alive else []


class SparkCluster(Startable):
    """A master and its workers, in `folder`; executors share a worker's resources."""

    def __init__(self, folder: Path, *, workers: int = 3, cores: int = 1, memory: str = "1g") -> None:
        self.folder = folder.absolute()
        self.port, self._page = free_port(), free_port()
        self.master = Process("master", self._command(), self.folder / "master.log")
        self.workers = {
            each.name: each
            for number in range(1, workers + 1)
            for each in [Worker(number, self.folder / f"worker-{number}", self.url, cores, memory)]
        }

    @property
    def url(self) -> str:
        """Return the URL for a driver's `--master`."""
        return f"spark://{LOOPBACK}:{self.port}"

    @property
    def page(self) -> str:
        """Return the address of the master's page."""
        return f"http://{LOOPBACK}:{self._page}"

    def parts(self) -> Iterator[Part]:
        """Yield every process except executors."""
        yield Part("master", f"{LOOPBACK}:{self.port}", self.master)
        for worker in self.workers.values():
            yield Part(worker.name, f"{worker.host}:{worker.port}", worker.process)

    def start(self) -> None:
        """Start all; return when the master has all its workers. Raises `DidNotStart`, with nothing left running."""
        try:
            self.start_master()
            for worker in self.workers.values():
                worker.launch()
            self.wait_ready()
        except BaseException:
            self.stop()
            raise

    def start_master(self) -> None:
        """Start the master and return when it accepts workers."""
        self.master.start()
        self.master.wait_said("I have been elected leader", START_SECONDS)

    def wait_ready(self) -> None:
        """Wait until the master has all its workers."""
        for worker in self.workers.values():
            worker.process.wait_said("Successfully registered with master", START_SECONDS)

    def stop(self) -> None:
        """Stop everything, executors too."""
        for worker in self.workers.values():
            worker.process.kill()
        self.master.kill()

    def in_use(self) -> bool:
        """Return whether the master has all its workers."""
        with contextlib.suppress(OSError):
            return [each["state"] for each in self._master_state()["workers"]].count("ALIVE") == len(self.workers)
        return False

    def heal(self, name: str, _say: Callable[[str], None]) -> None:
        """Restart a dead part, and return when it is ready."""
        if name == "master":
            return self.start_master()
        self.workers[name].launch()
        return self.workers[name].process.wait_said("Successfully registered with master", START_SECONDS)

    def applications(self) -> Sequence[Application]:
        """Return the running drivers, from the master. Raises `OSError`."""
        return [Application(each["id"], each["name"]) for each in self._master_state()["activeapps"]]

    def remove(self, application: str) -> None:
        """Kill an application through the master's page. Raises `OSError`."""
        with _NO_PROXY.open(self.page, timeout=10) as answer:
            token = re.search(r'name="csrfToken" value="(\w+)"', answer.read().decode())
        form = f"id={application}&terminate=true&csrfToken={token and token[1]}".encode()
        with _NO_PROXY.open(f"{self.page}/app/kill/", form, timeout=10):
            pass

    def _master_state(self) -> Mapping[str, list[Mapping[str, str]]]:
        with _NO_PROXY.open(f"{self.page}/json/", timeout=10) as answer:
            told: Mapping[str, list[Mapping[str, str]]] = json.load(answer)
        return told

    def _command(self) -> list[str]:
        where = ["--host", LOOPBACK, "--port", str(self.port), "--webui-port", str(self._page)]
        return [*_java(_spark(), "org.apache.spark.deploy.master.Master", "-Dspark.ui.killEnabled=true"), *where]


def _spark() -> Path:
    import pyspark

    return Path(pyspark.__file__).parent


def _java(spark: Path, program: str, *options: str) -> list[str]:
    # Notice a lost worker soon.
    quick = "-Dspark.worker.timeout=10"
    return ["java", *SMALL_JAVA, quick, *options, "-cp", f"{spark}/jars/*", program]


def _environment(spark: Path) -> dict[str, str]:
    [core] = (spark / "jars").glob("spark-core_*.jar")
    scala = core.name.removeprefix("spark-core_").partition("-")[0]
    return {"SPARK_HOME": str(spark), "SPARK_SCALA_VERSION": scala}


def _runs_an_executor(pid: int) -> bool:
    try:
        return b"CoarseGrainedExecutorBackend" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return False
