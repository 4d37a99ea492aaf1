"""The job `cloud-info`: descriptions as the reference shows them, their shapes, and results."""

import json
import re
import tracemalloc
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pytest
from pyspark.sql import SparkSession

from ams.pipeline.errors import Broken, WrongOption
from ams.pipeline.jobs.cloud import ldif, parse
from ams.pipeline.jobs.cloud.job import CloudOptions, run
from ams.pipeline.jobs.cloud.parse import description
from ams.pipeline.jobs.fields import MAX_NAME
from demo.pipeline.samples import NONE, Mishaps
from demo.pipeline.samples.cloud import messages
from tests.pipeline.jobs.inputs_page import check_reason, rows
from tests.pipeline.jobs.recorded import Message, read_quarantine, recorded_run, rows_of, store_samples
from tests.support.memory import in_a_process


class Row(NamedTuple):
    form: str
    item: str
    attribute: str
    example: str
    result: str


ROWS = [
    Row(form, item, attribute, example, result)
    for forms, item, attribute, example, result in rows("cloud-info", "Attributes")
    for form in forms.split(", ")
]
LDIF = {
    "service": ("GLUE2ServiceID=c", "GLUE2Service GLUE2ComputingService", {}),
    "manager": ("GLUE2ManagerID=m", "GLUE2Manager GLUE2ComputingManager", {}),
    "store": ("GLUE2StorageServiceCapacityID=t", "GLUE2StorageServiceCapacity", {}),
    "endpoint": ("GLUE2EndpointID=e", "GLUE2Endpoint GLUE2ComputingEndpoint", {}),
    "share": ("GLUE2ShareID=s", "GLUE2Share GLUE2ComputingShare", {}),
    "policy": (
        "GLUE2PolicyID=p", "GLUE2Policy GLUE2MappingPolicy",
        {"GLUE2MappingPolicyShareForeignKey": "s", "GLUE2PolicyUserDomainForeignKey": "ops"},
    ),
    "image": ("GLUE2ApplicationEnvironmentID=i", "GLUE2ApplicationEnvironment", {}),
    "size": ("GLUE2ResourceID=z", "GLUE2Resource GLUE2ExecutionEnvironment", {}),
}  # fmt: skip
"""The name, the classes and the attributes of an object of each kind."""
LDIF_21 = {
    **LDIF, "service": ("GLUE2ServiceID=c", "GLUE2Service GLUE2CloudComputingService", {}),
    "manager": ("GLUE2ManagerID=m", "GLUE2Manager GLUE2CloudComputingManager", {}),
    "endpoint": ("GLUE2EndpointID=e", "GLUE2Endpoint GLUE2CloudComputingEndpoint", {}),
    "share": ("GLUE2ShareID=s", "GLUE2Share GLUE2CloudComputingShare", {}),
    "image": ("GLUE2CloudComputingImageID=i,GLUE2ShareID=s", "GLUE2CloudComputingImage", {}),
    "size": ("GLUE2ResourceID=z,GLUE2ShareID=s", "GLUE2Resource GLUE2CloudComputingInstanceType", {}),
}  # fmt: skip
ACCELERATOR = "CloudComputingVirtualAccelerator"
JSON: dict[str, dict[str, Any]] = {
    "CloudComputingService": {}, "CloudComputingManager": {}, "CloudComputingEndpoint": {"ID": "e"},
    "Share": {"ID": "s"}, "MappingPolicy": {"Associations": {"Share": ["s"], "PolicyUserDomain": ["ops"]}},
    "CloudComputingImage": {"ID": "i", "Associations": {"Share": ["s"]}},
    "CloudComputingInstanceType": {"ID": "z", "Associations": {"Share": ["s"], ACCELERATOR: ["a"]}},
    ACCELERATOR: {"ID": "a", "Number": 2},
}  # fmt: skip
CMDB: dict[str, dict[str, Any]] = {
    "provider": {}, "service": {"id": "e"}, "tenant": {"tenant_id": "s", "user_group": "ops"},
    "image": {"image_id": "i"}, "flavor": {"flavor_id": "z"},
}  # fmt: skip


def block(name: str, classes: str, attributes: dict[str, str]) -> str:
    lines = [f"dn: {attributes.get('dn', f'{name},o=glue')}", *(f"objectClass: {each}" for each in classes.split())]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in attributes.items() if key != "dn")])


