import json

import pytest

from ams.cli.exits import Usage
from ams.cli.filters import MessageFilter
from ams.client import wire
from tests.cli.conftest import Ams

DOCUMENT = {"site": "ATHENS", "degrees": [31, 28], "nested": {"ok": True}, "empty": None}


def passes(chosen: MessageFilter, payload: bytes, **attributes: str) -> bool:
    return chosen.test()(wire.message(payload, attributes))


ANSWERS = {
    True: [
        "@.site == 'ATHENS'", "@.site == 'ATHENS' && @.degrees[0] > 30", "@.site == 'OSLO' || @.nested.ok == true",
        "@.empty == null", "$.site", "$.degrees[?@ > 30]", "$..ok", "$",
    ],
    False: ["@.site == 'OSLO'", "@.nothing", "$.nothing", "$.degrees[?@ > 40]"],
}  # fmt: skip


@pytest.mark.parametrize(("answer", "text"), [(answer, text) for answer, texts in ANSWERS.items() for text in texts])
def test_a_json_payload_is_asked_by_a_condition_or_a_query(answer: bool, text: str) -> None:
    assert passes(MessageFilter(json=text), json.dumps(DOCUMENT).encode()) is answer


@pytest.mark.parametrize(
    ("payload", "answer"), [(b"7", True), (b"3", False), (b"seven", False), (b"", False), (b"\xff", False)]
)
def test_a_payload_may_be_a_number_or_no_json_at_all(payload: bytes, answer: bool) -> None:
    assert passes(MessageFilter(json="@ > 5"), payload) is answer
    assert passes(MessageFilter(json="$"), payload) is (payload in (b"7", b"3"))
    assert not passes(MessageFilter(json="$.site"), payload)


def test_both_filters_must_let_a_message_pass() -> None:
    both = MessageFilter(filter='attributes.lang = "en"', json="@.site")

    assert passes(both, b'{"site": "A"}', lang="en")
    assert not passes(both, b'{"site": "A"}', lang="de")
    assert not passes(both, b'{"other": "A"}', lang="en")


@pytest.mark.parametrize(
    "chosen", [MessageFilter(filter="lang = en"), MessageFilter(json="@.a =="), MessageFilter(json="$[")]
)
def test_what_cannot_be_read_is_a_mistake_of_usage(chosen: MessageFilter) -> None:
    with pytest.raises(Usage, match="^--(filter|json): "):
        chosen.test()


def numbers(ams: Ams, *arguments: str) -> list[int]:
    ran = ams("topics", "browse", "jobs", *arguments, "-o", "json")
    assert ran.returncode == 0, ran.stderr
    return [json.loads(line)["offset"] for line in ran.stdout.splitlines()]


def test_a_topic_is_looked_through_from_its_end_or_forward(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    lines = "".join(json.dumps({"n": n, "even": n % 2 == 0}) + "\n" for n in range(2_500))
    ams("publish", "jobs", "--attr", "k=v", stdin=lines)

    assert numbers(ams, "--max", "3") == [2499, 2498, 2497]
    assert numbers(ams, "--json", "@.n < 3") == [2, 1, 0]
    assert numbers(ams, "--json", "@.even == true", "--max", "2") == [2498, 2496]
    assert numbers(ams, "--from", "1998", "--json", "@.even == true", "--max", "3") == [1998, 2000, 2002]
    assert numbers(ams, "--since", "2020-01-01", "--max", "2") == [0, 1]
    assert numbers(ams, "--since", "2999-01-01") == []
    assert numbers(ams, "--filter", 'attributes.k = "w"') == []


def test_a_tail_shows_what_passes_its_filters(ams: Ams, project: str) -> None:
    ams("topics", "create", "jobs")
    ams("publish", "jobs", stdin='{"n": 1}\nplain\n{"n": 2}\n{"n": 3}\n')

    ran = ams("tail", "jobs", "--oldest", "--json", "@.n > 1", "--max", "2", "-o", "json")

    assert [json.loads(line)["messageId"] for line in ran.stdout.splitlines()] == ["2", "3"]
