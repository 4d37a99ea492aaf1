"""The steps of a request, by the functions that were running."""

from pathlib import Path

from bench.steps import DECODE, ORDER, OTHER, PARSE, RIGHTS, RULES, SEND, in_order, step_of

SOURCE = Path(__file__).parents[2] / "src"


def test_a_stack_belongs_to_the_step_of_its_innermost_function_that_has_one() -> None:
    assert step_of(["App.__call__ ams/http/app.py", "Gate.admit ams/http/fast.py"]) == RIGHTS
    assert step_of(["LimitedProtocol.data_received ams/http/protocol.py", "Event.set asyncio/locks.py"]) == PARSE
    assert step_of(["App.__call__ ams/http/app.py", "write to the socket uvloop"]) == SEND
    assert step_of(["Handle._run asyncio/events.py"]) == OTHER
    assert step_of([]) == OTHER


def test_a_new_file_belongs_to_its_package() -> None:
    assert step_of(["f ams/wire/new.py"]) == DECODE


def test_steps_come_in_the_order_of_a_request() -> None:
    assert in_order({SEND: 1.0, OTHER: 2.0, PARSE: 3.0, RIGHTS: 0.0}) == [(PARSE, 3.0), (SEND, 1.0), (OTHER, 2.0)]
    assert len(set(ORDER)) == len(ORDER)


def test_every_rule_about_our_files_is_about_some_that_are_there() -> None:
    ours = {rule.file for rule in RULES if rule.file.startswith("ams/")}
    files = [file.relative_to(SOURCE).as_posix() for file in SOURCE.rglob("*.py")]

    assert {rule for rule in ours if not any(file.startswith(rule) for file in files)} == set()
