"""Mutate the program and see whether the tests notice: `python -m tests.contract.mutants --sample 100`.

Each mutation is made alone: an error's text, an error's status code or word, the roles of an action, or the method of a
route. All of them are built into one copy of the package, each behind a switch. The tests run once with every switch
off and record which tests evaluate which switch. Then each mutation is switched on and its tests run.

Some switches are evaluated by an import or by a fixture of many tests. For these the contract's table and the tests of
their package run. Tests that need Kafka, PostgreSQL or Spark, or take long, do not run, and the log on Kafka is not
mutated. Mutations that no test notices are printed. The last line is the result; the exit code is 0 when all were
noticed.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from random import Random
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "src" / "ams"
ERRORS = {
    "InvalidInput", "BadRequest", "NotAuthenticated", "NotAllowed", "NotFound", "AckTimeout", "AlreadyExists",
    "Conflict", "KeyReused", "TooLarge", "Unavailable", "LogUnavailable", "RegistryUnavailable", "NotAcceptable",
    "TopicGone", "SubscriptionGone", "RateLimited",
}  # fmt: skip
"""Errors that a client can meet."""
NOT_CHANGED = {"cli", "client", "kafka"}  # folders whose errors these tests do not reach
MARKS = "not kafka and not postgres and not spark and not long and not alone"
MOST_TESTS = 60  # tests that are run for a change, of all that evaluate it
AT_A_TIME = 2  # changes that are tried side by side
_SWITCH = "change_or_not"


class Change(NamedTuple):
    """A piece of a file and its replacement."""

    file: Path
    line: int
    start: int
    end: int
    new: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(PACKAGE)}:{self.line}: {self.new}"


def changes() -> list[Change]:
    found = []
    for file in sorted(PACKAGE.rglob("*.py")):
        if not NOT_CHANGED & set(file.relative_to(PACKAGE).parts):
            found += list(_changes_of(file))
    return found


def _changes_of(file: Path) -> Iterator[Change]:
    source = file.read_bytes()
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    tree = ast.parse(source)
    texts = _named_texts(tree)
    for node in ast.walk(tree):
        for piece, new in _spoil_node(node, texts, file):
            start, end = (
                starts[piece.lineno - 1] + piece.col_offset, starts[piece.end_lineno - 1] + piece.end_col_offset,
            )  # fmt: skip
            yield Change(file, piece.lineno, start, end, new)


def _named_texts(tree: ast.Module) -> set[str]:
    """Return the names of module constants that are used as an error's text."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called_name(node) in ERRORS]
    return {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)}


def _spoil_node(node: ast.AST, texts: set[str], file: Path) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node, ast.Call) and _called_name(node) in ERRORS and node.args:
        yield from _other_text(node.args[0])
    elif (
        isinstance(node, ast.Call) and _called_name(node) == "Status" and file.name == "errors.py"
        and len(node.args) == 2
    ):  # fmt: skip
        yield from _other_status(node.args[0], node.args[1])
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in texts:
        yield from _other_text(node.value)
    elif isinstance(node, ast.FunctionDef) and node.name == "__init__" and file.name == "errors.py":
        for default in node.args.defaults:
            yield from _other_text(default)
    elif isinstance(node, ast.Call) and _called_name(node) == "Action":
        yield from _other_action(node)


def _called_name(node: ast.Call) -> str:
    return node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")


