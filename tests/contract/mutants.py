"""Change the program and see whether the tests notice: `python -m tests.contract.mutants --sample 100`.

Each change is made alone in a copy of the package: an error's text, an error's status code or word, who may do an
action, or the method of a route. The contract's table is run first, then, for what is ours and what only a race shows,
the tests of the changed package, then those of the other packages. What needs Kafka, PostgreSQL or Spark, or takes
long, is not run, and the log on Kafka is not changed. A change that no test notices is printed so; the last line is
the result, and the exit code tells whether all were noticed.
"""

import argparse
import ast
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
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
NOT_CHANGED = {"cli", "client", "kafka"}
"""Folders whose errors the tests that are run here do not meet."""
PACKAGES = ["http", "access", "validation", "storage", "core", "service", "app", "push", "identity", "outgoing"]
"""Whose tests are run for a change in any package, in this order."""
MARKS = "not kafka and not postgres and not spark and not long"
BY_CONTRACT, BY_ITS_PACKAGE, BY_ANOTHER = "the contract", "its package", "another package"
_NO_TESTS = 5
"""Exit code of pytest that ran none."""
_SECONDS = 1800


class Change(NamedTuple):
    """A piece of a file and what to put in its place."""

    file: Path
    line: int
    start: int
    end: int
    new: str

    def __str__(self) -> str:
        return f"{self.file.relative_to(PACKAGE)}:{self.line}: {self.new}"


def changes() -> list[Change]:
    """Return every change there is to make, in a fixed order."""
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
        for piece, new in _spoilt(node, texts, file):
            start, end = (
                starts[piece.lineno - 1] + piece.col_offset,
                starts[piece.end_lineno - 1] + piece.end_col_offset,
            )
            yield Change(file, piece.lineno, start, end, new)


def _named_texts(tree: ast.Module) -> set[str]:
    """Return the names of module constants that stand where an error's text is asked for."""
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and _called(node) in ERRORS]
    return {argument.id for call in calls for argument in call.args if isinstance(argument, ast.Name)}


def _spoilt(node: ast.AST, texts: set[str], file: Path) -> Iterator[tuple[ast.expr, str]]:
    if isinstance(node, ast.Call) and _called(node) in ERRORS and node.args:
        yield from _other_text(node.args[0])
    elif isinstance(node, ast.Call) and _called(node) == "Status" and file.name == "errors.py" and len(node.args) == 2:
        yield from _other_status(node.args[0], node.args[1])
    elif isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name) and node.targets[0].id in texts:
        yield from _other_text(node.value)
    elif isinstance(node, ast.FunctionDef) and node.name == "__init__" and file.name == "errors.py":
        for default in node.args.defaults:
            yield from _other_text(default)
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.target.id == "PERMISSIONS":
        assert isinstance(node.value, ast.Dict)
        for key, value in list(zip(node.value.keys, node.value.values, strict=True))[:64]:
            if isinstance(key, ast.Constant) and not (isinstance(value, ast.Name) and value.id == "OPEN"):
                yield value, "frozenset({ADMIN_VIEWER})"
    elif isinstance(node, ast.Call) and _called(node) == "Row" and "routes" in file.parts:
        yield from _other_path(node)


def _called(node: ast.Call) -> str:
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


def _other_path(row: ast.Call) -> Iterator[tuple[ast.expr, str]]:
    """Let a route answer to another method."""
    method = row.args[0]
    if isinstance(method, ast.Constant):
        yield method, repr({"GET": "PUT", "POST": "PUT", "PUT": "POST", "DELETE": "PUT"}[str(method.value)])


def suites_of(file: Path) -> dict[str, list[str]]:
    """Return which tests are run for a change of the file, in this order."""
    own = tests_of(file)
    others = [ROOT / "tests" / name for name in PACKAGES]
    files = [each for each in sorted((ROOT / "tests").glob("test_*.py")) if each.name != "test_docs.py"]
    return {
        BY_CONTRACT: ["tests/contract"],
        BY_ITS_PACKAGE: [str(own.relative_to(ROOT))],
        BY_ANOTHER: [str(each.relative_to(ROOT)) for each in others + files if each != own],
    }


def tests_of(file: Path) -> Path:
    """Return the folder of tests that mirrors the package of a file: the nearest there is."""
    folder = ROOT / "tests" / file.relative_to(PACKAGE).parent
    while not folder.is_dir():
        folder = folder.parent
    return folder


def noticed_by(change: Change) -> str | None:
    """Run the tests against a copy with the change; return which failed, None when none did."""
    with tempfile.TemporaryDirectory() as folder:
        shutil.copytree(PACKAGE, Path(folder) / "ams")
        copy = Path(folder) / "ams" / change.file.relative_to(PACKAGE)
        source = copy.read_bytes()
        copy.write_bytes(source[: change.start] + change.new.encode() + source[change.end :])
        return next((name for name, suite in suites_of(change.file).items() if not _passes(suite, folder)), None)


def _passes(suite: list[str], folder: str) -> bool:
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", "-m", MARKS, *suite],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": folder, "PYTHONDONTWRITEBYTECODE": "1"},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        timeout=_SECONDS,
    )
    return run.returncode in (0, _NO_TESTS)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sample", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args()
    everything = changes()
    sample = Random(chosen.seed).sample(everything, min(chosen.sample, len(everything)))
    noticed: Counter[str | None] = Counter()
    for number, change in enumerate(sample, 1):
        who = noticed_by(change)
        noticed[who] += 1
        print(f"{number}/{len(sample)} {f'noticed by {who}' if who else 'NOT NOTICED'}: {change}", flush=True)
    told = ", ".join(f"{noticed[name]} noticed by {name}" for name in (BY_CONTRACT, BY_ITS_PACKAGE, BY_ANOTHER))
    print(f"mutants: of {len(everything)} changes {len(sample)} made, {told}, {noticed[None]} by none")
    return 1 if noticed[None] else 0


if __name__ == "__main__":
    sys.exit(main())
