import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.apply.conftest import Files
from tests.cli.conftest import Ams, Begin
from tests.support.documents import ROOT, blocks

SUBSCRIBED = """
projects:
  PROJECT:
    description: What grows
    members:
      PROJECT-sensor: [publisher]
      PROJECT-sprinkler: [consumer]
    topics:
      readings:
        access: [PROJECT-sensor]
      plain:
    subscriptions:
      watering:
        topic: readings
        ackDeadline: 60
        access: [PROJECT-sprinkler]
      quick: {topic: plain, ackDeadline: 0}
"""

NUMBERS = range(5)
DECLARED = "projects:\n  PROJECT:\n    retention: 30d\n    members:\n" + "".join(
    f"      PROJECT-m{number}: [publisher]\n" for number in NUMBERS
)
DECLARED += "    schemas:\n      reading: {type: json, schema: {type: object}}\n    topics:\n"
DECLARED += "".join(
    f"      t{number}: {{schema: reading, retention: 12h, access: [PROJECT-m1]}}\n" for number in NUMBERS
)
DECLARED += "    subscriptions:\n" + "".join(
    f"      s{number}: {{topic: t{number}, ackDeadline: 60}}\n" for number in NUMBERS
)


def test_what_is_declared_is_made_and_a_second_run_has_nothing_to_do(ams: Ams, files: Files) -> None:
    first = files.apply(SUBSCRIBED, "--yes")
    second = files.apply(SUBSCRIBED)

    assert first.returncode == 0, first.stderr
    assert first.stdout.splitlines() == [
        f"+ project {files.project}: description What grows",
        f"+ member {files.project}/{files.project}-sensor: roles [publisher]",
        f"+ member {files.project}/{files.project}-sprinkler: roles [consumer]",
        f"+ topic {files.project}/readings: access [{files.project}-sensor]",
        f"+ topic {files.project}/plain",
        f"+ subscription {files.project}/watering: topic readings, ackDeadline 60, access [{files.project}-sprinkler]",
        f"+ subscription {files.project}/quick: topic plain, ackDeadline 0",
    ]
    assert (second.returncode, second.stdout, second.stderr) == (0, "nothing to do\n", "")
    assert ams.json("subs", "show", "watering")["ackDeadlineSeconds"] == 60
    assert ams("acl", "show", "topics/readings").stdout.split() == ["USER", f"{files.project}-sensor"]


def test_a_dry_run_changes_nothing_and_says_so_to_programs_too(ams: Ams, files: Files) -> None:
    ran = files.apply(SUBSCRIBED, "--dry-run")
    told = files.apply("projects: {PROJECT: {topics: {jobs: }}}", "--dry-run", "-o", "json")

    assert (ran.returncode, len(ran.stdout.splitlines()), ran.stderr) == (0, 7, "")
    assert json.loads(told.stdout) == {
        "steps": [
            {"change": "+", "kind": "project", "project": "", "name": files.project, "fields": {}},
            {"change": "+", "kind": "topic", "project": files.project, "name": "jobs", "fields": {}},
        ],
        "applied": False,
    }
    assert ams("projects", "show", files.project).returncode == 4


def test_without_a_yes_nothing_is_done_where_nobody_can_be_asked(ams: Ams, files: Files) -> None:
    ran = files.apply(SUBSCRIBED)

    assert ran.returncode == 2
    assert ran.stderr == "ams: there is something to do: give --yes to do it, or --dry-run to see it only\n"
    assert ams("projects", "show", files.project).returncode == 4


def test_a_failure_says_what_is_not_done(files: Files) -> None:
    failed = files.apply("projects: {PROJECT: {schemas: {broken: {schema: {type: 5}}}, topics: {t: }}}", "--yes")

    *steps, reason = failed.stderr.splitlines()
    assert failed.returncode == 1
    assert steps == [
        f"done: + project {files.project}",
        f"not done: + schema {files.project}/broken",
        f"not done: + topic {files.project}/t",
    ]
    assert reason.startswith("ams: ")


def test_tokens_of_new_users_go_to_a_file_of_ones_own(ams: Ams, files: Files, tmp_path: Path) -> None:
    ran = files.apply(SUBSCRIBED, "--yes", "--tokens", "tokens")

    kept = tmp_path / "tokens"
    tokens = dict(line.split() for line in kept.read_text().splitlines())
    assert tokens.keys() == {f"{files.project}-sensor", f"{files.project}-sprinkler"}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    for token in tokens.values():
        assert token not in ran.stdout + ran.stderr
    sensor = tokens[f"{files.project}-sensor"]
    assert ams("publish", "readings", "--data", "hi", AMS_TOKEN=sensor).returncode == 0


