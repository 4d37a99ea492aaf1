"""Reading descriptions of clouds in their three shapes."""

import json
from datetime import date
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.cloud.parse import described, parse
from demo.pipeline.samples.cloud import messages
from demo.pipeline.samples.mishaps import NONE

LDIF = b"""# a comment that goes
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
NOTHING = "it describes nothing: no endpoint, share, image or size, and no capacity"


def read(data: bytes) -> dict[str, Any]:
    """Read a description, without what is null in it."""

    def known(value: Any) -> Any:
        if isinstance(value, list):
            return [known(each) for each in value]
        if not isinstance(value, dict):
            return value
        return {name: known(each) for name, each in value.items() if each is not None}

    return dict(known(described(data)))


def test_ldif_with_folded_lines_base64_and_names_in_any_case() -> None:
    cloud = read(LDIF.replace(b"\n", b"\r\n"))

    assert (cloud["shape"], cloud["site"], cloud["capacity"]) == ("glue2-ldif", "SITE-A", {"cores": 64})
    assert cloud["shares"] == [{"id": "one", "vo": "biomed"}, {"id": "one", "vo": "ops"}]
    address = "https://images.example.org/long/address"
    assert cloud["images"] == [{"id": "image-1", "name": "Éle de", "marketplace": address, "vos": ["biomed", "ops"]}]


@pytest.mark.parametrize("text", [LDIF.decode(), '{"images":\n[{"image_id": "i"}]}'], ids=["ldif", "json"])
@pytest.mark.parametrize(
    ("end", "encoding"), [("\r", "utf-8"), ("\n", "utf-8-sig"), ("\n", "utf-16"), ("\n", "utf-32")]
)
def test_texts_are_read_by_their_mark_whatever_ends_lines(text: str, end: str, encoding: str) -> None:
    assert described(text.replace("\n", end).encode(encoding)) == described(text.encode())


def test_names_with_commas_are_whole() -> None:
    escaped = LDIF.replace(b"dn: GLUE2ShareID=one,", b"dn: GLUE2ShareID=one\\, \\C3\\A9\\2C two,")
    escaped = escaped.replace(b"ShareForeignKey: one", "ShareForeignKey: one, é, two".encode())

    assert [share["id"] for share in read(escaped)["shares"]] == ["one, é, two"] * 2


def test_an_object_that_comes_again_counts_once() -> None:
    again = LDIF + b"\ndn: glue2managerid=manager, o=glue\nobjectClass: GLUE2ComputingManager\n"
    again += b"GLUE2ComputingManagerTotalLogicalCPUs: 64\nGLUE2ComputingManagerWorkingAreaTotal: NULL\n"

    assert read(again) == read(LDIF)


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

    cloud = read("\n".join([*shares, *images, *policies]).encode())

    assert [(each["name"], each["vos"]) for each in cloud["images"]] == [("Debian", ["a"]), ("Debian", ["b"])]
    assert [(each["id"], each["vo"]) for each in cloud["shares"]] == [("a", "a"), ("b", "b")]


def test_totals_of_ldif_are_what_its_lines_say() -> None:
    [sample] = messages(1, date(2024, 3, 5), sites=1, images=50, hours=1, mishaps=NONE)
    lines = sample.data.decode().splitlines()

    def said(name: str) -> list[str]:
        return [line.partition(": ")[2] for line in lines if line.startswith(f"{name}: ")]

    cloud = described(sample.data)
    memory = map(int, said("GLUE2ExecutionEnvironmentMainMemorySize"))

    assert len(cloud["images"]) == said("objectClass").count("GLUE2ApplicationEnvironment")
    assert sum(each["ram_mb"] for each in cloud["flavours"]) == sum(memory)
    assert cloud["capacity"]["cores"] == sum(map(int, said("GLUE2ComputingManagerTotalLogicalCPUs")))
    assert {each["name"] for each in cloud["images"]} == set(said("GLUE2ApplicationEnvironmentAppName"))


def test_the_same_cloud_in_three_shapes_is_the_same() -> None:
    samples = messages(1, date(2024, 3, 5), sites=3, images=50, hours=1, mishaps=NONE)
    told = [described(sample.data) for sample in samples]
    assert [cloud["shape"] for cloud in told] == ["glue2-ldif", "glue21-json", "cmdb-json"]
    assert [cloud["flavours"][1].get("accelerators") for cloud in told] == [None, None, 0]
    for cloud in told:
        small = cloud["flavours"][1]
        assert [small[name] for name in ("name", "cpus", "ram_mb", "disk_gb")] == ["small", 1, 2048, 20]
        assert {each["vo"] for each in cloud["shares"]} == {vo for each in cloud["flavours"] for vo in each["vos"]}
        assert all(image["marketplace"] and image["vos"] for image in cloud["images"])
        assert len(cloud["images"]) > 40
        assert cloud["endpoints"][0]["interface"] == "org.openstack.nova"


def test_one_association_may_stand_without_its_list() -> None:
    value = {
        "Share": [{"ID": "s", "ProjectID": "p"}],
        "MappingPolicy": [{"ID": "m", "Associations": {"Share": "s", "PolicyUserDomain": "ops"}}],
        "CloudComputingImage": [{"ID": "i", "Associations": {"Share": "s"}, "OSName": "debian", "OSVersion": "12"}],
    }

    cloud = read(json.dumps(value).encode())

    assert cloud["shares"] == [{"id": "s", "vo": "ops", "project": "p"}]
    assert cloud["images"] == [{"id": "i", "name": "i", "os": "debian 12", "vos": ["ops"]}]


def test_cmdb_with_images_only() -> None:
    value = {"images": [{"image_id": "i", "image_name": "Debian", "version": 12, "distribution": "debian"}]}

    [image] = read(json.dumps(value).encode())["images"]
    assert image == {"id": "i", "name": "Debian", "os": "debian 12", "vos": []}


@pytest.mark.parametrize(
    ("data", "reason"),
    [
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
        (b'{"Share": []}', NOTHING),
        (b"dn: GLUE2DomainID=SITE-A,o=glue\nobjectClass: GLUE2AdminDomain\n", NOTHING),
        (b"dn: a=b\nx;binary:: !!\n", NOTHING),
    ],
)
def test_what_cannot_be_read_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(Broken) as broken:
        described(data)

    assert str(broken.value) == reason


KINDS = ["Share", "MappingPolicy", "CloudComputingImage", "CloudComputingEndpoint", "images"]
JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda v: (
        st.lists(v, max_size=2)
        | st.dictionaries(st.sampled_from(["ID", "Name", "Associations", "Share", "OtherInfo", "Rule"]), v)
    ),
)


@given(st.dictionaries(st.sampled_from(KINDS), JSON, min_size=1) | st.lists(JSON))
def test_any_json_is_read_or_broken(value: Any) -> None:
    read_or_broken(json.dumps(value).encode())


@given(st.lists(st.sampled_from(LDIF.splitlines(keepends=True)) | st.binary(max_size=9)).map(b"".join))
def test_any_lines_are_read_or_broken(data: bytes) -> None:
    read_or_broken(data)


def read_or_broken(data: bytes) -> None:
    try:
        [row] = parse(data, {})
    except Broken as error:
        assert len(str(error)) < 120
    else:
        assert row["shape"] in ("glue2-ldif", "glue21-json", "cmdb-json")
