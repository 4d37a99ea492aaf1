"""Imports within functions: if two threads import a module at once, one may see it incomplete."""

import ast
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "src" / "ams"
PARTS = ("access", "cluster", "core", "http", "identity", "outgoing", "pubsub", "push", "service", "storage",
         "validation", "web", "workers")  # fmt: skip
ALLOWED = {
    "http/routes/reading.py _arrow": "import_module waits for the module's lock, and nobody looks into sys.modules:"
    " test_streams_that_begin_while_arrow_is_being_loaded_wait_for_it",
    "http/tls.py _is_good": "at the start, before any thread needs it; each later call finds it loaded",
    "http/tls.py _make": "right after _is_good",
    "storage/database/database.py __init__": "at the start, on the event loop",
    "storage/database/schema.py migrate": "at the start, in the one thread that migrates; nothing else loads alembic",
    "validation/protobuf_compiler.py _compile": "a worker process, which has one thread",
    "workers/program.py _job": "a worker process, which has one thread",
}
"""Functions with late imports, and why no two threads import such a module at once."""


def _loads(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", "")) in ("import_module", "__import__")
    return isinstance(node, ast.Import | ast.ImportFrom)


def test_every_import_within_a_function_has_its_reason() -> None:
    found = {
        f"{file.relative_to(SOURCES)} {function.name}"
        for part in PARTS
        for file in (SOURCES / part).rglob("*.py")
        for function in ast.walk(ast.parse(file.read_text()))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef) and any(map(_loads, ast.walk(function)))
    }

    assert found == set(ALLOWED)
