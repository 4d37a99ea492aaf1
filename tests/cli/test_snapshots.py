import json

from tests.cli.conftest import Ams


def test_a_snapshot_is_made_listed_shown_and_deleted(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("subs", "create", "workers", "jobs", "--type", "parallel")

    made = json.loads(ams("snapshots", "create", "before", "workers", "-o", "json").stdout)

    assert made["name"] == f"/projects/{project}/snapshots/before"
    assert json.loads(ams("snapshots", "show", "before", "-o", "json").stdout) == {**made, "lost": 0}
    listed = ams("snapshots", "list").stdout.split()
    assert listed == [
        "SNAPSHOT",
        "TOPIC",
        "CREATED",
        "EXPIRES",
        "before",
        "jobs",
        made["createdOn"],
        made["expireTime"],
    ]
    assert ams("subs", "seek", "workers", "--snapshot", "before").stdout == "subscription workers moved to 0\n"
    assert ams("snapshots", "delete", "before").stderr == "snapshot before deleted\n"
    assert ams("snapshots", "show", "before").returncode != 0
