"""Plans of jobs: built-in ones, Python files, and files of options."""

from pathlib import Path
from typing import cast

import pytest

from ams.core.errors import BadDocument
from ams.core.yaml_tree import MAX_BYTES
from ams.pipeline.errors import Failed, WrongJobFile, WrongOption
from ams.pipeline.job_run import RunPlan
from ams.pipeline.plans import read_plan
from ams.pipeline.run import Run

COPY = '''\
import msgspec

from pyspark_ams.jobs import Run, job


class Options(msgspec.Struct, frozen=True, kw_only=True):
    to: str = "copy"
    """Topic that gets the copies."""
    most: int = 10


@job(options=Options)
def copy(run: Run, options: Options) -> None:
    """Copy a topic.

    In its order.
    """
    run.stream(run.topic("plants"), lambda batch: run.publish(batch, options.to))
'''


def plan(folder: Path, text: str, *settings: str, name: str = "job.yaml") -> RunPlan:
    file = folder / name
    file.write_text(text)
    return read_plan(str(file), settings)


def find_mistakes(folder: Path, text: str, name: str = "job.yaml") -> list[tuple[int, str]]:
    with pytest.raises(WrongJobFile) as raised:
        plan(folder, text, name=name)
    return [(each.line, each.reason) for each in raised.value.findings]


def test_a_python_file_has_a_job_with_options(tmp_path: Path) -> None:
    made = plan(tmp_path, COPY, "to=2024", "most=3", name="any name.py")

    assert (made.name, made.summary) == ("copy", "Copy a topic")
    assert made.options == {"to": "2024", "most": 3}
    assert made.rows == {"job": "copy"}
    assert made.lines == ["job      copy: Copy a topic", 'option   to = "2024"', "option   most = 3"]


@pytest.mark.parametrize(("text", "mistake"), [
    ("", (1, "one function with @job is expected; there is no job")),
    (COPY + "other = job(lambda run: None)\n", (1, "one function with @job is expected; there is 2 jobs")),
    ("x = 1\ndef broken(:\n", (2, "SyntaxError: invalid syntax (job.py, line 2)")),
    ("\n\nimport no_such_module\n", (3, "ModuleNotFoundError: No module named 'no_such_module'")),
])  # fmt: skip
def test_a_python_file_without_one_job_is_refused_with_a_line(
    tmp_path: Path, text: str, mistake: tuple[int, str]
) -> None:
    assert find_mistakes(tmp_path, text, "job.py") == [mistake]


MISTAKEN = """\
from pyspark_ams.jobs import job


@job
def mistaken(run):
    {}["absent"]
"""


def test_a_mistake_in_the_function_of_a_file_is_told_with_its_line_and_is_no_fault_of_ours(tmp_path: Path) -> None:
    with pytest.raises(Failed, match=r"job\.py:6: KeyError: 'absent'"):
        plan(tmp_path, MISTAKEN, name="job.py").run(cast("Run", None))


@pytest.mark.parametrize("name", ["nowhere.py", "nowhere.yaml", "folder/nowhere"])
def test_a_file_that_is_not_there_is_told(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadDocument, match=f"{name}: No such file or directory"):
        read_plan(str(tmp_path / name))


def test_a_file_may_name_a_job_whose_options_settings_win_over(tmp_path: Path) -> None:
    text = "name: march\njob: archive\noptions: {topics: [jobs], closed_after: 3}\n"
    made = plan(tmp_path, text, "closed_after=5", "path=2024")  # a path is text, whatever it looks like
    assert made.name == "march"
    assert {'option   topics = ["jobs"]', "option   closed_after = 5", 'option   path = "2024"'} <= set(made.lines)


def test_wrong_options_of_a_job_are_told_with_their_lines(tmp_path: Path) -> None:
    text = "job: archive\nname: a/b\noptions:\n  closed_after: [1]\n  merge: perhaps\n  colour: red\n"

    assert [(line, reason.partition(";")[0]) for line, reason in find_mistakes(tmp_path, text)] == [
        (2, "'a/b' is no name: letters, digits, - and _, 64 of them at most"),
        (4, "option closed_after: Expected int, got array"), (5, "option merge: Expected bool, got str"),
        (6, "option colour: there is no such option"),
    ]  # fmt: skip


@pytest.mark.parametrize(("text", "mistake"), [
    ("", (1, "job must be said: the name of a built-in job")),
    ("options: {}", (1, "job must be said: the name of a built-in job")),
    ("[job]", (1, "names with values are expected here, not a list")),
    ("steps: []", (1, "unknown key 'steps'; there are name, job, options")),
    ("job: archive\noptions: [path]", (2, "names with values are expected here, not a list")),
])  # fmt: skip
def test_a_file_of_options_says_its_job_and_nothing_else(tmp_path: Path, text: str, mistake: tuple[int, str]) -> None:
    assert find_mistakes(tmp_path, text) == [mistake]


def test_no_job_of_an_unknown_name(tmp_path: Path) -> None:
    assert "there is no job 'nothing'" in find_mistakes(tmp_path, "job: nothing\n")[0][1]
    with pytest.raises(BadDocument, match=f"larger than {MAX_BYTES} bytes"):
        plan(tmp_path, "#" * (MAX_BYTES + 1))


@pytest.mark.parametrize(("settings", "reason"), [
    (("closed_after=x",), "option closed_after: Expected int, got str"),
    (("closed_after=-1",), "option closed_after: Expected int >= 0"),
    (("nothing",), "'nothing' must look like KEY=VALUE"), (("closed_after=[",), "not YAML"),
])  # fmt: skip
def test_wrong_settings_name_their_option(settings: tuple[str, ...], reason: str) -> None:
    with pytest.raises(WrongOption, match=reason):
        read_plan("archive", settings)
