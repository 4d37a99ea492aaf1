from bench.cases import CASES


def test_every_case_can_be_loaded() -> None:
    """Nothing else of the tests imports them: a name that moved would be missed only when somebody measures."""
    assert all(callable(case) for case in CASES.values())
