from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.core.errors import BadDocument
from ams.core.yaml_tree import MAX_BYTES, MAX_DEPTH, Value, read_tree


def tree(folder: Path, text: str | bytes) -> Value:
    path = folder / "file.yaml"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    root = read_tree(str(path))
    assert root
    return root


def refused(folder: Path, text: str | bytes) -> str:
    """Return what is said of a file that cannot be read, without the folder."""
    with pytest.raises(BadDocument) as raised:
        tree(folder, text).plain()
    return str(raised.value).replace(f"{folder}/", "")


def test_every_value_knows_its_line(tmp_path: Path) -> None:
    said = tree(tmp_path, "a: 1\nb:\n  c:\n    - x\n    - y\n").mapping()

    assert str(said["b"].place).endswith("file.yaml:2")
    assert [each.place.line for each in said["b"].mapping()["c"].values()] == [4, 5]


def test_values_are_those_of_json_and_names_are_texts(tmp_path: Path) -> None:
    text = 'text: on time\nnumber: 3\nbig: 1.5e3\nyes: true\nnothing: ~\nday: 2024-03-05\nlist: [1, "1", on, 1:30, ٣]\n'

    assert tree(tmp_path, text + '2024: {"a": [1, {"b": null}]}\n').plain() == {
        "text": "on time", "number": 3, "big": 1500.0, "yes": True, "nothing": None, "day": "2024-03-05",
        "list": [1, "1", "on", "1:30", "٣"], "2024": {"a": [1, {"b": None}]},
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "# nothing\n", "---\n"])
def test_an_empty_file_says_nothing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(text)

    root = read_tree(str(path))

    assert root is None or root.mapping() == {}


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("a: 1\nb: [1\n", "file.yaml:3: not YAML: expected ',' or ']', but got '<stream end>'"),
        ("a: &x 1\nb: *x\n", "file.yaml:2: aliases (*name) are not taken; write it out"),
        (
            "a: &a [x,x]\n" + "".join(f"{b}: &{b} [{f'*{a},' * 9}]\n" for a, b in pairwise("abcdefghi")),
            "aliases (*name)",
        ),
        ("a: 1\na: 2\n", "file.yaml:2: 'a' is said twice"),
        ("a: !!python/object/apply:os.system [id]\n", "file.yaml:1: tags (!name) are not taken"),
        ("a: !!binary aGk=\n", "tags (!name) are not taken"),
        ("a: !own {b: 1}\n", "tags (!name) are not taken"),
        ("a: 1\n---\nb: 1\n", "file.yaml:2: not YAML: but found another document"),
        ("a: .inf\n", "file.yaml:1: '.inf' is no number in JSON"),
        ("a: .nan\n", "is no number in JSON"),
        ("a: 1e999\n", "'1e999' is no number in JSON"),
        (f"a: {'9' * 5000}\n", "is no number in JSON"),
        ("\x07: 1\n", "file.yaml is not YAML: it holds characters that no text has"),
        (b"a: \xff\n", "file.yaml is not text in UTF-8"),
        ("[1]: 2\n", "text is expected here, not a list"),
        ("a: " + "[" * MAX_DEPTH + "]" * MAX_DEPTH, f"deeper than {MAX_DEPTH} levels"),
        ("a: " + "{b: " * 10_000, f"deeper than {MAX_DEPTH} levels"),
        ("a" * (MAX_BYTES + 1), f"file.yaml is larger than {MAX_BYTES} bytes"),
    ],
)
def test_what_cannot_be_taken_is_said_with_its_line(tmp_path: Path, text: str | bytes, reason: str) -> None:
    assert reason in refused(tmp_path, text)


@pytest.mark.parametrize(
    ("read", "text", "reason"),
    [
        (Value.mapping, "[1]", "names with values are expected here, not a list"),
        (Value.mapping, "x", "names with values are expected here, not 'x'"),
        (Value.values, "a: 1", "a list is expected here, not names with values"),
        (Value.text, "[1]", "text is expected here, not a list"),
        (Value.text, "~", "text is expected here, not nothing"),
        (Value.switch, "1", "true or false is expected here"),
        (lambda value: value.number(0, 5), "6", "a whole number from 0 to 5 is expected here"),
        (lambda value: value.number(0, 5), "true", "a whole number"),
        (lambda value: value.number(0, 5), "1.0", "a whole number"),
        (lambda value: value.mapping(("b",)), "a: 1", "file.yaml:1: unknown key 'a'; there are b"),
    ],
)
def test_another_type_than_expected_is_said(tmp_path: Path, read: object, text: str, reason: str) -> None:
    with pytest.raises(BadDocument, match=reason.replace("[", r"\[")):
        read(tree(tmp_path, text))  # type: ignore[operator]  # a method or a function


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BadDocument, match="nowhere.yaml: No such file"):
        read_tree(str(tmp_path / "nowhere.yaml"))


@given(text=st.text(alphabet=st.sampled_from("ab:-[]{},&*!|>'\"#%@? \n\t01~"), max_size=60))
def test_any_text_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, text: str) -> None:
    path = tmp_path_factory.getbasetemp() / "any.yaml"
    path.write_text(text)
    try:
        root = read_tree(str(path))
        if root:
            root.plain()
    except BadDocument:
        pass


def test_texts_are_said_in_any_order_and_a_choice_as_it_is(tmp_path: Path) -> None:
    said = tree(tmp_path, "many: [b, a, b]\nnone: ~\none: linear\n").mapping()

    assert (said["many"].texts(), said["none"].texts()) == (("a", "b"), ())
    assert said["one"].one_of("linear", "none") == "linear"
    with pytest.raises(BadDocument, match=r"file\.yaml:3: 'linear' is none of slow, fast"):
        said["one"].one_of("slow", "fast")