def document(row: Row) -> bytes:
    if row.form in ("ldif", "ldif 2.1"):
        objects = LDIF if row.form == "ldif" else LDIF_21
        return "\n\n".join(
            block(name, classes, attributes | ({row.attribute: row.example} if kind == row.item else {}))
            for kind, (name, classes, attributes) in objects.items()
        ).encode()
    items = json.loads(json.dumps(JSON if row.form == "json" else CMDB))
    *above, last = re.split(r"(?<!\\)\.", row.attribute)
    inside = items.get(row.item, {})
    for each in above:
        inside = inside.setdefault(each, {})
    example: object = int(row.example) if row.example.isdecimal() else row.example
    inside[last.replace("\\.", ".")] = [example] if isinstance(inside.get(last), list) else example
    if row.form == "json":
        return json.dumps({kind: [item] for kind, item in items.items()}).encode()
    return json.dumps([{"type": kind, "data": item} for kind, item in items.items()]).encode()


def column(found: dict[str, Any], name: str) -> str | None:
    table, _, field = name.partition(".")
    value = found[table]
    if field:
        value = (value[0] if isinstance(value, list) else value)[field]
    return None if value is None else ", ".join(value) if isinstance(value, list) else str(value)


def path_of(row: Row) -> str:
    """Return a field's name in `not_taken`, and in the tables of the fields that are read."""
    if row.form.startswith("ldif"):
        return row.attribute.partition(";")[0].lower()
    return f"{row.item}.{row.attribute}".replace("\\.", ".")


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_what_a_provider_says_becomes_what_the_reference_shows(row: Row) -> None:
    if row.result.startswith("set aside: "):
        check_reason(description, document(row), row.result.removeprefix("set aside: "))
        return

    found = description(document(row))

    told = [each["name"] for each in found["not_taken"]]
    assert told == ([path_of(row)] if row.result.startswith("not taken: the rest") else [])
    if row.result.startswith("not taken: "):
        assert {**found, "not_taken": []} == description(document(row._replace(item="none")))
    elif row.result.startswith("no value of "):
        assert column(found, row.result.split("`")[1]) is None
    else:
        _, name, value = row.result.split("`")
        assert column(found, name) == value.strip()


@pytest.mark.parametrize(
    ("forms", "taken"), [("ldif ldif 2.1", ldif.TAKEN), ("json", parse.TAKEN), ("cmdb", parse.CMDB_TAKEN)]
)
def test_names_asked_for_have_a_row(forms: str, taken: frozenset[str]) -> None:
    told = [row for row in ROWS if row.form in forms and not row.result.startswith(("not taken", "set aside"))]
    assert taken == {path_of(row) for row in told} - {"dn"}


def not_taken_traced(message: bytes) -> tuple[list[tuple[int, int]], int]:
    """Return the lengths and counts of a message's unknown fields, and the peak memory of parsing in bytes."""
    tracemalloc.start()
    found = description(message)["not_taken"]
    return [(len(each["name"]), each["times"]) for each in found], tracemalloc.get_traced_memory()[1]


def test_an_unknown_field_is_told_by_the_beginning_of_its_path_and_takes_no_more_memory_than_that() -> None:
    deep: object = 1
    for _ in range(800):
        deep = {"k": deep}
    hostile = {"x" * 100_000: dict.fromkeys(map(str, range(5_000)), 1), "deep": deep}
    known = {"CloudComputingEndpoint": [{"ID": "e"}]}

    not_taken, peak = in_a_process(not_taken_traced, json.dumps({**known, **hostile}).encode())

    assert not_taken == [(MAX_NAME, 1), (MAX_NAME, 1)]
    assert peak < 10 * 2**20


@pytest.mark.parametrize(("lines", "result"), list(rows("cloud-info", "Forms of LDIF")))
def test_forms_of_ldif_are_read_as_the_reference_says(lines: str, result: str) -> None:
    share = "dn: GLUE2ShareID=s\nobjectClass: GLUE2Share\nGLUE2ShareDescription: one"
    base = f"{share}\n\ndn: GLUE2EndpointID=e\nobjectClass: GLUE2ComputingEndpoint\n"
    extra = lines.replace(" / ", "\n")

    for data in (f"{extra}\n\n{base}", f"{base}\n{extra}\n"):
        if result.startswith("set aside: "):
            with pytest.raises(Broken) as broken:
                description(data.encode())
            assert str(broken.value).replace("\\n", "") == result.removeprefix("set aside: ")
        else:
            assert description(data.encode()) == description(base.encode())


