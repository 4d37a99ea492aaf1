"""Hard words are counted, and code is compared without its words."""

from pathlib import Path

import pytest

from scripts.count_words import PARTICIPLE, RIDDLE, sentences, texts_of
from scripts.same_syntax import Renames, syntax

CODE = 'import b\nimport a\n\n\ndef told(x):\n    """Return more."""\n    return x + 1  # one\n'
RENAMED = "import a\nimport b\ndef add_one(x):\n    return x + 1\n"


def test_code_is_the_same_without_words_and_with_renamed_names_and_not_with_another_operator() -> None:
    assert syntax(CODE, {"told": "add_one"}) == syntax(RENAMED, {})
    assert syntax(CODE, {}) != syntax(RENAMED, {})
    assert syntax(CODE, {}) != syntax(CODE.replace("+", "-"), {})


def test_a_line_of_renamings_has_two_or_three_words(tmp_path: Path) -> None:
    (tmp_path / "good").write_text("# names\na.py b.py\nb.py old new\n* all every\n")
    (tmp_path / "bad").write_text("old\n")

    renames = Renames.read(tmp_path / "good")
    assert (renames.files, renames.of("b.py")) == ({"b.py": "a.py"}, {"old": "new", "all": "every"})
    with pytest.raises(ValueError, match="not enough values"):
        Renames.read(tmp_path / "bad")


def test_words_are_those_of_docstrings_and_comments() -> None:
    assert [text for _, text in texts_of(CODE)] == ["Return more.", "one"]
    assert list(sentences("What is it. Is\nit so?\n\n    indented. No.\n")) == ["What is it.", "Is it so?"]
    assert [bool(RIDDLE.match(each)) for each in ("What is it.", "What is it?", "It is.")] == [True, False, False]
    assert [bool(PARTICIPLE.fullmatch(each)) for each in ("told", "_opened", "open_file")] == [True, True, False]
