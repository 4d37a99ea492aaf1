"""Counts words that are hard to read: `python3 scripts/count_words.py [--list] PATH...` of Python files and documents.

Long sentences have more than 25 words. Riddles begin with What, Who, Whether or That as their subject. Participles are
functions named by a single word such as `told` or `opened`. Repeated are names of classes in three or more files.
"""

import argparse
import ast
import io
import re
import sys
import tokenize
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

MAX_WORDS = 25
RIDDLE = re.compile(r"(What|Who|Whether|That|Whose)\b(?!.*\?$)")
IRREGULAR = (
    "begun bound brought built caught chosen cut done drawn driven fed felt found given gone got grown heard held "
    "kept known laid led left lent lost made meant met paid put read run said seen sent set shown shut sought spent "
    "spoken stood struck taken taught thrown told understood won worn written"
)
PARTICIPLE = re.compile(rf"_?([a-z]+ed|{IRREGULAR.replace(' ', '|')})")
_SENTENCE = re.compile(r"(?<=[.:;?!])\s+")
_DEFINITION = ast.FunctionDef | ast.AsyncFunctionDef


def texts_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield docstrings and blocks of comments of a Python file, each with its line."""
    for node in ast.walk(ast.parse(source)):
        for each in getattr(node, "body", None) or () if not isinstance(node, ast.Lambda | ast.IfExp) else ():
            if (
                isinstance(each, ast.Expr)
                and isinstance(each.value, ast.Constant)
                and isinstance(each.value.value, str)
            ):
                yield each.lineno, each.value.value
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT and not re.match(r"# *(noqa|type:|fmt:|pragma)", token.string):
            yield token.start[0], token.string.lstrip("#! ")


def sentences(text: str) -> Iterator[str]:
    """Yield the sentences of a text; indented blocks and rows of tables are none."""
    prose = re.sub(r"^( {4,}|\|).*$", "\n\n", re.sub(r"```.*?```", "", text, flags=re.S), flags=re.M)
    for paragraph in re.split(r"\n\s*\n|\n(?=[-*#] |\d+\. |[A-Z]\w*:)", prose):
        yield from (each for each in _SENTENCE.split(" ".join(paragraph.split())) if each)


def main() -> int:
    """Print what is found, and how much of each kind."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="print each with its place")
    parser.add_argument("paths", nargs="+", type=Path)
    options = parser.parse_args()
    found: Counter[str] = Counter()
    classes: defaultdict[str, set[Path]] = defaultdict(set)
    for path in _files(options.paths):
        for kind, line, text in _hard(path, classes):
            found[kind] += 1
            if options.list:
                print(f"{path}:{line}: {kind}: {text}")
    repeated = {name: files for name, files in classes.items() if len(files) > 2}
    if options.list:
        print(*(f"repeated: {name} in {len(files)} files" for name, files in sorted(repeated.items())), sep="\n")
    kinds = {kind: found[kind] for kind in ("long", "riddle", "participle")} | {"repeated": len(repeated)}
    print(", ".join(f"{kind} {count}" for kind, count in kinds.items()))
    return 0


def _files(paths: Iterable[Path]) -> Iterator[Path]:
    for path in paths:
        yield from (
            sorted(each for each in path.rglob("*") if each.suffix in (".py", ".md")) if path.is_dir() else [path]
        )


def _hard(path: Path, classes: defaultdict[str, set[Path]]) -> Iterator[tuple[str, int, str]]:
    source = path.read_text()
    if path.suffix == ".md":
        texts: Iterable[tuple[int, str]] = [(1, source)]
    else:
        texts = texts_of(source)
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef):
                classes[node.name].add(path)
            elif isinstance(node, _DEFINITION) and PARTICIPLE.fullmatch(node.name):
                yield "participle", node.lineno, node.name
    for line, text in texts:
        for sentence in sentences(text):
            if len(sentence.split()) > MAX_WORDS:
                yield "long", line, sentence
            if RIDDLE.match(sentence):
                yield "riddle", line, sentence


if __name__ == "__main__":
    sys.exit(main())
