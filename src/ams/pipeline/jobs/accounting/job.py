"""The job `accounting`: usage records from AMS to monthly summaries.

Every record is kept, by kind and month; results are computed from them for the months that something came for, and
replace what stood there. So a record that comes twice, late or out of turn changes nothing but what it should.
"""

import os
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from ams.pipeline.jobs.accounting import columns, database, summaries
from ams.pipeline.jobs.accounting.envelope import Trust
from ams.pipeline.jobs.accounting.reader import Reader
from ams.pipeline.jobs.base import Job
from ams.pipeline.parsing import parsed
from ams.pipeline.postgres import VARIABLE
from ams.pipeline.running import Run
from ams.pipeline.tables import Table
from ams.storage.files import Disk, write_whole

MARK = "accounting.batch"
"""The file in the work folder with the last batch that results were computed of."""


class Options(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What can be said to the job."""

    topics: tuple[str, ...] = ("gLite-APEL", "eu-egi-cloud-accounting", "eu-egi-storage-accounting")
    """The topics usage records come in; any kind may come in any of them."""
    ca: str = ""
    """A PEM file or a folder of them: authorities that a signer's certificate must come from; without it a signature
    is checked, but anyone's."""
    key: str = ""
    """A PEM file with the RSA key that senders encrypt for; without it encrypted messages are set aside."""
    certificate: str = ""
    """A PEM file with the certificate of `key`."""
    signed_only: bool = False
    """Whether messages without a signature are set aside."""
    batch_messages: Annotated[int, msgspec.Meta(ge=1)] = 1000
    """Messages a batch at most; each may hold a thousand records."""
    database: str = ""
    """`postgresql://USER@HOST:PORT/DATABASE` without a password, where results go too; empty takes
    `AMS_PIPELINE_DATABASE`, and where that is not set either they stay in files."""


def run(run: Run, options: Options) -> None:
    """Read what came, keep it, and bring the months it is of up to date."""
    # Tasks may work in another folder than we do.
    trust = Trust(*(each and os.path.abspath(each) for each in (options.ca, options.key, options.certificate)))
    trust.check()
    reader = Reader(trust, options.signed_only)
    to = database.prepared(options.database) if options.database or VARIABLE in os.environ else ""
    results = Results(run, to)

    def handle(batch: DataFrame, batch_id: int) -> None:
        with parsed(batch, reader, columns.RECORD) as (records, broken):
            run.append(results.records, records, batch_id)
            run.quarantine(broken, batch_id)

    messages = run.topic(*options.topics, maxOffsetsPerTrigger=str(options.batch_messages))
    run.stream(messages, handle, results.refresh)


JOB = Job("accounting", "Usage records of jobs, machines and storage, to monthly summaries", Options, run)


@dataclass(frozen=True, slots=True)
class Results:
    """The tables of a run, and how results follow from records."""

    run: Run
    database: str
    """Where results go as well; empty: nowhere."""

    @property
    def records(self) -> Table:
        """All records, by kind and month."""
        return self.run.table("records", columns.RECORDS, ("kind", "month"))

    def refresh(self) -> None:
        """Compute anew the months that records came for since the last time."""
        last, touched = self.records.batch(), self._touched()
        if months := touched["job"]:
            self._replace("job_summaries", summaries.job_summaries(self._records("job", months)))
        if months := touched["job_summary"]:
            self._replace("site_summaries", summaries.site_summaries(self._records("job_summary", months)))
        if months := touched["vm_summary"]:
            self._replace("site_vm_summaries", summaries.site_vm_summaries(self._records("vm_summary", months)))
        if months := touched["storage"]:
            self._replace("storage_summaries", summaries.storage_summaries(self._records("storage", months)))
        if months := touched["job"] | touched["job_summary"] | touched["sync"]:
            told = self._records("sync", months)
            partitions = [{"month": month} for month in sorted(months)]
            came = (self._result(name).read(partitions) for name in ("job_summaries", "site_summaries"))
            self._replace("sync", summaries.comparison(told, *came))
        if months := touched["vm"]:
            self._replace("machines", summaries.machines(self._records("vm", months)))
            # What a machine used in a month depends on the months before: all from the first one touched follow.
            usage = summaries.usage(self._result("machines").read()).where(F.col("month") >= min(months))
            self._replace("vm_summaries", summaries.vm_summaries(usage))
        write_whole(Disk(), str(self._mark), str(last).encode())

    def _touched(self) -> Mapping[str, set[str]]:
        """Return the months of each kind that records came for since the last time."""
        since = int(self._mark.read_text()) if self._mark.exists() else -1
        found = defaultdict[str, set[str]](set)
        for each in self.records.partitions_since(since):
            found[str(each["kind"])].add(str(each["month"]))
        return found

    def _records(self, kind: str, months: Iterable[str]) -> DataFrame:
        return self.records.read([{"kind": kind, "month": month} for month in sorted(months)])

    def _result(self, name: str) -> Table:
        return self.run.result(name, columns.RESULTS[name], ("month",))

    def _replace(self, name: str, frame: DataFrame) -> None:
        if not self.database or name not in database.TABLES:
            self._result(name).replace(frame)
            return
        frame = frame.persist()
        try:
            self._result(name).replace(frame)
            database.replace(frame, self.database, name)
        finally:
            frame.unpersist()

    @property
    def _mark(self) -> Path:
        return self.run.work / MARK
