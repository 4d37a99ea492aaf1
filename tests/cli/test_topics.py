import json

from tests.cli.conftest import Ams


def test_a_topic_is_made_listed_shown_and_deleted(ams: Ams, project: str) -> None:
    made = ams("topics", "create", "jobs", "-o", "json")
    listed = ams("topics", "list")
    shown = ams("topics", "show", "jobs")
    deleted = ams("topics", "delete", "jobs")

    assert json.loads(made.stdout)["name"] == f"/projects/{project}/topics/jobs"
    assert [line.split()[0] for line in listed.stdout.splitlines()] == ["TOPIC", "jobs"]
    assert shown.stdout.splitlines()[0].split() == ["topic", "jobs"]
    assert (deleted.returncode, deleted.stdout, deleted.stderr) == (0, "", "topic jobs deleted\n")
    assert ams("topics", "show", "jobs").returncode == 4


def test_an_access_list_is_replaced_and_emptied_only_when_that_is_said(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("members", "create", f"{project}-p", "--role", "publisher")

    assert ams("topics", "set-acl", "jobs", f"{project}-p").returncode == 0
    assert ams("topics", "set-acl", "jobs").returncode == 2
    assert ams("topics", "acl", "jobs").stdout.split() == ["USER", f"{project}-p"]
    emptied = ams("topics", "set-acl", "jobs", "--none", "-o", "json")
    assert json.loads(emptied.stdout) == {"authorized_users": []}
    assert ams.json("topics", "acl", "jobs") == {"authorized_users": []}


def test_a_range_is_read_without_a_subscription(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("publish", "jobs", stdin="one\ntwo\nthree\n")

    assert ams("topics", "offsets", "jobs").stdout.split() == ["oldest", "0", "end", "3"]
    assert [line.split()[-1] for line in ams("topics", "read", "jobs", "--from", "1").stdout.splitlines()] == [
        "two",
        "three",
    ]
    [line] = ams("topics", "read", "jobs", "--to", "1", "-o", "json").stdout.splitlines()
    assert json.loads(line)["offset"] == 0
    assert ams("topics", "read", "jobs", "--from", "4").returncode == 1


def test_messages_are_kept_as_long_as_it_is_said(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")

    assert "retention  7d" in ams("topics", "retention", "jobs", "168h").stdout.splitlines()
    assert ams.json("topics", "show", "jobs")["retentionSeconds"] == 7 * 86_400
    assert "retention" not in ams("topics", "retention", "jobs", "default").stdout
    assert "12h" in ams("projects", "retention", project, "12h").stdout
    for bad in ("soon", "0", "-1", "1.5s", "7 weeks", "366d", ""):
        assert ams("topics", "retention", "jobs", bad).returncode == 2
