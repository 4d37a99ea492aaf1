"""Targets of make on a machine without their programs: a PATH of its own, and a stand-in for Debian's apt-get."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
TOOLS = "sh make sed awk df dirname basename head grep ls seq mktemp sleep rm find touch env"
"""Programs of every Debian system, beside the missing ones."""
NEEDING_NOTHING = """
run demo certificates-demo identity-demo work-demo pubsub-demo openapi client proto faults faults-push fuzz fuzz-packets
attacks power-loss simulate mutants soak
"""
JRE = 'openjdk version "17.0.15" 2025-04-15'
JAVA, CLUSTER = "default-jre-headless", "default-jre-headless maven postgresql haproxy"
NEEDS = dict.fromkeys(NEEDING_NOTHING.split(), "") | {
    "migrate-demo": f"{JAVA} maven haproxy curl", "pipeline-demo": JAVA, "kafka": f"{JAVA} maven", "cluster": CLUSTER,
    "cluster-demo": CLUSTER, "spark-cluster": JAVA, "console-pictures": "chromium",
    "system": f"python3-venv curl openssl {CLUSTER} pgbouncer nginx prometheus systemd bash zsh fish strace chromium",
    "docs": "curl openssl", "faults-cluster": CLUSTER, "faults-pipeline": f"{JAVA} postgresql",
    "bench": f"{JAVA} maven postgresql",
}  # fmt: skip
"""Debian packages by the target that needs them."""
WITHOUT_PARTS = {
    "help",
    "test",
    "test-all",
    "test-long",
    "setup",
    "console",
    "check",
    "fmt",
    "pins",
    "dist",
    "site",
    "clean",
}
"""Targets that need nothing but Python, or, for `test`, list missing parts by themselves."""


class Machine:
    """A clone with an environment, on a machine with Python, make and the programs of every Debian."""

    def __init__(self, folder: Path, user: int) -> None:
        self.clone, self._bin, self._log = folder / "clone", folder / "bin", folder / "log"
        own = shutil.ignore_patterns("__pycache__")  # of the hook that builds wheels
        shutil.copytree(ROOT / "scripts", self.clone / "scripts", ignore=own)
        shutil.copytree(ROOT / "requirements", self.clone / "requirements")
        for name in ("Makefile", "pyproject.toml"):
            shutil.copy(ROOT / name, self.clone / name)
        for script in (self.clone / "scripts").iterdir():  # a /usr of its own, which is empty
            script.write_text(script.read_text().replace("/usr/", f"{folder}/usr/"))
        self._bin.mkdir()
        for tool in TOOLS.split():
            found = shutil.which(tool)
            assert found, tool
            (self._bin / tool).symlink_to(found)
        self.add_program("id", f"echo {user}")
        self.add_program("python3", 'case "$*" in *ensurepip*) exit 1 ;; esac')

    def add_program(self, name: str, does: str) -> None:
        """Install a program that does this and records its arguments."""
        self._write_program(self._bin / name, does)

    def has_environment(self) -> None:
        for name in ("python", "pytest"):
            self._write_program(self.clone / ".venv" / "bin" / name, 'case "$*" in *"import pip"*) exit 1 ;; esac')
        for name in ("core", "dev"):
            (self.clone / ".venv" / name).touch()

    def _write_program(self, program: Path, does: str) -> None:
        program.parent.mkdir(parents=True, exist_ok=True)
        program.unlink(missing_ok=True)  # a link leads to the program of this machine
        program.write_text(f'#!/bin/sh\necho "{program.name} $*" >>{self._log}\n{does}\n')
        program.chmod(0o755)

    def run_command(self, *command: str) -> subprocess.CompletedProcess[str]:
        options = {"capture_output": True, "text": True, "timeout": 60, "check": False}
        return subprocess.run(command, cwd=self.clone, env={"PATH": str(self._bin)}, **options)

    def calls_of(self, name: str) -> list[str]:
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        return [line.partition(" ")[2] for line in lines if line.startswith(f"{name} ")]


def test_the_needs_of_every_target_are_in_the_table() -> None:
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert targets == NEEDS.keys() | WITHOUT_PARTS


@pytest.mark.parametrize("target", NEEDS)
def test_a_target_names_the_command_that_brings_what_it_needs(target: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, user=1000)
    machine.has_environment()
    machine.add_program("apt-get", "")

    ran = machine.run_command("make", target)

    if not NEEDS[target]:
        assert (ran.returncode, ran.stderr) == (0, "")
        return
    assert ran.returncode != 0
    assert ran.stderr.splitlines()[0] == f"Please run: sudo apt-get install -y {NEEDS[target]}"
    assert machine.calls_of("apt-get") == machine.calls_of("pytest") == []


@pytest.mark.parametrize("target", ["kafka", "cluster", "docs"])
def test_root_gets_what_a_target_needs_and_the_target_runs(target: str, tmp_path: Path) -> None:
    machine = Machine(tmp_path, user=0)
    machine.has_environment()
    machine.add_program("apt-get", "")

    ran = machine.run_command("make", target)

    assert ran.returncode == 0
    assert machine.calls_of("apt-get") == ["-qq update", f"-qq install -y --no-install-recommends {NEEDS[target]}"]


def test_packages_that_are_missing_are_named_and_those_that_are_there_not_installed_again(tmp_path: Path) -> None:
    machine = Machine(tmp_path, user=0)

    without_apt = machine.run_command("scripts/system", "haproxy", "java")
    machine.add_program("apt-get", "echo 'E: Unable to locate package' >&2; exit 100")
    failed = machine.run_command("scripts/system", "haproxy")
    machine.add_program("haproxy", "")
    machine.add_program("java", f"echo '{JRE}' >&2")
    there = machine.run_command("scripts/system", "haproxy", "java")

    said = "Please install what Debian calls: haproxy default-jre-headless\n"
    assert (without_apt.returncode, without_apt.stderr) == (1, said)
    assert (failed.returncode, failed.stderr.splitlines()[-1]) == (1, "Could not install: haproxy")
    assert there.returncode == 0


def test_a_python_that_is_old_or_makes_no_environment_is_told(tmp_path: Path) -> None:
    machine = Machine(tmp_path, user=1000)
    machine.add_program("apt-get", "")

    for target in ("run", "demo", "setup"):
        ran = machine.run_command("make", target)
        assert ran.returncode != 0
        assert "Please run: sudo apt-get install -y python3-venv" in ran.stderr.splitlines()
    machine.add_program("python3", 'case "$1" in -V) echo Python 3.9.2 ;; *) exit 1 ;; esac')
    said = "missing python: Python 3.11 or newer, 'python3' is Python 3.9.2"
    assert said in machine.run_command("make", "run").stderr


def test_a_jre_is_no_jdk(tmp_path: Path) -> None:
    machine = Machine(tmp_path, user=1000)
    machine.add_program("java", f"echo '{JRE}' >&2; echo java.base@17.0.15")
    assert machine.run_command("scripts/preflight", "java").returncode == 0
    assert machine.run_command("scripts/preflight", "jdk").stdout.startswith("missing jdk: ")

    machine.add_program("java", f"echo '{JRE}' >&2; echo jdk.compiler@17.0.15")
    assert machine.run_command("scripts/preflight", "jdk").returncode == 0


@pytest.fixture
def equipped_machine(tmp_path: Path) -> Machine:
    """A machine with all needs of the tests but a new Node, Go's and Java's compilers, Chromium and nginx."""
    machine = Machine(tmp_path, user=1000)
    machine.has_environment()
    there = "curl openssl mvn haproxy pgbouncer initdb promtool systemd-analyze strace bash zsh fish mount umount"
    for name in f"{there} rmdir timeout make python3 date".split():
        machine.add_program(name, "")
    machine.add_program("java", f"echo '{JRE}' >&2")
    machine.add_program("node", "echo v18.20.4")
    machine.add_program("cat", "case $1 in *.status) echo 0 ;; esac")
    return machine


def test_tests_of_missing_parts_are_left_out_and_named_last(equipped_machine: Machine) -> None:
    ran = equipped_machine.run_command("scripts/test")

    assert ran.returncode == 0
    assert ran.stdout.splitlines()[-1] == "Left out, as this machine lacks them: nginx chromium node go jdk"
    for arguments in equipped_machine.calls_of("timeout"):
        assert "and not nginx and not chromium and not node and not go and not jdk" in arguments
    required = equipped_machine.run_command("env", "REQUIRE=go zsh", "scripts/test")
    assert (required.returncode, required.stderr.splitlines()[-1]) == (1, "Required, and missing: go")
    # as a test that finds it missing while running
    equipped_machine.add_program("timeout", 'echo npm >>"$LACKING_PARTS"')
    assert (
        equipped_machine.run_command("scripts/test").stdout.splitlines()[-1].endswith("nginx chromium node go jdk npm")
    )


@pytest.mark.parametrize(("tier", "chosen"), [
    ("short", ["both_shapes", "not long and not spark and not alone", "not long and spark"]),
    ("long", ["long and alone", "long and not spark and not alone", "long and spark", "not spark"]),
    ("all", ["alone", "not spark", "not spark and not alone", "spark"]),
])  # fmt: skip
def test_each_tier_chooses_tests_by_their_marks(equipped_machine: Machine, tier: str, chosen: list[str]) -> None:
    equipped_machine.run_command("scripts/test", tier)
    marks = [re.search(r" -m (.*?) and not nginx", call) for call in equipped_machine.calls_of("timeout")]
    assert sorted(each[1] for each in marks if each) == chosen


def test_every_part_that_a_machine_may_lack_is_a_mark(pytestconfig: pytest.Config) -> None:
    known = {line.partition(":")[0] for line in pytestconfig.getini("markers")}
    parts = set(re.findall(r"^needs_(\w+)", (ROOT / "scripts" / "preflight").read_text(), re.MULTILINE))
    assert parts - known == {"python", "venv", "java", "maven", "postgresql", "disk", "memory"}


@pytest.mark.node
def test_the_tests_beside_the_components_of_the_console_hold() -> None:
    words = ["scripts/console", "test"]
    ran = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "# pass 0" not in ran.stdout