def test_a_file_that_others_can_read_gets_no_token_and_nothing_is_done(ams: Ams, files: Files, tmp_path: Path) -> None:
    (tmp_path / "tokens").touch(0o644)

    ran = files.apply(SUBSCRIBED, "--yes", "--tokens", "tokens")

    assert (ran.returncode, ran.stderr) == (2, "ams: tokens can be read by others; make it yours alone: chmod 600\n")
    assert files.apply(SUBSCRIBED, "--yes", "--tokens", "nowhere/tokens").returncode == 2
    assert ams("projects", "show", files.project).returncode == 4


def test_tokens_are_shown_only_when_asked_for(ams: Ams, files: Files) -> None:
    quiet = files.apply(SUBSCRIBED, "--yes")
    more = "projects: {PROJECT: {members: {PROJECT-new: [consumer]}}}"
    shown = files.apply(more, "--yes", "--show-tokens")

    assert "were not kept; a service_admin gives new ones: ams admin tokens refresh USER" in quiet.stderr
    user, token = shown.stdout.splitlines()[-1].split()
    assert user == f"{files.project}-new"
    assert ams("subs", "list", AMS_TOKEN=token).returncode == 0


def test_users_of_the_service_are_declared_too(ams: Ams, files: Files) -> None:
    text = "users: {PROJECT-u: {email: u@site.example, service_roles: [admin_viewer]}}"

    made = files.apply(text, "--yes", "-o", "json", "--show-tokens")
    altered = files.apply(text.replace("u@site", "v@site"), "--yes")
    joined = files.apply(text.replace("u@site", "v@site") + "\nprojects: {PROJECT: {members: {PROJECT-u: }}}", "--yes")

    assert list(json.loads(made.stdout)["tokens"]) == [f"{files.project}-u"]
    assert altered.stdout == f"~ user {files.project}-u: email v@site.example\n"
    assert joined.stdout.splitlines()[-1] == f"+ member {files.project}/{files.project}-u: roles []"
    assert "not kept" not in joined.stderr
    user = ams.json("users", "show", f"{files.project}-u")
    assert (user["email"], user["service_roles"]) == ("v@site.example", ["admin_viewer"])
    ams("users", "delete", user["name"])


def test_a_project_admin_declares_what_is_in_the_project(ams: Ams, files: Files) -> None:
    text = "projects: {PROJECT: {members: {PROJECT-admin: [project_admin]}}}"
    token = files.apply(text, "--yes", "--show-tokens").stdout.split()[-1]

    ran = files.apply(SUBSCRIBED, "--yes", "--prune", "--token", token)

    assert ran.returncode == 0, ran.stderr
    assert not [line for line in ran.stdout.splitlines() if line.startswith("-")]


def test_the_example_of_the_reference_can_be_applied(ams: Ams, tmp_path: Path) -> None:
    (tmp_path / "garden.yaml").write_text(blocks(ROOT / "docs" / "reference" / "apply.md", "yaml")[0])
    (tmp_path / "weight.avsc").write_text('{"type": "int"}')

    ran = ams("apply", "-f", "garden.yaml", "--dry-run")

    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 10


def test_several_files_and_standard_input_are_one_declaration(ams: Ams, files: Files, tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text(files.named("projects: {PROJECT: {topics: {jobs: }}}"))
    more = files.named("projects: {PROJECT: {subscriptions: {reader: {topic: jobs}}}}")

    ran = ams("apply", "-f", "a.yaml", "-f", "-", "--yes", stdin=more)

    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 3


@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("n\n", False)])
def test_a_person_is_asked(
    ams: Ams, files: Files, environment: dict[str, str], tmp_path: Path, answer: str, done: bool
) -> None:
    (tmp_path / "file.yaml").write_text(files.named("projects: {PROJECT: }"))
    terminal, theirs = os.openpty()
    os.write(terminal, answer.encode())
    try:
        ran = subprocess.run(
            [sys.executable, "-m", "ams.cli.main", "apply", "-f", "file.yaml"],
            cwd=tmp_path,
            env=environment,
            stdin=theirs,
            capture_output=True,
            text=True,
            timeout=30,
        )
    finally:
        os.close(theirs)
        os.close(terminal)

    assert "do it? [y/N]" in ran.stderr
    assert (ran.returncode == 0) is done
    assert (ams("projects", "show", files.project).returncode == 0) is done


@pytest.mark.long
def test_two_processes_that_apply_the_same_at_once_both_succeed(files: Files, begin: Begin, tmp_path: Path) -> None:
    (tmp_path / "file.yaml").write_text(files.named(DECLARED))
    both = [begin("apply", "-f", "file.yaml", "--yes") for _ in range(2)]

    said = [each.communicate(timeout=60)[1] for each in both]

    assert [each.returncode for each in both] == [0, 0], said
    assert files.apply(DECLARED).stdout == "nothing to do\n"
