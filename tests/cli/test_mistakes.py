"""A failing command prints one line with the reason, exits with the code of its kind, and changes nothing."""

import shlex

import pytest
import typer

from ams.cli.exit_codes import PipeClosed, Usage, exit_code, line
from ams.client import errors
from ams.core.errors import BadDocument, BadSettings, Unusable
from ams.pipeline import errors as pipeline
from ams.tables import WrongTable
from tests.cli.conftest import Ams, prepare_project
from tests.support.service import LiveService
from tests.tables.making import MONDAY, append, table

WALLS = "job: archive\nname: walls\noptions: {topics: [walls]}\n"
MADE = ("topics create jobs", "subs create reader jobs", "subs create worker jobs --type parallel")


@pytest.fixture(scope="module")
def prepared_ams(service: LiveService, tmp_path_factory: pytest.TempPathFactory) -> Ams:
    """A project with the resources in `MADE`; the folder has a pipeline, a table and an empty audit file."""
    folder = tmp_path_factory.mktemp("mistakes")
    ams = prepare_project(service, folder, "\n".join(MADE))
    (folder / "walls.yaml").write_text(WALLS)
    (folder / "audit.jsonl").touch()
    append(table(folder / "days"), 0, [(1, MONDAY)])
    return ams


RESOURCE = "must look like topics/TOPIC or subs/SUB"
ONE_PUSH = "give one of --url, --mattermost and --none"
NO_TABLE = "none is no table: it has no _delta_log"
ONE_WAY = "name the dead letters by their ids, or give --all"
ONE_PLACE = "give one of --to, --oldest, --end and --snapshot"
ONE_TOPIC = "name one topic: ams subs create reader TOPIC, or --topic TOPIC"
KEEPING = "is no duration of whole seconds from 0s to 30d"

MISTAKES: list[tuple[str, int, str]] = [
    ("nonsense", 2, "No such command 'nonsense'."), ("topics create", 2, "Missing argument 'TOPIC'."),
    ("status --port", 2, "No such option: --port"),
    ("archive out --every 0s", 2, "--every '0s' is no time such as 10s or 5m"),
    *((f"acl show {name}", 2, RESOURCE) for name in ("jobs", "topics/", "queues/jobs")),
    ("acl set topics/jobs", 2, "name the users of the access list, or give --none to empty it"),
    ("ack reader projects/other/subscriptions/reader:0", 1, "Invalid ack id"),
    ("audit --file none", 1, "none: No such file or directory"), ("audit --file audit.jsonl --all", 2, "no pages"),
    ("audit --file audit.jsonl --action topics:publish", 1, "Invalid action: "),
    ("authn audit --endpoint https://a --file audit.jsonl --action topics:create", 1, "Invalid action: "),
    ("completion tcsh", 2, "'tcsh' is not one of 'bash', 'zsh', 'fish'"),
    *((f"dead redrive reader --from jobs {ids}", 2, ONE_WAY) for ids in ("", "0 --all")),
    ("dead list nobody", 4, "Subscription doesn't exist"), ("dead list reader --from none", 4, "Topic doesn't exist"),
    ("doctor --project none", 4, "project doesn't exist"),
    ("export file --data nothing", 1, "nothing is not a data folder"), ("issuers set i --audience ams", 2, "--url"),
    ("issuers set i", 2, "say what to set, for example with --url"),
    ("migrate plan", 2, "say where the reference is: --mongodb and --kafka"),
    ("metrics va --from yesterday", 1, "Start date is not in valid format"),
    ("open --print --expires-in soon", 2, "--expires-in 'soon' is no duration"),
    *((f"pipeline {verb} nothing", 2, "option job: there is no job 'nothing'; there are ") for verb in ("run", "list")),
    ("pipeline run nowhere.yaml", 2, "nowhere.yaml: No such file or directory"),
    ("pipeline run archive --set closed_after=x", 2, "option closed_after: Expected int, got str"),
    ("pipeline run archive --set topics=a,b", 2, "option topics: Expected array, got str; a list is"),
    ("pipeline run archive --set colour=red", 2, "option colour: there is no such option; there are "),
    ("pipeline run walls.yaml --every 0s", 2, "--every must be longer than nothing"),
    ("pipeline run walls.yaml --set a=b", 2, "walls.yaml: 1 mistake; nothing was started"),
    ("pipeline table restore days yesterday", 2, "'yesterday' is neither a number nor a time such as 2024-03-05"),
    ("pipeline table restore days 99", 5, "has no version 99 (any longer)"),
    *((f"pipeline table {verb} none", 5, NO_TABLE) for verb in ("history", "vacuum", "check")),
    ("pipeline table check hdfs://names.example/days", 5, "not on hdfs:"),
    ("profile remove nowhere", 2, "no profile 'nowhere'; there are: none"),
    *((f"profile set {name}", 2, "cannot be the name of a profile") for name in ("current", "../site", "caf\u00e9")),
    ("profile set site --endpoint ftp://ams.example", 2, "is no endpoint"),
    ("profile set site --token-stdin", 2, "does not hold a token"),
    ("profile set site --token-stdin --token-file t", 2, "not both"),
    ("provision cloud-info --service-type x", 2, "who reads the subscriptions? name a member with --consumer"),
    ("projects quota {project} topics=many", 2, "quota topics: 'many' is no number such as 100 or 64MiB, nor none "),
    ("projects quota {project} pages=1", 1, "There is no quota 'pages': there are storedBytes, "),
    ("publish jobs --data x --attr novalue", 2, "--attr 'novalue' must look like NAME=VALUE"),
    ("publish jobs --data x --file y", 2, "give --data or --file, not both"),
    ("publish jobs --file nowhere", 2, "nowhere: No such file or directory"),
    ("publish jobs --data ''", 1, "message 0, counted from 0, has neither data nor attributes"),
    ("schemas create person", 2, "give --file or --attributes, or both: what payloads or attributes must be"),
    ("schemas create x --file - --attributes -", 2, "standard input can be one of --file and --attributes"),
    ("schemas validate x --data y --file z", 2, "give --data or --file, not both"),
    ("schemas update x --attributes - --no-attributes", 2, "give --attributes or --no-attributes, not both"),
    ("status --endpoint https://127.0.0.1:1", 6, "cannot reach https://127.0.0.1:1: "),
    ("status --ca nowhere.pem", 2, "CA file nowhere.pem: No such file or directory"),
    ("subs create r jobs --ordering", 2, "those are options of a parallel subscription: give --type parallel"),
    ("subs create r jobs --type parallel --retry-min soon", 2, "'soon' is no duration such as 10s, 0.5s or 7d"),
    *((f"subs create reader {topics}", 2, ONE_TOPIC) for topics in ("", "jobs --topic jobs")),
    ("subs update worker --retry-min 1s --unset retry", 2, "what is set cannot be --unset too"),
    *((f"subs seek reader {places}", 2, ONE_PLACE) for places in ("", "--end --oldest", "--end --to 0")),
    ("subs seek reader --to 4", 1, "Offset out of bounds"), ("subs push-config reader", 2, ONE_PUSH),
    ("subs push-config reader --url https://a --mattermost https://b", 2, ONE_PUSH),
    ("subs push-config reader --url https://a.example --dead-letter-topic none", 4, "Topic doesn't exist"),
    *((f"subs push-secret reader --keep={span}", 2, KEEPING) for span in ("", "soon", "-1s", "31d", "1.5s")),
    ("subs push-status reader", 5, "Subscription is not in push mode"),
    ("top --once --match none*", 2, "has a name like 'none*'"),
    ("topics browse jobs --from 1 --since 2020-01-01", 2, "give --from or --since, not both"),
    ("topics browse jobs --since yesterday", 2, "--since: 'yesterday' is no time such as 2030-05-01 or "),
    ("topics browse jobs --json '@.a =='", 2, "--json: unexpected"),
    ("topics list --all --page-token x", 2, "give --page-token or --all, not both"),
    *((f"topics retention jobs {bad}", 2, "is no duration of whole seconds") for bad in ("soon", "0", "1.5s", "''")),
    ("topics retention jobs 366d", 2, "'366d' is too long: messages are kept for at most 365d"),
    ("work jobs --concurrency 0 -- true", 2, "greater than or equal to 1"),
    ("work jobs --time-limit 0s -- true", 2, "not more than 0s"),
    ("work jobs --retry-after 11m -- true", 2, "more than 600s"),
    ("work jobs -- no-such-program", 2, "no program 'no-such-program'"),
    ("work jobs", 2, "Missing argument '-- COMMAND'"),
    ("work reader -- true", 5, "ams subs create reader-work jobs --type parallel"),
]  # fmt: skip


