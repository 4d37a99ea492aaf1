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


def test_the_same_cloud_in_three_shapes_is_the_same() -> None:
    told = [
        described(sample.data) for sample in messages(1, date(2024, 3, 5), sites=3, images=50, hours=1, mishaps=NONE)
    ]

    assert [cloud["shape"] for cloud in told] == ["glue2-ldif", "glue21-json", "cmdb-json"]
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
