from datetime import date

from ams.tables.files import File

from ams.pipeline.jobs.archive.closing import passes, worth_merging

MIB = 2**20


def file(day: str, name: str, size: int = MIB) -> File:
    return File(f"date={day}/{name}.parquet", size, 1, {"project": "p", "topic": "t", "date": day}, {}, {})


def test_closed_days_of_many_small_files_are_worth_merging() -> None:
    files = [
        file("2024-03-04", "batch-1"),
        file("2024-03-04", "batch-2"),
        file("2024-03-05", "batch-2"),
        file("2024-03-06", "batch-3"),
        file("2024-03-06", "batch-4"),
    ]

    found = worth_merging(files, date(2024, 3, 6), 256 * MIB)

    assert [each[0].partition["date"] for each in found] == ["2024-03-04"]


def test_what_is_merged_is_let_be_until_more_comes() -> None:
    merged = [file("2024-03-04", f"merged-{number}", size=250 * MIB) for number in range(4)]
    late = file("2024-03-04", "batch-9")

    assert worth_merging(merged, date(2024, 3, 6), 256 * MIB) == []
    assert worth_merging([*merged, late], date(2024, 3, 6), 256 * MIB) == [[*merged, late]]


def test_a_pass_is_neither_too_large_nor_too_long() -> None:
    large = [[file("2024-03-04", f"batch-{number}", size=600 * MIB)] for number in range(3)]
    small = [[file("2024-03-04", f"batch-{number}")] for number in range(450)]

    assert [len(each) for each in passes(large)] == [1, 1, 1]
    assert [len(each) for each in passes(small)] == [200, 200, 50]
    assert list(passes([])) == []
