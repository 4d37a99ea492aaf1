"""Filters: valid and invalid texts, and evaluation against a plain evaluator."""

from collections.abc import Mapping
from dataclasses import dataclass

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from ams.core.errors import InvalidInput
from ams.core.filters import MAX_BYTES, TOO_LONG, parse


@pytest.mark.parametrize(("text", "matches"), [
    ("attributes:colour", True), ("attributes:weight", False), ('attributes:"iana.org/lang"', True),
    ('attributes.colour = "red"', True), ('attributes.colour="Red"', False), ('attributes.colour != "red"', False),
    ('attributes.weight != "red"', True), ('attributes."iana.org/lang" = "de"', True),
    ('hasPrefix(attributes.colour, "re")', True), ('hasPrefix(attributes.colour, "")', True),
    ('hasPrefix(attributes.weight, "")', False), ('hasPrefix ( attributes . "colour" , "rex" )', False),
    ("NOT attributes:colour", False), ("-attributes:weight", True), ("- attributes:weight", True),
    ("NOT(attributes:weight)", True), ("NOT (NOT attributes:colour)", True),
    ('attributes:colour AND attributes.size = "10" AND attributes:size', True),
    ("attributes:colour AND attributes:weight", False), ("attributes:weight OR attributes:colour", True),
    ("NOT attributes:weight AND attributes:colour", True), ("NOT (attributes:weight AND attributes:colour)", True),
    ("attributes:weight AND (attributes:colour OR attributes:size)", False),
    ("(attributes:weight AND attributes:colour) OR attributes:size", True),
    ('attributes.size="10"AND attributes:colour', True), (" \t\r\n((attributes\n:\tcolour))\n", True),
    (r'attributes.colour = "r\u0065\x64"', True), (r'attributes.colour = "r\145d"', True),
    (r'attributes.colour = "\"\\\n"', False), ("attributes:AND OR attributes:colour", True),
    ("attributes:-a OR attributes:a_B-9", False), ("(" * 121 + "attributes:a" + ")" * 121, False),
])  # fmt: skip
def test_a_filter_is_accepted_and_matches_or_not(text: str, matches: bool) -> None:
    assert parse(text)({"colour": "red", "size": "10", "iana.org/lang": "de"}) is matches


