"""Compares the code of two revisions without its words: docstrings, comments, layout and renamed names.

`python3 scripts/same_syntax.py BEFORE [AFTER] [--renames FILE]` prints the files whose code differs and exits with 1;
without AFTER it looks at the working tree. Each line of FILE is one renaming:

    old/path.py new/path.py   a file
    path.py old new           a name in a file (its new path)
    * old new                 a name in all files

It does not notice a new name that its file already had for something else: mypy does.
"""

import argparse
import ast
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_NAMED = ("id", "attr", "name", "arg", "asname", "module")


class _WithoutWords(ast.NodeTransformer):
    """Removes docstrings and applies the renamings."""

    def __init__(self, renames: Mapping[str, str]) -> None:
        self._renames = renames

    def generic_visit(self, node: ast.AST) -> ast.AST:
        super().generic_visit(node)
        for field in _NAMED:
            name = getattr(node, field, None)
            if isinstance(name, str):
                setattr(node, field, ".".join(self._renames.get(part, part) for part in name.split(".")))
        if isinstance(node, ast.Global | ast.Nonlocal):
            node.names = [self._renames.get(name, name) for name in node.names]
        return node

    def visit_Expr(self, node: ast.Expr) -> ast.AST | None:  # as `ast` names it
        """Remove a text that stands alone."""
        is_text = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if is_text else self.generic_visit(node)


def syntax(source: str, renames: Mapping[str, str]) -> str:
    """Return the code of a file without its words, as comparable text."""
    tree = _WithoutWords(renames).visit(ast.parse(source))
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):  # renamed names are sorted anew
            node.names.sort(key=lambda alias: alias.name)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom | ast.Import)]
    others = [node for node in tree.body if node not in imports]
    return "\n".join([*sorted(map(ast.dump, imports)), *map(ast.dump, others)])


def main() -> int:
    """Print which files differ; 1 when there are any."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?")
    parser.add_argument("--renames", type=Path)
    options = parser.parse_args()
    renames = Renames.read(options.renames) if options.renames else Renames({}, {})
    revisions = [options.before, options.after] if options.after else [options.before]
    changed = _git("diff", "--name-only", "--no-renames", *revisions, "--", "*.py").splitlines()
    differing = [path for path in changed if not _is_same(path, options.before, options.after, renames)]
    print("\n".join(differing) or f"{len(changed)} changed files have the same code")
    return bool(differing)


class Renames(NamedTuple):
    """Names before and after."""

    files: Mapping[str, str]  # old paths by new path
    names: Mapping[str, Mapping[str, str]]  # by path, or `*`: new names by old name

    @classmethod
    def read(cls, file: Path) -> "Renames":
        """Read a list of renamings. Raises: ValueError: a line is not two or three words."""
        files: dict[str, str] = {}
        names: dict[str, dict[str, str]] = {}
        for line in file.read_text().splitlines():
            words = line.partition("#")[0].split()
            if len(words) == 2:
                files[words[1]] = words[0]
            elif words:
                path, old, new = words
                names.setdefault(path, {})[old] = new
        return cls(files, names)

    def of(self, path: str) -> dict[str, str]:
        """Return the names that changed in a file."""
        return {**self.names.get("*", {}), **self.names.get(path, {})}


def _is_same(path: str, before: str, after: str | None, renames: Renames) -> bool:
    try:
        new = _git("show", f"{after}:{path}") if after else Path(path).read_text()
    except (subprocess.CalledProcessError, FileNotFoundError):
        return path in renames.files.values()
    try:
        old = _git("show", f"{before}:{renames.files.get(path, path)}")
    except subprocess.CalledProcessError:  # a new file
        return False
    return syntax(old, renames.of(path)) == syntax(new, {})


def _git(*arguments: str) -> str:
    command = ["git", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout  # noqa: S603  # revisions are ours


if __name__ == "__main__":
    sys.exit(main())
