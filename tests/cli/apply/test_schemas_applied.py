from pathlib import Path

import pytest

from tests.cli.apply.conftest import Files
from tests.cli.conftest import Ams

CHECKED = """
projects:
  PROJECT:
    schemas:
      reading: {type: json, schema: {type: object, required: [celsius]}, attributes: {required: [unit]}}
      weight: {type: avro, file: weight.avsc}
      unit: {attributes: {values: {unit: [C, K]}}}
    topics:
      readings: {schema: reading}
      weights: {schema: weight}
      plain: {schema: ~}
"""


@pytest.fixture
def weight(tmp_path: Path) -> None:
    """Write the schema that `CHECKED` takes from a file."""
    (tmp_path / "weight.avsc").write_text('{"type": "int"}')


def test_schemas_are_made_attached_changed_and_detached(ams: Ams, files: Files, weight: None) -> None:
    files.settle(CHECKED)
    refused = ams("publish", "readings", "--data", "{}")
    changed = CHECKED.replace("celsius", "kelvin").replace(", attributes: {required: [unit]}", "")
    changed = changed.replace("{schema: weight}", "{schema: ~}").replace("plain: {schema: ~}", "plain: {schema: unit}")

    altered = files.settle(changed)

    assert "celsius is required" in refused.stderr
    assert altered.splitlines() == [
        f"~ schema {files.project}/reading: schema {{...}}, attributes none",
        f"~ topic {files.project}/weights: schema none",
        f"~ topic {files.project}/plain: schema unit",
    ]
    assert ams("publish", "readings", "--data", '{"kelvin": 300}').returncode == 0


def test_schemas_are_pruned_after_their_topics(files: Files, weight: None) -> None:
    files.settle(CHECKED)
    less = "projects: {PROJECT: {schemas: {weight: {type: avro, file: weight.avsc}}, topics: {weights: }}}"

    pruned = files.settle(less, "--prune")

    assert [line.split()[1] for line in pruned.splitlines()] == ["topic", "topic", "schema", "schema"]
