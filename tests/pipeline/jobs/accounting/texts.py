"""Usage records as sites write them, small enough to read."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

NOW = datetime(2024, 4, 1, tzinfo=UTC)  # the time the records of these tests are read at

JOB: Mapping[str, str] = {
    "Site": "SITE-A", "SubmitHost": "ce01.site-a.example:9619/htcondor", "MachineName": "wn001", "Queue": "grid",
    "LocalJobId": "1001", "LocalUserId": "atlas001", "GlobalUserName": "/DC=org/DC=example/CN=Robot 17",
    "FQAN": "/atlas/Role=production/Capability=NULL", "WallDuration": "3600", "CpuDuration": "3000",
    "Processors": "1", "NodeCount": "1", "StartTime": "1709630000", "EndTime": "1709634000",
    "InfrastructureDescription": "APEL-HTCONDOR", "InfrastructureType": "grid", "MemoryReal": "1000",
    "MemoryVirtual": "NULL", "ServiceLevelType": "hepspec", "ServiceLevel": "11.4",
}  # fmt: skip

VM: Mapping[str, str] = {
    "RecordCreateTime": "1709634000", "VMUUID": "0c6f5d1e-5f3a-4c8e-9a2b-1f2e3d4c5b6a", "SiteName": "SITE-B",
    "Status": "started", "StartTime": "1709600000", "EndTime": "0", "WallDuration": "34000", "CpuDuration": "68000",
    "NetworkType": "None", "StorageRecordId": "",
}  # fmt: skip

SYNC: Mapping[str, str] = {
    "Site": "SITE-A", "SubmitHost": "ce01.site-a.example:9619/htcondor", "NumberOfJobs": "7", "Month": "3",
    "Year": "2024",
}  # fmt: skip

SUMMARY: Mapping[str, str] = {
    "Site": "SITE-A", "Month": "3", "Year": "2024", "VO": "atlas", "SubmitHost": "arc.site-a.example",
    "WallDuration": "1000", "CpuDuration": "900", "NumberOfJobs": "5", "ServiceLevelType": "hepspec",
    "ServiceLevel": "10", "EarliestEndTime": "1709634000", "LatestEndTime": "1709640000",
}  # fmt: skip

ADDRESS: Mapping[str, Any] = {
    "SiteName": "SITE-B", "uuid": "a1", "FQAN": "vo.access.egi.eu", "IPVersion": 4, "IPCount": 3,
    "MeasurementTime": 1709634000,
}  # fmt: skip
ACCELERATOR: Mapping[str, Any] = {
    "SiteName": "SITE-B", "AssociatedRecord": "0c6f5d1e", "Type": "GPU", "Count": 0.5, "AvailableDuration": 3600,
    "MeasurementMonth": 3, "MeasurementYear": 2024, "FQAN": "vo.access.egi.eu",
}  # fmt: skip
ENERGY: Mapping[str, Any] = {
    "ExecUnitID": "job-1", "StartExecTime": "2024-03-05T09:00:00Z", "EndExecTime": "2024-03-05T10:00:00Z",
    "EnergyWh": 12.5, "ExecUnitFinished": 1, "SiteName": "SITE-B",
}  # fmt: skip

INDIVIDUAL = "APEL-individual-job-message: v0.3"
CLOUD = "APEL-cloud-message: v0.4"

STAR = """<?xml version="1.0" encoding="UTF-8"?>
<sr:StorageUsageRecords xmlns:sr="http://eu-emi.eu/namespaces/2011/02/storagerecord">
  <sr:StorageUsageRecord>
    <sr:RecordIdentity sr:createTime="2024-03-05T23:50:00Z" sr:recordId="se.site-a.example-1"/>
    <sr:StorageSystem>se.site-a.example</sr:StorageSystem><sr:Site>SITE-A</sr:Site>
    <sr:StorageShare>pool-1</sr:StorageShare><sr:FileCount>42</sr:FileCount>
    <sr:SubjectIdentity>
      <sr:Group>biomed</sr:Group><sr:GroupAttribute sr:attributeType="subgroup">/biomed/neuro</sr:GroupAttribute>
      <sr:GroupAttribute sr:attributeType="role">production</sr:GroupAttribute>
    </sr:SubjectIdentity>
    <sr:StartTime>2024-03-05T00:00:00Z</sr:StartTime><sr:EndTime>2024-03-05T23:45:00Z</sr:EndTime>
    <sr:ResourceCapacityUsed>14728000000</sr:ResourceCapacityUsed>
  </sr:StorageUsageRecord>
  <sr:StorageUsageRecord>
    <sr:StorageSystem>se.site-a.example</sr:StorageSystem>
  </sr:StorageUsageRecord>
</sr:StorageUsageRecords>
"""

CAR = """<urf:UsageRecords xmlns:urf="http://eu-emi.eu/namespaces/2012/11/computerecord">
  <urf:UsageRecord>
    <urf:JobIdentity><urf:LocalJobId>1001</urf:LocalJobId></urf:JobIdentity>
    <urf:UserIdentity>
      <urf:GlobalUserName>/DC=org/DC=example/CN=Robot 17</urf:GlobalUserName>
      <urf:LocalUserId>atlas001</urf:LocalUserId><urf:Group>atlas</urf:Group>
      <urf:GroupAttribute urf:type="FQAN">/atlas/Role=production/Capability=NULL</urf:GroupAttribute>
    </urf:UserIdentity>
    <urf:WallDuration>PT3600S</urf:WallDuration>
    <urf:CpuDuration urf:usageType="user">PT2900S</urf:CpuDuration>
    <urf:CpuDuration urf:usageType="all">PT3000S</urf:CpuDuration>
    <urf:StartTime>2024-03-05T09:13:20Z</urf:StartTime><urf:EndTime>2024-03-05T10:20:00Z</urf:EndTime>
    <urf:SubmitHost>ce01.site-a.example:9619/htcondor</urf:SubmitHost><urf:Site>SITE-A</urf:Site>
    <urf:Processors>1</urf:Processors><urf:NodeCount>1</urf:NodeCount>
    <urf:Infrastructure urf:type="grid" urf:description="APEL-HTCONDOR"/>
    <urf:ServiceLevel urf:type="hepspec">11.4</urf:ServiceLevel>
  </urf:UsageRecord>
</urf:UsageRecords>
"""


def text(first: str, *records: Mapping[str, str | None]) -> str:
    blocks = ("".join(f"{key}: {value}\n" for key, value in each.items() if value is not None) for each in records)
    return f"{first}\n" + "".join(f"{block}%%\n" for block in blocks)