@pytest.mark.parametrize(("words", "code", "reason"), MISTAKES, ids=[words for words, *_ in MISTAKES])
def test_a_mistake_is_one_line(prepared_ams: Ams, words: str, code: int, reason: str) -> None:
    before = sorted(prepared_ams.folder.rglob("*"))

    ran = prepared_ams(*shlex.split(words.format(project=prepared_ams.folder.name)))

    assert (ran.returncode, ran.stdout) == (code, ""), ran.stderr
    said = ran.stderr.splitlines()[-1]
    assert said.startswith("ams: ")
    assert reason in said
    assert sorted(prepared_ams.folder.rglob("*")) == before


CODES: dict[int, list[Exception]] = {
    1: [
        errors.InvalidInput("no"), errors.TooLarge("no"), errors.AckTimeout("ack timeout"), Unusable("port taken"),
        pipeline.MissingDependency("no Java"), pipeline.DataLoss("gone"), pipeline.Failed("no"), typer.Abort(),
    ],
    2: [
        BadSettings("no port"), BadDocument("file.yaml:1: no"), pipeline.WrongOption("size", "no"),
        pipeline.WrongJobFile("file.yaml", []), Usage("no project"), errors.Unusable("no CA file"),
    ],
    3: [errors.NotAuthenticated("Unauthorized"), errors.NotAllowed("forbidden")], 4: [errors.NotFound("no")],
    5: [
        pipeline.ChangedJob("no"), pipeline.WrongTable("no"), WrongTable("no"), pipeline.Busy("no"),
        errors.AlreadyExists("no"), errors.Conflict("no"),
    ],
    6: [errors.Unreachable("no"), errors.NotAms("no")],
    7: [errors.Unavailable("Backend Error"), errors.Overloaded("busy")], 70: [ZeroDivisionError("division by zero")],
    141: [PipeClosed()],
}  # fmt: skip


@pytest.mark.parametrize("code", CODES)
def test_every_kind_of_error_has_its_code(code: int) -> None:
    assert {repr(error): exit_code(error) for error in CODES[code]} == {repr(error): code for error in CODES[code]}


def test_a_text_of_several_lines_is_told_on_one() -> None:
    assert line(errors.NotFound("Topic\ndoesn't  exist")) == "Topic doesn't exist"
