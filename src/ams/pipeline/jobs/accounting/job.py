"""The job `accounting`: usage records from AMS to monthly summaries.

Every record is kept, by kind and month; results are computed from them for the months that something came for, and
replace what stood there. So a record that comes twice, late or out of turn changes nothing but what it should.
"""

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from ams.pipeline.jobs.accounting import columns, compute, database, machines, storage, sync
from ams.pipeline.jobs.accounting.envelope import Trust
from ams.pipeline.jobs.accounting.reader import Reader
from ams.pipeline.jobs.base import Job
from ams.pipeline.parsing import rows_of, split
from ams.pipeline.postgres import VARIABLE
from ams.pipeline.running import Run
from ams.pipeline.tables import Result, Table

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
    database: str = ""
    """`postgresql://USER@HOST:PORT/DATABASE` without a password, where results go too; empty takes
    `AMS_PIPELINE_DATABASE`, and where that is not set either they stay in files."""


def run(run: Run, options: Options) -> None:
    """Read what came, keep it, and bring the months it is of up to date."""
    trust = Trust(ca=options.ca, key=options.key, certificate=options.certificate)
    trust.check()
    reader = Reader(trust, options.signed_only)
    to = database.prepared(options.database) if options.database or VARIABLE in os.environ else ""
    results = Results(run, to)

    def handle(batch: DataFrame, batch_id: int) -> None:
        rows = rows_of(batch, reader, columns.RECORD).persist()
        try:
            parsed = split(rows, columns.RECORD)
            run.append(results.records, parsed.records, batch_id)
            run.quarantine(parsed.broken, batch_id)
        finally:
            rows.unpersist()

    run.stream(run.topic(*options.topics), handle, results.refresh)


JOB = Job(
    name="accounting",
    summary="usage records of jobs, machines and storage, to monthly summaries",
    options=Options,
    run=run,
)


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
        last = max((folder.batch for folder in self.records.folders()), default=-1)
        touched = _months(self.records.partitions_since(self._mark()))
        if jobs := touched["job"] | touched["job_summary"] | touched["sync"]:
            self._refresh_jobs(jobs)
        if vms := touched["vm"]:
            self._refresh_machines(vms)
        if vm_summaries := touched["vm_summary"]:
            frame = machines.site_vm_summaries(self._records("vm_summary", vm_summaries))
            self._replace("site_vm_summaries", columns.VM_SUMMARIES, frame)
        if storages := touched["storage"]:
            frame = storage.storage_summaries(storage.storage_days(self._records("storage", storages)))
            self._replace("storage_summaries", columns.STORAGE_SUMMARIES, frame)
        self._set_mark(last)

    def _refresh_jobs(self, months: set[str]) -> None:
        jobs = compute.jobs(self._records("job", months))
        by_us = self._replace("job_summaries", columns.JOB_SUMMARIES, compute.job_summaries(jobs))
        of_sites = compute.site_summaries(self._records("job_summary", months))
        by_them = self._replace("site_summaries", columns.JOB_SUMMARIES, of_sites)
        told = self._records("sync", months)
        compared = sync.comparison(told, _of(by_us.read(), months), _of(by_them.read(), months))
        self._replace("sync", columns.SYNC, compared)

    def _refresh_machines(self, months: set[str]) -> None:
        latest = machines.machines(self._records("vm", months))
        kept = self._replace("machines", columns.VM_KEPT, latest)
        # What a machine used in a month depends on the months before: all from the first one touched follow.
        usage = machines.usage(kept.read()).where(F.col("month") >= min(months))
        self._replace("vm_summaries", columns.VM_SUMMARIES, machines.vm_summaries(usage))

    def _records(self, kind: str, months: Iterable[str]) -> DataFrame:
        return self.records.read([{"kind": kind, "month": month} for month in sorted(months)])

    def _replace(self, name: str, schema: StructType, frame: DataFrame) -> Result:
        result = self.run.result(name, schema, ("month",))
        if not self.database or name not in database.TABLES:
            result.replace(frame)
            return result
        frame = frame.persist()
        try:
            result.replace(frame)
            database.replace(frame, self.database, name)
        finally:
            frame.unpersist()
        return result

    def _mark(self) -> int:
        path = self._mark_path()
        return int(path.read_text()) if path.exists() else -1

    def _set_mark(self, batch: int) -> None:
        path = self._mark_path()
        beside = path.with_suffix(".new")
        beside.write_text(str(batch))
        beside.replace(path)

    def _mark_path(self) -> Path:
        return self.run.work / MARK


def _of(frame: DataFrame, months: Iterable[str]) -> DataFrame:
    return frame.where(F.col("month").isin(sorted(months)))


def _months(partitions: Iterable[Mapping[str, str | None]]) -> Mapping[str, set[str]]:
    """Return the months of each kind."""
    found: dict[str, set[str]] = {kind: set() for kind in ("job", "job_summary", "sync", "vm", "vm_summary", "storage")}
    for each in partitions:
        found.setdefault(str(each["kind"]), set()).add(str(each["month"]))
    return found
