"""Builds the site of the documents into dist/site: `make site`.

Pages are those of docs/, in the order in which docs/README.md names them. Added are the documents beside docs/, the
Python API from docstrings, the commands from their help, and the HTTP API from openapi.json. Nothing on a page asks
another host.
"""

import importlib
import json
import logging
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click
import typer
from mkdocs.commands.build import build
from mkdocs.config import load_config

from ams import __version__
from ams.cli.main import COMMANDS, SERVICE_COMMANDS

ROOT = Path(__file__).parents[1]
HERE = ROOT / "website"
SECTIONS = {
    "tutorial": "Tutorials", "how-to": "How-to guides", "reference": "Reference", "explanation": "Explanation",
    "contract": "Contract", "decisions": "Decisions", "project": "Project",
}  # fmt: skip
PROJECT = ("CHANGELOG", "CONTRIBUTING", "SUPPORT", "SECURITY", "CODE_OF_CONDUCT")  # documents beside docs/
_FOLDER_LINK = re.compile(r"\[([^\]\[]+)\]\(([^)#\s:]+)\)")
_FENCE = re.compile(r"^```(\w+) .*$", re.MULTILINE)
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")

PYTHON_PAGES = {
    "python-client": (
        "Python client, every name",
        ["ams.client", "ams.client.errors", "ams.client.bearer", "ams.client.wire"],
    ),
    "python-spark": ("Jobs on Spark, every name", ["pyspark_ams.jobs"]),
}
HTTP_CALLS = """\
# HTTP API, every call

[Every call with its parameters and answers](../http-api/index.html), as [openapi.json](openapi.json) describes them.
"""
HTTP_PAGE = """\
<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy"
  content="default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:">
<title>HTTP API of AMS</title>
</head>
<body>
<div id="api"></div>
<script src="redoc.standalone.js"></script>
<script src="openapi.js"></script>
<script>
Redoc.init(description, {nativeScrollbars: true, hideDownloadButtons: true}, document.getElementById("api"))
</script>
</body>
</html>
"""  # Redoc shows a logo of another host, which the policy refuses


def main(output: Path) -> None:
    """Build the site of this version below a folder, and the page that leads to it."""
    logging.basicConfig(level=logging.WARNING, format="%(message)s")  # what is wrong with a page
    with tempfile.TemporaryDirectory() as folder:
        pages = Path(folder) / "docs"
        shutil.copytree(ROOT / "docs", pages)
        stage_documents(pages)
        stage_python(pages / "reference")
        (pages / "reference" / "commands.md").write_text(commands_page())
        (pages / "reference" / "http-calls.md").write_text(HTTP_CALLS)
        write_http_api(pages / "http-api")
        site = str(output / __version__)
        config = load_config(str(HERE / "mkdocs.yml"), docs_dir=str(pages), site_dir=site, nav=navigation(pages))
        config.plugins.on_startup(command="build", dirty=False)
        try:
            build(config)
        finally:
            config.plugins.on_shutdown()
    versions = sorted((each.name for each in output.iterdir() if (each / "index.html").exists()), reverse=True)
    told = [{"version": each, "title": each, "aliases": []} for each in versions]
    (output / "versions.json").write_text(json.dumps(told))
    first = f"{__version__}/index.html"
    (output / "index.html").write_text(f'<!doctype html><meta http-equiv="refresh" content="0; url={first}">\n')
    print(f"{output / first}")


def stage_documents(pages: Path) -> None:
    """Put the documents beside docs/ among the pages, and turn links that leave docs/ to them or to copies of files."""
    (pages / "README.md").rename(pages / "documents.md")
    (pages / "index.md").write_text((ROOT / "README.md").read_text())
    (pages / "project").mkdir()
    for name in PROJECT:
        (pages / "project" / f"{name}.md").write_text((ROOT / f"{name}.md").read_text())
    (pages / "project" / "deploy.md").write_text((ROOT / "deploy" / "README.md").read_text())
    origins = {pages / "project" / f"{name}.md": ROOT / f"{name}.md" for name in PROJECT}
    origins |= {pages / "project" / "deploy.md": ROOT / "deploy" / "README.md", pages / "index.md": ROOT / "README.md"}
    origins[pages / "documents.md"] = ROOT / "docs" / "README.md"
    for page in sorted(pages.rglob("*.md")):
        origin = origins.get(page, ROOT / "docs" / page.relative_to(pages))
        text = _FOLDER_LINK.sub(partial(_without_folder, origin.parent), page.read_text())
        text = _LINK.sub(partial(_staged_link, origin, page, pages), text)
        page.write_text(_FENCE.sub(r"```\1", text))  # names of blocks are for the tests that follow them


