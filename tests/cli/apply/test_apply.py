"""Files of declarations applied: plans, answers, tokens of new users, and each kind of resource."""

import json
import os
import stat
import subprocess
from pathlib import Path

import pytest

from tests.cli.apply.conftest import Files
from tests.cli.conftest import Ams, StartAms
from tests.support.commands import PROCESS
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


def test_a_schema_in_protocol_buffers_is_declared_by_its_file(files: Files, tmp_path: Path) -> None:
    (tmp_path / "a.proto").write_text('syntax = "proto3"; message A {}')
    files.settle("projects: {PROJECT: {schemas: {a: {type: protobuf, file: a.proto}}}}")


def test_a_dry_run_changes_nothing_nor_does_a_run_without_yes_where_nobody_can_be_asked(ams: Ams, files: Files) -> None:
    ran = files.apply(SUBSCRIBED, "--dry-run")
    told = files.apply("projects: {PROJECT: {topics: {jobs: }}}", "--dry-run", "-o", "json")
    unasked = files.apply(SUBSCRIBED)

    assert (ran.returncode, len(ran.stdout.splitlines()), ran.stderr) == (0, 7, "")
    assert json.loads(told.stdout) == {
        "steps": [
            {"change": "+", "kind": "project", "project": "", "name": files.project, "fields": {}},
            {"change": "+", "kind": "topic", "project": files.project, "name": "jobs", "fields": {}},
        ],
        "applied": False,
    }
    assert unasked.returncode == 2
    assert unasked.stderr == "ams: there is something to do: give --yes to do it, or --dry-run to see it only\n"
    assert ams("projects", "show", files.project).returncode == 4


def test_a_failure_says_what_is_not_done(files: Files) -> None:
    failed = files.apply("projects: {PROJECT: {schemas: {broken: {schema: {type: 5}}}, topics: {t: }}}", "--yes")

    *steps, reason = failed.stderr.splitlines()
    assert failed.returncode == 1
    assert steps == [f"done: + project {files.project}", f"not done: + schema {files.project}/broken",
                     f"not done: + topic {files.project}/t"]  # fmt: skip
    assert reason.startswith("ams: ")


def test_new_tokens_go_to_a_file_of_ones_own_and_are_shown_if_asked_for(ams: Ams, files: Files, tmp_path: Path) -> None:
    kept = tmp_path / "tokens"
    kept.touch(0o644)
    refused = files.apply(SUBSCRIBED, "--yes", "--tokens", "tokens")
    assert (refused.returncode, refused.stderr) == (
        2, "ams: tokens can be read by others; make it yours alone: chmod 600\n",
    )  # fmt: skip
    assert files.apply(SUBSCRIBED, "--yes", "--tokens", "nowhere/tokens").returncode == 2
    assert ams("projects", "show", files.project).returncode == 4
    kept.unlink()

    ran = files.apply(SUBSCRIBED, "--yes", "--tokens", "tokens")
    more = "projects: {PROJECT: {members: {PROJECT-new: [consumer]}}}"
    shown = files.apply(more, "--yes", "--show-tokens")
    quiet = files.apply(more.replace("new", "newer"), "--yes")

    tokens = dict(line.split() for line in kept.read_text().splitlines())
    assert tokens.keys() == {f"{files.project}-sensor", f"{files.project}-sprinkler"}
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    for token in tokens.values():
        assert token not in ran.stdout + ran.stderr
    sensor = tokens[f"{files.project}-sensor"]
    assert ams("publish", "readings", "--data", "hi", AMS_TOKEN=sensor).returncode == 0
    user, token = shown.stdout.splitlines()[-1].split()
    assert (user, ams("subs", "list", AMS_TOKEN=token).returncode) == (f"{files.project}-new", 0)
    assert "were not kept; a service_admin gives new ones: ams admin tokens refresh USER" in quiet.stderr


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
    (tmp_path / "a.yaml").write_text(files.fill_project("projects: {PROJECT: {topics: {jobs: }}}"))
    more = files.fill_project("projects: {PROJECT: {subscriptions: {reader: {topic: jobs}}}}")

    ran = ams("apply", "-f", "a.yaml", "-f", "-", "--yes", stdin=more)

    assert ran.returncode == 0, ran.stderr
    assert len(ran.stdout.splitlines()) == 3


