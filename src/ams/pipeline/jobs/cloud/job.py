"""The job: descriptions of clouds into a catalogue of tables and one JSON file.

The work folder keeps the latest description of each topic, and no older one: a batch replaces a topic's description
only by a newer one, so that it may come twice, and in any order.
"""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from pyspark.sql import DataFrame

from ams.pipeline.errors import WrongOption
from ams.pipeline.jobs.base import Job
from ams.pipeline.jobs.cloud import catalogue
from ams.pipeline.jobs.cloud.parse import parse
from ams.pipeline.options import moment
from ams.pipeline.parsing import parsed
from ams.pipeline.report.page import put
from ams.pipeline.running import Run
from ams.pipeline.session import persisted
from ams.pipeline.tables import Table


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said to the job."""

    topics: tuple[str, ...] = ("SITE_*_ENDPOINT_*",)
    """Topics or patterns of them; each topic is one site's endpoint. New ones are found by themselves."""
    stale_hours: float = 12.0
    """A site that was silent for longer is stale."""
    now: str = ""
    """The time to tell stale sites by, such as `2024-03-05T12:00:00Z`; empty is the time of the run."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 500
    """Messages a batch at most; descriptions may be a megabyte each."""

    def __post_init__(self) -> None:
        """Raise `WrongOption` for what cannot be."""
        if self.stale_hours <= 0:
            raise WrongOption("stale_hours", "is no number of hours above 0")
        if self.now and self.moment is None:
            raise WrongOption("now", f"{self.now!r} is no time such as 2024-03-05T12:00:00Z")

    @property
    def moment(self) -> datetime | None:
        """The time that `now` names, of UTC where it names no zone."""
        return moment(self.now) or moment(f"{self.now}Z") or moment(f"{self.now}T00:00:00Z")


def run(run: Run, options: Options) -> None:
    """Keep the latest description of each topic, and make the catalogue of all."""
    kept = run.result("descriptions", catalogue.LATEST, ("project", "topic"))

    def handle(messages: DataFrame, batch_id: int) -> None:
        with parsed(messages, parse, catalogue.DESCRIPTION) as (described, broken):
            renew(kept, catalogue.latest(catalogue.placed(described)))
            run.quarantine(broken, batch_id)

    def refresh() -> None:
        now = options.moment or datetime.now(UTC)
        with persisted(kept.read()) as descriptions:
            sites = catalogue.sites(descriptions, now, options.stale_hours)
            items = {name: catalogue.items(descriptions, name) for name in catalogue.ITEMS}
            run.result("sites", catalogue.SITES).replace(sites)
            for name, rows in items.items():
                run.result(name, catalogue.ITEMS[name]).replace(rows)
            exported = catalogue.exported(sites, items, now, options.stale_hours)
            put(run.work / "results" / "catalogue.json", exported.decode())

    run.stream(run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages)), handle, refresh)


def renew(kept: Table, arrived: DataFrame) -> None:
    """Put descriptions in the place of those of their topics that are older."""
    with persisted(arrived) as new:
        before = kept.read().join(new.select("project", "topic"), ["project", "topic"], "left_semi")
        kept.replace(catalogue.latest(before.unionByName(new)))


JOB = Job("cloud-info", "A catalogue of clouds: which VO finds which images and sizes where", Options, run)