def _other_text(piece: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(piece, ast.Constant) and isinstance(piece.value, str) and piece.value:
        yield piece, repr(piece.value + " indeed")
    elif isinstance(piece, ast.JoinedStr):
        yield piece, ast.unparse(piece) + ' + " indeed"'


def _other_status(code: ast.expr, word: ast.expr) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(code, ast.Constant) and isinstance(word, ast.Constant):
        yield code, str(int(str(code.value)) + 17)
        yield word, repr(f"{word.value}_INDEED")


def _other_action(row: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    _, method, _, roles, *_ = row.args
    if isinstance(method, ast.Constant):
        yield method, repr({"GET": "PUT", "POST": "PUT", "PUT": "POST", "DELETE": "PUT"}[str(method.value)])
    if isinstance(roles, ast.Constant) and roles.value != "open":
        yield roles, repr("AV")


def tests_of(file: Path) -> Path:
    """Return the nearest folder of tests that mirrors the package of a file."""
    folder = ROOT / "tests" / file.relative_to(PACKAGE).parent
    while not folder.is_dir():
        folder = folder.parent
    return folder


SITE = f"""\
import builtins, os
_chosen, _records = os.environ.get("MUTANT"), os.environ.get("MUTANT_RECORDS")
_met = set()

def _switch(number, original, changed):
    if str(number) == _chosen:
        return changed
    met = number, os.environ.get("PYTEST_CURRENT_TEST", "")
    if _records and met not in _met:
        _met.add(met)
        with open(f"{{_records}}/{{os.getpid()}}", "a") as file:
            file.write(f"{{number}} {{met[1]}}\\n")
    return original

builtins.{_SWITCH} = _switch
"""
"""Python runs it first in every process; its records are lines of a switch and the test that evaluated it."""


def write_switches(sample: Sequence[Change], folder: Path) -> None:
    """Copy the package to a folder, with each mutation in `sample` behind a switch."""
    shutil.copytree(PACKAGE, folder / "ams", ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "sitecustomize.py").write_text(SITE)
    by_file: defaultdict[Path, list[tuple[int, Change]]] = defaultdict(list)
    for number, change in enumerate(sample):
        by_file[change.file].append((number, change))
    for file, found in by_file.items():
        source = file.read_bytes()
        for number, change in sorted(found, key=lambda each: -each[1].start):  # from the end: places before it stay
            original = source[change.start : change.end].decode()
            switch = f"{_SWITCH}({number}, {original}, {change.new})"
            source = source[: change.start] + switch.encode() + source[change.end :]
        (folder / "ams" / file.relative_to(PACKAGE)).write_bytes(source)


class Tests(NamedTuple):
    own: frozenset[str] = frozenset()  # tests that evaluate it themselves
    is_shared: bool = False  # whether an import or a fixture evaluates it, for any later test


def record(folder: Path) -> Mapping[int, Tests]:
    """Run the tests with every switch off, and return the tests of each switch."""
    records = folder / "records"
    records.mkdir()
    run = _pytest(folder, ["tests", "-n", "2"], MUTANT_RECORDS=str(records))
    if run.returncode:
        sys.exit(f"Tests fail without any change:\n{run.stdout[-3000:]}")
    own: defaultdict[int, set[str]] = defaultdict(set)
    shared: set[int] = set()
    for line in "".join(file.read_text() for file in records.iterdir()).splitlines():
        number, _, test = line.partition(" ")
        if test.endswith(" (call)"):
            own[int(number)].add(test.removesuffix(" (call)"))
        else:
            shared.add(int(number))
    return {number: Tests(frozenset(own[number]), number in shared) for number in {*own, *shared}}


def is_noticed(number: int, change: Change, tests: Tests, folder: Path) -> bool:
    arguments = folder / f"arguments-{number}"
    arguments.write_text("\n".join(sorted(tests.own)[:MOST_TESTS]))
    if tests.own and _fails(folder, number, [f"@{arguments}"]):
        return True
    suites = [["tests/contract"], [str(tests_of(change.file).relative_to(ROOT))]] if tests.is_shared else []
    return any(_fails(folder, number, [*suite, "-n", "2"]) for suite in suites)


def _fails(folder: Path, number: int, arguments: list[str]) -> bool:
    return _pytest(folder, ["-x", *arguments], MUTANT=str(number)).returncode in (1, 2)  # 2: an import failed


def _pytest(folder: Path, arguments: list[str], **environment: str) -> "subprocess.CompletedProcess[str]":
    options = ["-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-m", MARKS]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments], cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(folder), **environment}, stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, timeout=1800, check=False,
    )  # fmt: skip


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    everything = changes()
    sample = Random(chosen.seed).sample(everything, min(chosen.sample, len(everything)))
    survived = 0
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        write_switches(sample, folder)
        tests = record(folder)

        def try_change(number: int) -> bool:
            return is_noticed(number, sample[number], tests.get(number, Tests()), folder)

        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for number, noticed in enumerate(pool.map(try_change, range(len(sample)))):
                survived += not noticed
                said = "noticed" if noticed else "NOT NOTICED"
                print(f"{number + 1}/{len(sample)} {said}: {sample[number]}", flush=True)
    print(f"mutants: of {len(everything)} changes {len(sample)} made, {survived} noticed by none")
    return 1 if survived else 0


if __name__ == "__main__":
    sys.exit(main())