SAMPLE = b"""# a comment that goes
 on here
dn: GLUE2ServiceID=cloud,GLUE2GroupID=cloud,GLUE2DomainID=SITE-A,o=glue
objectClass: GLUE2Entity
objectClass: GLUE2ComputingService

dn: GLUE2ManagerID=manager,o=glue
objectClass: GLUE2ComputingManager
glue2computingmanagertotallogicalcpus: 64
GLUE2ComputingManagerWorkingAreaTotal: NULL

dn: GLUE2ShareID=one,o=glue
objectClass: GLUE2ComputingShare

dn: GLUE2PolicyID=p,o=glue
objectClass: GLUE2MappingPolicy
GLUE2MappingPolicyShareForeignKey: one
GLUE2PolicyRule: VO:biomed
GLUE2PolicyRule: VO:ops


dn: GLUE2ApplicationEnvironmentID=image-1,o=glue
objectClass: GLUE2ApplicationEnvironment
GLUE2ApplicationEnvironmentAppName:: w4lsZSBkZQ==
GLUE2ApplicationEnvironmentRepository: https://images.example.org/
 long/address
"""
NOTHING_DESCRIBED = "it describes nothing: no endpoint, share, image or size, and no capacity"


def read_description(data: bytes) -> dict[str, Any]:
    def drop_missing(value: Any) -> Any:
        if isinstance(value, list):
            return [drop_missing(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: drop_missing(each) for name, each in value.items() if each is not None}

    return dict(drop_missing(description(data)))


def test_ldif_with_folded_lines_base64_and_names_in_any_case() -> None:
    cloud = read_description(SAMPLE.replace(b"\n", b"\r\n"))

    assert (cloud["shape"], cloud["site"], cloud["capacity"]) == ("glue2-ldif", "SITE-A", {"cores": 64})
    assert cloud["shares"] == [{"id": "one", "vo": "biomed"}, {"id": "one", "vo": "ops"}]
    address = "https://images.example.org/long/address"
    assert cloud["images"] == [{"id": "image-1", "name": "Éle de", "marketplace": address, "vos": ["biomed", "ops"]}]


@pytest.mark.parametrize("text", [SAMPLE.decode(), '{"images":\n[{"image_id": "i"}]}'], ids=["ldif", "json"])
@pytest.mark.parametrize(
    ("end", "encoding"), [("\r", "utf-8"), ("\n", "utf-8-sig"), ("\n", "utf-16"), ("\n", "utf-32")]
)
def test_texts_are_read_by_their_mark_whatever_ends_lines(text: str, end: str, encoding: str) -> None:
    assert description(text.replace("\n", end).encode(encoding)) == description(text.encode())


def test_names_with_commas_are_whole() -> None:
    escaped = SAMPLE.replace(b"dn: GLUE2ShareID=one,", b"dn: GLUE2ShareID=one\\, \\C3\\A9\\2C two,")
    escaped = escaped.replace(b"ShareForeignKey: one", "ShareForeignKey: one, é, two".encode())
    assert [share["id"] for share in read_description(escaped)["shares"]] == ["one, é, two"] * 2


def test_an_object_that_comes_again_counts_once() -> None:
    again = SAMPLE + b"\ndn: glue2managerid=manager, o=glue\nobjectClass: GLUE2ComputingManager\n"
    again += b"GLUE2ComputingManagerTotalLogicalCPUs: 64\nGLUE2ComputingManagerWorkingAreaTotal: NULL\n"
    assert read_description(again) == read_description(SAMPLE)


def test_images_for_each_endpoint_of_a_share_are_the_same_images() -> None:
    image = (
        "dn: GLUE2CloudComputingImageID=i,GLUE2ShareID={share},o=glue\nobjectClass: GLUE2CloudComputingImage\n"
        "GLUE2EntityName: Debian\nGLUE2CloudComputingImageCloudComputingEndpointForeignKey: {endpoint}\n"
    )
    policy = (
        "dn: GLUE2PolicyID={share},o=glue\nobjectClass: GLUE2MappingPolicy\n"
        "GLUE2MappingPolicyShareForeignKey: {share}\nGLUE2PolicyRule: VO:{share}\n"
    )
    shares = [f"dn: GLUE2ShareID={each},o=glue\nobjectClass: GLUE2CloudComputingShare\n" for each in ("a", "b")]
    images = [image.format(share=each, endpoint=endpoint) for each in ("a", "b") for endpoint in ("native", "occi")]
    policies = [policy.format(share=each) for each in ("a", "b")]

    cloud = read_description("\n".join([*shares, *images, *policies]).encode())

    assert [(each["name"], each["vos"]) for each in cloud["images"]] == [("Debian", ["a"]), ("Debian", ["b"])]
    assert [(each["id"], each["vo"]) for each in cloud["shares"]] == [("a", "a"), ("b", "b")]


def test_the_same_cloud_in_three_shapes_is_the_same() -> None:
    samples = list(messages(1, date(2024, 3, 5), sites=3, images=50, hours=1, mishaps=NONE))
    told = [description(sample.data) for sample in samples]
    assert [cloud["shape"] for cloud in told] == ["glue2-ldif", "glue21-json", "cmdb-json"]
    assert [cloud["flavours"][1].get("accelerators") for cloud in told] == [None, None, 0]
    for cloud in told:
        small = cloud["flavours"][1]
        assert [small[name] for name in ("name", "cpus", "ram_mb", "disk_gb")] == ["small", 1, 2048, 20]
        assert {each["vo"] for each in cloud["shares"]} == {vo for each in cloud["flavours"] for vo in each["vos"]}
        assert all(image["marketplace"] and image["vos"] for image in cloud["images"])
        assert len(cloud["images"]) > 40
        assert cloud["endpoints"][0]["interface"] == "org.openstack.nova"
    pairs = [line.partition(": ")[::2] for line in samples[0].data.decode().splitlines()]
    of_lines = {name: [value for each, value in pairs if each == name] for name, _ in pairs}
    memory = sum(map(int, of_lines["GLUE2ExecutionEnvironmentMainMemorySize"]))
    assert sum(each["ram_mb"] for each in told[0]["flavours"]) == memory
    assert len(told[0]["images"]) == of_lines["objectClass"].count("GLUE2ApplicationEnvironment")
    assert told[0]["capacity"]["cores"] == sum(map(int, of_lines["GLUE2ComputingManagerTotalLogicalCPUs"]))


def test_one_association_may_stand_without_its_list() -> None:
    value = {
        "Share": [{"ID": "s", "ProjectID": "p"}],
        "MappingPolicy": [{"ID": "m", "Associations": {"Share": "s", "PolicyUserDomain": "ops"}}],
        "CloudComputingImage": [{"ID": "i", "Associations": {"Share": "s"}, "OSName": "debian", "OSVersion": "12"}],
    }

    cloud = read_description(json.dumps(value).encode())

    assert cloud["shares"] == [{"id": "s", "vo": "ops", "project": "p"}]
    assert cloud["images"] == [{"id": "i", "name": "i", "os": "debian 12", "vos": ["ops"]}]


def test_cmdb_with_images_only() -> None:
    value = {"images": [{"image_id": "i", "image_name": "Debian", "version": 12, "distribution": "debian"}]}
    [image] = read_description(json.dumps(value).encode())["images"]
    assert image == {"id": "i", "name": "Debian", "os": "debian 12", "vos": []}


@pytest.mark.parametrize(("data", "reason"), [
    (b"", "neither JSON nor LDIF: no block with a dn"),
    (b"hello\n", "a line is not `name: value`: 'hello'"),
    (b"dn: a=b\n\nobjectClass: GLUE2Entity\n", "a block has no dn: 'objectClass: GLUE2Entity\\n'"),
    (b"dn: a=b\nname:: !!\n", "name is not base64 of text"),
    ("dn: a=b\nname:: é\n".encode(), "name is not base64 of text"),
    (b"\xff", "neither JSON nor text in UTF-8"),
    (b"dn: a\n\n b: c\ndn: x\n", "a line is not `name: value`: ' b: c'"),
    (b"{}", "JSON that is neither GLUE 2.1 nor CMDB"),
    (b"[]", "a list without items"),
    (b'[{"type": "image", "data": []}]', "data of item 0 is not an object"),
    (b'{"Share": [{"Name": "x"}]}', "ID is missing"),
    (b'{"CloudComputingInstanceType": [{"ID": "x", "CPU": "many"}]}', "CPU is not a whole number: 'many'"),
    (
        b'{"CloudComputingManager": [{"TotalCores": 9223372036854775807}, {"TotalCores": 1}]}',
        "TotalCores adds up to more than can be",
    ),
    (b'{"CloudComputingImage": 1}', "CloudComputingImage is not a list"),
    (b'{"Share": []}', NOTHING_DESCRIBED),
    (b"dn: GLUE2DomainID=SITE-A,o=glue\nobjectClass: GLUE2AdminDomain\n", NOTHING_DESCRIBED),
    (b"dn: a=b\nx;binary:: !!\n", NOTHING_DESCRIBED),
])  # fmt: skip
def test_what_cannot_be_read_says_why(data: bytes, reason: str) -> None:
    check_reason(description, data, reason)


MISHAPS = Mishaps(late=0.2, doubled=0.2, broken=0.1)
SPOILT_PARTS = (b"no colon", b"hello", b"\xff", b",X=", b": X=", b'"Id"', b"_ie")
NOW = datetime(2024, 3, 6, 7, tzinfo=UTC)
OPTIONS = CloudOptions(now=NOW.isoformat())


@pytest.mark.long
def test_the_latest_description_of_each_site_counts_in_any_order(spark: SparkSession, tmp_path: Path) -> None:
    told = store_samples(messages(2, date(2024, 3, 5), sites=6, images=4, mishaps=MISHAPS), every=timedelta(minutes=10))
    shuffled = list(told)
    Random(1).shuffle(shuffled)
    one = recorded_run(spark, tmp_path / "one", told)
    two = recorded_run(spark, tmp_path / "two", shuffled[:90], [*shuffled[90:], *told[:50]])

    run(one, OPTIONS)
    run(two, OPTIONS)

    places = {(message["topic"], message["offset"]) for message in newest_of(told)}
    newest = latest_of(told)
    assert len(newest) == 6
    assert {row[:3]: row[3:] for row in sites(one)} == newest
    assert {stale for _, stale in newest.values()} == {False, True}
    for result in ("sites", "images", "flavours", "shares", "endpoints"):
        assert rows_of(one, result) == rows_of(two, result) != []
        assert set(rows_of(one, result, 'DISTINCT topic, "offset"')) == places
    assert catalogue_of(one) == catalogue_of(two)
    assert len(read_quarantine(one)) == sum(is_spoilt(message["data"]) for message in told) > 5
    [ops] = [place for place in catalogue_of(one)["vos"]["ops"] if place["site"] == "CLOUD-01"]
    assert (ops["endpoint_id"], ops["flavours"]) == ("1235G0", ["gpu", "large", "medium", "small", "tiny"])


def test_what_cannot_be_is_a_wrong_option() -> None:
    with pytest.raises(WrongOption, match="option now: 'noon' is no time"):
        CloudOptions(now="noon")
    with pytest.raises(WrongOption, match="option stale_hours"):
        CloudOptions(stale_hours=0)


def sites(job: Any) -> list[tuple[Any, ...]]:
    return rows_of(job, "sites", "topic, site, endpoint_id, images, stale")


def catalogue_of(job: Any) -> dict[str, Any]:
    value: dict[str, Any] = json.loads((job.work / "results" / "catalogue.json").read_bytes())
    return value


def latest_of(told: list[Message]) -> dict[tuple[str, str, str], tuple[int, bool]]:
    """Return for each topic, site and endpoint its newest description's count of images, and whether it is old."""
    found = {}
    for message in newest_of(told):
        _, site, _, endpoint = message["topic"].split("_")
        images = len(set(re.findall(rb"[0-9a-f]{8}-0f93-48da-b0eb-[0-9a-f]{12}", message["data"])))
        found[message["topic"], site, endpoint] = (images, message["publish_time"] < NOW - timedelta(hours=12))
    return found


def newest_of(told: list[Message]) -> list[Message]:
    good = [message for message in told if not is_spoilt(message["data"])]
    oldest_first = sorted(good, key=lambda each: (each["publish_time"], each["offset"]))
    return list({each["topic"]: each for each in oldest_first}.values())


def is_spoilt(data: bytes) -> bool:
    return not data.strip() or any(mark in data for mark in SPOILT_PARTS)