@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("n\n", False)])
def test_it_asks_a_person(ams: Ams, files: Files, environment: dict[str, str], tmp_path: Path, answer: str, done: bool):
    (tmp_path / "file.yaml").write_text(files.fill_project("projects: {PROJECT: }"))
    terminal, theirs = os.openpty()
    os.write(terminal, answer.encode())
    words = [*PROCESS, "apply", "-f", "file.yaml"]
    try:
        ran = subprocess.run(words, cwd=tmp_path, env=environment, stdin=theirs, capture_output=True, text=True)
    finally:
        os.close(theirs)
        os.close(terminal)

    assert "do it? [y/N]" in ran.stderr
    assert (ran.returncode == 0) is done
    assert (ams("projects", "show", files.project).returncode == 0) is done


@pytest.mark.long
def test_two_processes_may_apply_the_same_at_once(files: Files, start_ams: StartAms, tmp_path: Path) -> None:
    members = ", ".join(f"PROJECT-m{number}: [publisher]" for number in range(5))
    topics = ", ".join(f"t{each}: {{schema: reading, retention: 12h, access: [PROJECT-m1]}}" for each in range(5))
    subscriptions = ", ".join(f"s{number}: {{topic: t{number}, ackDeadline: 60}}" for number in range(5))
    sections = (
        f"retention: 30d, members: {{{members}}}, schemas: {{reading: {{type: json, schema: {{type: object}}}}}}, "
        f"topics: {{{topics}}}, subscriptions: {{{subscriptions}}}"
    )
    declared = f"projects: {{PROJECT: {{{sections}}}}}"
    (tmp_path / "file.yaml").write_text(files.fill_project(declared))
    both = [start_ams("apply", "-f", "file.yaml", "--yes") for _ in range(2)]

    said = [each.communicate(timeout=60)[1] for each in both]

    assert [each.returncode for each in both] == [0, 0], said
    assert files.apply(declared).stdout == "nothing to do\n"


PARALLEL = """
projects:
  PROJECT:
    topics:
      jobs:
      dead:
    subscriptions:
      usual: {topic: jobs, type: ordered}
      workers:
        topic: jobs
        type: parallel
        ackDeadline: 30
        retryPolicy: {minimumBackoff: 1s}
        deadLetterPolicy: {deadLetterTopic: dead, maxDeliveryAttempts: 7}
        filter: attributes.site != "test"
        enableMessageOrdering: true
        expirationPolicy: {ttl: 86400s}
"""


def test_options_of_parallel_subscriptions_are_declared_changed_and_taken_back(ams: Ams, files: Files) -> None:
    files.settle(PARALLEL)
    changed = files.settle(
        PARALLEL.replace("maxDeliveryAttempts: 7", "maxDeliveryAttempts: 8").replace("{ttl: 86400s}", "~")
    )

    assert changed.startswith(f"~ subscription {files.project}/workers: ")
    found = ams.json("subs", "show", "workers")
    assert found["type"] == "parallel"
    assert found["retryPolicy"] == {"minimumBackoff": "1s", "maximumBackoff": "600s"}
    assert found["deadLetterPolicy"]["maxDeliveryAttempts"] == 8
    assert found["filter"] == 'attributes.site != "test"'
    assert "expirationPolicy" not in found
    assert "type" not in ams.json("subs", "show", "usual")


PUSHED = """
projects:
  PROJECT:
    members:
      PROJECT-bob: [consumer]
    topics:
      readings:
    subscriptions:
      pulled: {topic: readings, push: ~, access: []}
      posted:
        topic: readings
        access: [PROJECT-bob]
        push:
          type: http_endpoint
          pushEndpoint: https://pump.example/in
          maxMessages: 3
          authorizationHeader: {type: disabled}
          retryPolicy: {type: slowstart}
      chatted:
        topic: readings
        access: [PROJECT-bob]
        push: {type: mattermost, mattermostUrl: https://chat.example/hook, retryPolicy: {period: 500}}
"""


def test_push_is_set_changed_and_taken_back_and_keeps_its_worker(ams: Ams, files: Files) -> None:
    files.settle(PUSHED)
    assert ams("acl", "show", "subs/chatted").stdout.split() == ["USER", f"{files.project}-bob", "push_worker_0"]

    altered = files.settle(PUSHED.replace("maxMessages: 3", "maxMessages: 4").replace("period: 500", "period: 600"))
    pulled = "projects: {PROJECT: {subscriptions: {chatted: {topic: readings, push: ~}}}}"
    taken_back = files.settle(pulled)

    assert [line.split()[2] for line in altered.splitlines()] == [f"{files.project}/posted:",
                                                                  f"{files.project}/chatted:"]  # fmt: skip
    assert taken_back == f"~ subscription {files.project}/chatted: push none\n"
    assert ams("acl", "show", "subs/chatted").stdout.split() == ["USER", f"{files.project}-bob"]