def _without_folder(base: Path, link: re.Match[str]) -> str:
    return link[1] if (base / link[2]).is_dir() else link[0]  # a site has no page of a folder


def _staged_link(origin: Path, page: Path, pages: Path, link: re.Match[str]) -> str:
    return f"]({_target(link[1], origin, page, pages)}{link[2] or ''})"


def _target(link: str, origin: Path, page: Path, pages: Path) -> str:
    if "://" in link or link.startswith("mailto:"):
        return link
    meant = (origin.parent / link).resolve()
    if not meant.exists():
        return link
    path = meant.relative_to(ROOT)
    if path.parts[0] == "docs":
        staged = pages / Path(*path.parts[1:])
        staged = pages / "documents.md" if staged == pages / "README.md" else staged
    elif path.stem in PROJECT and len(path.parts) == 1:
        staged = pages / "project" / path.name
    elif path == Path("deploy/README.md"):
        staged = pages / "project" / "deploy.md"
    elif meant.is_file():  # a file of the repository: a copy to read
        staged = pages / "files" / path.with_name(f"{path.name}.txt")
        staged.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(meant, staged)
    else:
        return link
    return _relative(staged, page.parent)


def _relative(target: Path, folder: Path) -> str:
    common = next(each for each in (folder, *folder.parents) if target.is_relative_to(each))
    return "../" * len(folder.relative_to(common).parts) + str(target.relative_to(common))


def stage_python(reference: Path) -> None:
    """Write the pages of which mkdocstrings makes the Python API."""
    for name, (title, modules) in PYTHON_PAGES.items():
        (reference / f"{name}.md").write_text("\n\n".join([f"# {title}", *(f"::: {each}" for each in modules)]) + "\n")


def commands_page() -> str:
    """Return a page with the help of every command."""
    parts = ["# Commands, every option", "What `--help` prints; [how the commands work](cli.md)."]
    for name, entry in SERVICE_COMMANDS.items():
        parts += _help(_import(entry.target)(), f"ams {name}")
    for name, entry in COMMANDS.items():
        target = _import(entry.target)
        if not isinstance(target, typer.Typer):
            app = typer.Typer(rich_markup_mode=None, add_completion=False)
            app.command(name)(target)
            target = app
        parts += _help(typer.main.get_command(target), f"ams {name}")
    return "\n\n".join(parts) + "\n"


def _import(target: str) -> object:
    module, _, name = target.partition(":")
    return getattr(importlib.import_module(module), name)


def _help(command: click.Command, name: str) -> Iterator[str]:
    if hasattr(command, "rich_markup_mode"):
        command.rich_markup_mode = None  # as `ams` prints it
    context = click.Context(command, info_name=name, terminal_width=100, max_content_width=100)
    yield f"## {name}"
    yield f"```text\n{command.get_help(context)}\n```"
    for word, each in getattr(command, "commands", {}).items():
        if not each.hidden:
            yield from _help(each, f"{name} {word}")


def write_http_api(folder: Path) -> None:
    """Write the page that shows openapi.json by Redoc, which npm brings."""
    install = ". scripts/node.sh; cd website; npm ci --silent --ignore-scripts"  # as package-lock.json says
    subprocess.run(["sh", "-euc", install], cwd=ROOT, check=True)  # noqa: S607  # every machine has sh
    folder.mkdir(parents=True)
    [script] = (HERE / "node_modules" / "redoc").glob("bundle*/redoc.standalone.js")
    for each in script.parent.glob("redoc.standalone.js*.txt"):  # licences
        shutil.copy(each, folder)
    shutil.copy(script, folder)
    (folder / "openapi.js").write_text(f"const description = {(ROOT / 'docs/reference/openapi.json').read_text()}")
    (folder / "index.html").write_text(HTTP_PAGE)


def navigation(pages: Path) -> list[object]:
    """Return the pages of each section: those that the first page names, in its order, then the others."""
    named = [match[1] for match in _LINK.finditer((pages / "documents.md").read_text())]
    found: list[object] = [{"Home": "index.md"}, "documents.md", "glossary.md"]
    for folder, title in SECTIONS.items():
        files = sorted(str(each.relative_to(pages)) for each in (pages / folder).glob("*.md"))
        order = {name: place for place, name in reversed(list(enumerate(named)))}
        files.sort(key=lambda name: (not name.endswith("README.md"), order.get(name, len(named)), name))
        found.append({title: files})
    return found


if __name__ == "__main__":
    main(Path(sys.argv[1] if sys.argv[1:] else ROOT / "dist" / "site"))