@pytest.mark.parametrize(("text", "where", "expected"), [
    ("", 1, 'NOT, "(", attributes or hasPrefix'), ("  ", 3, 'NOT, "(", attributes or hasPrefix'),
    ("colour", 1, 'NOT, "(", attributes or hasPrefix'), ("Attributes:colour", 1, 'NOT, "(", attributes or hasPrefix'),
    ('"red" = attributes.colour', 1, 'NOT, "(", attributes or hasPrefix'),
    ("NOT NOT attributes:a", 5, 'NOT, "(", attributes or hasPrefix'),
    ("not attributes:a", 1, 'NOT, "(", attributes or hasPrefix'), ("attributes", 11, '":" or "." after attributes'),
    ("attributes:", 12, "a key: letters, digits, _ and -, or a string in double quotes"),
    ("attributes:ä", 12, "a key: letters, digits, _ and -, or a string in double quotes"),
    ("attributes:a.b", 13, "AND, OR or the end"), ("attributes.a", 13, '"=" or "!="'),
    ("attributes.a == ", 15, "a string in double quotes"), ("attributes.a = b", 16, "a string in double quotes"),
    ("attributes.a = attributes.b", 16, "a string in double quotes"),
    ('attributes.a = "b', 18, "a double quote at the end of the string"),
    (r'attributes.a = "\t"', 17, r"\", \\, \n, \uXXXX, \xHH or \OOO"),
    (r'attributes.a = "\u12"', 17, r"\", \\, \n, \uXXXX, \xHH or \OOO"),
    (r'attributes.a = "\400"', 17, r"\", \\, \n, \uXXXX, \xHH or \OOO"),
    (r'attributes.a = "\ud83d"', 17, "a character: this is half of one"),
    ("attributes:a attributes:b", 14, "AND, OR or the end"),
    ("attributes:a and attributes:b", 14, "AND, OR or the end"),
    ("attributes:a AND", 17, 'NOT, "(", attributes or hasPrefix'), ("attributes:a)", 13, "AND, OR or the end"),
    ("(attributes:a", 14, 'AND, OR or ")"'), ("()", 2, 'NOT, "(", attributes or hasPrefix'),
    ('hasPrefix(attributes:a, "b")', 21, '"."'), ('hasPrefix(attributes.a "b")', 24, '","'),
    ('hasPrefix("b", attributes.a)', 11, "attributes"), ('hasPrefix attributes.a, "b")', 11, '"("'),
    ('hasPrefix(attributes.a, "b"', 28, '")"'), ("hasPrefix(attributes.a, b)", 25, "a string in double quotes"),
    ('hasSuffix(attributes.a, "b")', 1, 'NOT, "(", attributes or hasPrefix'),
    ("attributes:a AND attributes:b OR attributes:c", 31, "parentheses around AND or OR where both are used"),
    ('attributes.a = "x" AND ("y" OR "z")', 25, 'NOT, "(", attributes or hasPrefix'),
])  # fmt: skip
def test_a_refusal_says_where_and_what_was_expected(text: str, where: int, expected: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        parse(text)
    assert refused.value.message == f"Invalid filter at character {where}: expected {expected}"


def test_a_filter_has_at_most_256_bytes() -> None:
    longest = "attributes:" + "a" * (MAX_BYTES - len("attributes:"))
    assert parse(longest)({"a" * 245: ""})
    for text in (longest + "a", 'attributes:"' + "ä" * 122 + '"'):
        with pytest.raises(InvalidInput, match=TOO_LONG):
            parse(text)


@dataclass(frozen=True)
class Tree:
    """A filter as a tree, with the parentheses of its text."""

    word: str
    parts: tuple["Tree", ...] = ()
    key: str = ""
    value: str = ""


KEYS = st.one_of(st.from_regex(r"[A-Za-z0-9_-]{1,4}", fullmatch=True), st.text(max_size=3))
VALUES = st.text(max_size=4)
ATTRIBUTES = st.dictionaries(st.sampled_from(["a", "b", "-", "AND"]), st.text("xyz", max_size=2), max_size=4)


def trees(keys: st.SearchStrategy[str], values: st.SearchStrategy[str]) -> st.SearchStrategy[Tree]:
    words = st.sampled_from(["has", "equal", "differ", "prefix"])
    leaves = st.builds(lambda word, key, value: Tree(word, (), key, value), words, keys, values)
    return st.recursive(leaves, lambda inner: st.one_of(
        st.builds(lambda part: Tree("NOT", (part,)), inner),
        st.builds(lambda word, parts: Tree(word, tuple(parts)), st.sampled_from(["AND", "OR"]),
            st.lists(inner, min_size=2, max_size=3)),
    ), max_leaves=6)  # fmt: skip


def quote_text(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n") + '"'


def print_tree(tree: Tree) -> str:
    key = (
        tree.key
        if tree.key.isascii() and tree.key.replace("-", "").replace("_", "").isalnum()
        else quote_text(tree.key)
    )
    match tree.word:
        case "has":
            return f"attributes:{key}"
        case "equal":
            return f"attributes.{key}={quote_text(tree.value)}"
        case "differ":
            return f"attributes.{key} != {quote_text(tree.value)}"
        case "prefix":
            return f"hasPrefix(attributes.{key}, {quote_text(tree.value)})"
        case "NOT":
            return f"NOT({print_tree(tree.parts[0])})"
    return f" {tree.word} ".join(f"({print_tree(part)})" if part.parts else print_tree(part) for part in tree.parts)


def evaluate_tree(tree: Tree, attributes: Mapping[str, str]) -> bool:
    match tree.word:
        case "has":
            return tree.key in attributes
        case "equal":
            return tree.key in attributes and attributes[tree.key] == tree.value
        case "differ":
            return tree.key not in attributes or attributes[tree.key] != tree.value
        case "prefix":
            return tree.key in attributes and attributes[tree.key][: len(tree.value)] == tree.value
        case "NOT":
            return not evaluate_tree(tree.parts[0], attributes)
        case "AND":
            return all(evaluate_tree(part, attributes) for part in tree.parts)
    return any(evaluate_tree(part, attributes) for part in tree.parts)


FEW = st.tuples(trees(st.sampled_from(["a", "b", "-", "AND"]), st.text("xyz", max_size=2)), ATTRIBUTES)
ANY = st.tuples(trees(KEYS, VALUES), st.dictionaries(KEYS, VALUES, max_size=3))


@settings(max_examples=200)
@given(FEW | ANY)
def test_a_printed_tree_is_read_as_that_tree(given: tuple[Tree, dict[str, str]]) -> None:
    tree, attributes = given
    text = print_tree(tree)
    assume(len(text.encode()) <= MAX_BYTES)
    assert parse(text)(attributes) is evaluate_tree(tree, attributes)


PARTS = ["attributes", ":", ".", "a", "=", "!=", '"b"', "AND", "OR", "NOT", "-", "(", ")", ",", "hasPrefix", " ", "\\"]


@given(st.one_of(st.text(max_size=300), st.lists(st.sampled_from(PARTS), max_size=60).map("".join)))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = parse(text)
    except InvalidInput as refused:
        assert refused.message == TOO_LONG or refused.message.startswith("Invalid filter at character ")
    else:
        assert found({"a": "b"}) in (True, False)
