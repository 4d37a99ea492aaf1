from tests.cli.conftest import Ams


def rows(text: str) -> dict[tuple[str, str], str]:
    """Return the value of each metric of each resource."""
    return {(cells[0], cells[1]): cells[3] for cells in map(str.split, text.splitlines()[1:])}


def test_metrics_are_shown_for_people(ams: Ams, project: str) -> None:
    ams("topic", "create", "jobs")
    ams("sub", "create", "work", "--topic", "jobs")
    ams("publish", "jobs", "--data", "hello")
    ams("pull", "work")

    of_topic = rows(ams("metrics", "topic", "jobs").stdout)
    of_subscription = rows(ams("metrics", "subscription", "work").stdout)
    of_project = rows(ams("metrics", "project").stdout)

    assert of_topic["topic.number_of_messages", "jobs"] == "1"
    assert of_topic["topic.number_of_bytes", "jobs"] == "8"
    assert of_topic["topic.publishing_rate", "jobs"] == "1.00"
    assert of_subscription["subscription.number_of_messages", "work"] == "1"
    assert of_project["project.number_of_topics", project] == "1"
    assert of_project["project.number_of_daily_messages", project] == "1"


def test_usage_is_shown_by_project(ams: Ams, project: str) -> None:
    ams("topic", "create", "jobs")
    ams("publish", "jobs", "--data", "hello")

    lines = ams("metrics", "va", "--only", project).stdout.splitlines()

    assert lines[0].split() == ["PROJECT", "MESSAGES", "PER", "DAY", "TOPICS", "SUBSCRIPTIONS", "USERS"]
    assert lines[1].split() == [project, "1", "0.01", "1", "0", "0"]
    assert lines[2].split() == ["(all)", "1", "0.01", "1", "0", "0"]


def test_who_administers_nothing_has_an_empty_report(ams: Ams) -> None:
    assert ams("metrics", "usage").stdout.splitlines()[1:] == ["(all)    0         0.00     0       0              0"]


def test_the_service_shows_its_share_of_the_machine(ams: Ams) -> None:
    shown = ams("metrics", "service").stdout

    assert [line.split()[0] for line in shown.splitlines()] == ["METRIC", "ams_node.cpu_usage", "ams_node.memory_usage"]
