"""What cannot be done is one line that says why, the exit code of its kind, and no file; the service is as before."""

import shlex

import pytest

from tests.cli.conftest import Ams, admins_environment
from tests.support.service import LiveService
from tests.tables.making import MONDAY, append, table

WALLS = "source: {topic: walls}\nsteps:\n  - parse: {format: json, fields: {wall: double}}\nsink: {table: walls}\n"
MADE = ("topics create jobs", "subs create reader jobs", "subs create worker jobs --type parallel")


@pytest.fixture(scope="module")
def prepared(service: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Ams:
    """A project with what `MADE` says; the folder has a pipeline, a table and an empty audit file."""
    folder = tmp_path_factory.mktemp("mistakes")
    ams = Ams(admins_environment(service, folder), folder)
    for made in (f"projects create {folder.name}", *MADE):
        assert ams(*made.split()).returncode == 0
    (folder / "walls.yaml").write_text(WALLS)
    (folder / "audit.jsonl").touch()
    append(table(folder / "days"), 0, [(1, MONDAY)])
    return ams


NO_SPAN = "is no time such as 10s or 5m"
RESOURCE = "must look like topics/TOPIC or subs/SUB"
ONE_PUSH = "give one of --url, --mattermost and --none"
NO_JOB = "option job: there is no job 'nothing'; there are "
NO_TABLE = "none is no table: it has no _delta_log"
ONE_WAY = "name the dead letters by their ids, or give --all"
ONE_PLACE = "give one of --to, --oldest, --end and --snapshot"
ONE_TOPIC = "name one topic: ams subs create reader TOPIC, or --topic TOPIC"
KEEPING = "is no duration of whole seconds from 0s to 30d"
NO_PROFILE = "cannot be the name of a profile"
FILE_OR_OPTION = "give --file or --attributes, or both: what payloads or attributes must be"

MISTAKES: list[tuple[str, int, str]] = [
    ("apply", 2, ""),
    ("archive out --every soon", 2, f"--every 'soon' {NO_SPAN}"),
    ("archive out --every 0s", 2, f"--every '0s' {NO_SPAN}"),
    *((f"acl show {name}", 2, RESOURCE) for name in ("jobs", "topics/", "queues/jobs")),
    ("acl set topics/jobs", 2, "name the users of the access list, or give --none to empty it"),
    ("ack reader projects/other/subscriptions/reader:0", 1, "Invalid ack id"),
    ("audit --since tomorrow", 1, "Invalid since: it is a date such as 2030-05-01, or a time such as "),
    ("audit --file none", 1, "none: No such file or directory"),
    ("audit --file audit.jsonl --since x", 1, "Invalid since: it is a date such as 2030-05-01, or a time such as "),
    ("audit --file audit.jsonl --all", 2, "no pages"),
    ("completion tcsh", 2, "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    *(
        (f"dead redrive reader --from jobs {ids}", 2, "name the dead letters by their ids, or")
        for ids in ("", "0 --all")
    ),
    ("dead list nobody", 4, "Subscription doesn't exist"),
    ("doctor none", 4, "Subscription doesn't exist"),
    ("doctor --project none", 4, "project doesn't exist"),
    ("export file --data nothing", 1, "nothing is not a data folder"),
    ("issuers set i --audience ams", 2, "--url"),
    ("issuers set i", 2, "say what to set, for example with --url"),
    ("issuers set i --role publisher", 2, "'publisher' must look like PROJECT=ROLE=ENTITLEMENT"),
    ("issuers set i --url ftp://x --audience ams", 1, ""),
    ("issuers show i", 4, ""),
    ("members refresh-token nobody", 4, ""),
    ("members update nobody", 2, "name the roles with --role, or give --none to take all away"),
    ("metrics va --from yesterday", 1, "Start date is not in valid format"),
    ("open --print --expires-in soon", 2, "--expires-in 'soon' is no duration"),
    *((f"pipeline {verb} nothing", 2, NO_JOB) for verb in ("run", "list")),
    ("pipeline run nowhere.yaml", 2, "nowhere.yaml: No such file or directory"),
    ("pipeline run archive --set closed_after=x", 2, "option closed_after: Expected int, got str"),
    ("pipeline run archive --set topics=a,b", 2, "option topics: Expected array, got str; a list is"),
    ("pipeline run archive --set colour=red", 2, "option colour: there is no such option; there are "),
    ("pipeline run archive --set topics", 2, "option --set: 'topics' must look like KEY=VALUE"),
    ("pipeline run walls.yaml --every often", 2, f"--every 'often' {NO_SPAN}"),
    ("pipeline run walls.yaml --every 0s", 2, "--every must be longer than nothing"),
    ("pipeline run walls.yaml --set a=b", 2, "walls.yaml: 1 mistake; nothing was started"),
    ("pipeline run walls.yaml --conf x", 2, "--conf 'x' must look like KEY=VALUE"),
    ("pipeline table restore days yesterday", 2, "'yesterday' is neither a number nor a time such as 2024-03-05"),
    ("pipeline table restore days 99", 5, "has no version 99 (any longer)"),
    ("pipeline table restore days 2024-03-05", 5, "has no version of 2024-03-05T00:00:00+00:00 (any longer)"),
    ("pipeline table merge days --partition day", 2, "--partition 'day' must look like KEY=VALUE"),
    *((f"pipeline table {verb} none", 5, NO_TABLE) for verb in ("history", "vacuum", "check")),
    ("pipeline table check hdfs://names.example/days", 5, "not on hdfs:"),
    ("profile use nowhere", 2, "no profile 'nowhere'; there are: none"),
    ("profile remove nowhere", 2, "no profile 'nowhere'"),
    *((f"profile set {name}", 2, NO_PROFILE) for name in ("current", "../site", "caf\u00e9")),
    ("profile set site --endpoint ftp://ams.example", 2, "is no endpoint"),
    ("profile set site --token-stdin", 2, "does not hold a token"),
    ("profile set site --token-stdin --token-file t", 2, "not both"),
    ("profile set site --bearer-token-file b --token-file t", 2, "not both"),
    ("projects quota {project} topics", 2, "quota 'topics' must look like QUOTA=LIMIT"),
    (
        "projects quota {project} topics=many",
        2,
        "quota topics: 'many' is no number such as 100 or 64MiB, nor none nor ",
    ),
    ("projects quota {project} pages=1", 1, "There is no quota 'pages': there are storedBytes, "),
    ("projects update {project}", 2, "say what to change: --rename, --description"),
    ("publish jobs --data x --attr novalue", 2, "--attr 'novalue' must look like NAME=VALUE"),
    ("publish jobs --data x --file y", 2, "give --data or --file, not both"),
    ("publish jobs --file nowhere", 2, "nowhere: No such file or directory"),
    ("publish jobs --data ''", 1, "message 0, counted from 0, has neither data nor attributes"),
    ("registrations accept none", 4, ""),
    ("restore backup", 2, "Missing option '--data'"),
    ("schemas create person", 2, FILE_OR_OPTION),
    ("schemas create x --file none.json", 2, "none.json: No such file or directory"),
    ("schemas create x --file - --attributes -", 2, "standard input can be one of --file and --attributes"),
    ("schemas update x --attributes - --no-attributes", 2, "give --attributes or --no-attributes, not both"),
    ("schemas validate x --data 1 --file -", 2, "give --data or --file, not both"),
    ("schemas revisions none", 4, ""),
    ("settings --config nowhere.toml", 2, "settings file nowhere.toml: "),
    ("status --endpoint https://127.0.0.1:1", 6, "cannot reach https://127.0.0.1:1: "),
    ("status --ca nowhere.pem", 2, "CA file nowhere.pem: No such file or directory"),
    ("subs create r jobs --ordering", 2, "those are options of a parallel subscription: give --type parallel"),
    ("subs create r jobs --type parallel --retry-min soon", 2, "'soon' is no duration such as 10s, 0.5s or 7d"),
    *((f"subs create reader {topics}", 2, ONE_TOPIC) for topics in ("", "jobs --topic jobs")),
    ("subs update worker", 2, "say what to change"),
    ("subs update worker --unset filter", 2, "--unset 'filter' is none of retry, dead-letters, expiry, retention"),
    ("subs update worker --retry-min 1s --unset retry", 2, "what is set cannot be --unset too"),
    *((f"subs seek reader {places}", 2, ONE_PLACE) for places in ("", "--end --oldest", "--end --to 0")),
    ("subs seek reader --to 4", 1, "Offset out of bounds"),
    ("subs push-config reader", 2, ONE_PUSH),
    ("subs push-config reader --none --url https://a", 2, ONE_PUSH),
    ("subs push-config reader --url https://a --mattermost https://b", 2, ONE_PUSH),
    ("subs push-config reader --url https://a.example --dead-letter-topic none", 4, "Topic doesn't exist"),
    *((f"subs push-secret reader --keep={span}", 2, KEEPING) for span in ("", "soon", "-1s", "31d", "1.5s")),
    ("subs push-secret reader --keep 0s", 5, "Subscription is not in http push mode"),
    ("subs push-status reader", 5, "Subscription is not in push mode"),
    ("subs push-status none", 4, "Subscription doesn't exist"),
    ("tail nothing", 4, "Topic doesn't exist"),
    ("top --once --match none*", 2, "has a name like 'none*'"),
    ("top --once --project nowhere", 4, "project doesn't exist"),
    ("topics browse jobs --from 1 --since 2020-01-01", 2, "give --from or --since, not both"),
    ("topics browse jobs --since yesterday", 2, "--since: Invalid isoformat string"),
    ("topics browse jobs --json '@.a =='", 2, "--json: unexpected"),
    ("topics browse none", 4, ""),
    ("topics list --all --page-token x", 2, "give --page-token or --all, not both"),
    ("topics read jobs --from 4", 1, "Offset out of bounds"),
    ("topics set-acl jobs", 2, "name the users of the access list, or give --none to empty it"),
    *((f"topics retention jobs {bad}", 2, "is no duration of whole seconds") for bad in ("soon", "0", "1.5s", "''")),
    ("topics retention jobs 366d", 2, "'366d' is too long: messages are kept for at most 365d"),
    ("users update admin", 2, "say what to change, for example with --email or --role"),
    ("work jobs --concurrency 0 -- true", 2, "greater than or equal to 1"),
    ("work jobs --max-messages 0 -- true", 2, "greater than or equal to 1"),
    ("work jobs --time-limit soon -- true", 2, "--time-limit 'soon' is no duration"),
    ("work jobs --time-limit 0s -- true", 2, "not more than 0s"),
    ("work jobs --retry-after 11m -- true", 2, "more than 600s"),
    ("work jobs --max-lease x -- true", 2, "--max-lease 'x' is no duration"),
    ("work jobs --grace x -- true", 2, "--grace 'x' is no duration"),
    ("work jobs -- no-such-program", 2, "no program 'no-such-program'"),
    ("work jobs", 2, "Missing argument '-- COMMAND'"),
    ("work reader -- true", 5, "ams subs create reader-work jobs --type parallel"),
]


@pytest.mark.parametrize(("words", "code", "reason"), MISTAKES, ids=[words for words, *_ in MISTAKES])
def test_a_mistake_is_one_line(prepared: Ams, words: str, code: int, reason: str) -> None:
    before = sorted(prepared.folder.rglob("*"))

    ran = prepared(*shlex.split(words.format(project=prepared.folder.name)))

    assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
    said = ran.stderr.splitlines()[-1]
    assert said.startswith("ams: ")
    assert reason in said
    assert sorted(prepared.folder.rglob("*")) == before
