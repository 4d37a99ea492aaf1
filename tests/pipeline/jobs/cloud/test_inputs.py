"""What providers write of clouds, row by row as the reference shows it."""

import json
import re
from collections.abc import Iterator
from typing import Any, ClassVar, NamedTuple

import pytest

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.cloud import ldif, parse
from ams.pipeline.jobs.cloud.parse import described
from tests.pipeline.jobs.inputs_page import rows


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
        "GLUE2PolicyID=p",
        "GLUE2Policy GLUE2MappingPolicy",
        {"GLUE2MappingPolicyShareForeignKey": "s", "GLUE2PolicyUserDomainForeignKey": "ops"},
    ),
    "image": ("GLUE2ApplicationEnvironmentID=i", "GLUE2ApplicationEnvironment", {}),
    "size": ("GLUE2ResourceID=z", "GLUE2Resource GLUE2ExecutionEnvironment", {}),
}
"""The name, the classes and the attributes of an object of each kind."""
LDIF_21 = {
    **LDIF,
    "service": ("GLUE2ServiceID=c", "GLUE2Service GLUE2CloudComputingService", {}),
    "manager": ("GLUE2ManagerID=m", "GLUE2Manager GLUE2CloudComputingManager", {}),
    "endpoint": ("GLUE2EndpointID=e", "GLUE2Endpoint GLUE2CloudComputingEndpoint", {}),
    "share": ("GLUE2ShareID=s", "GLUE2Share GLUE2CloudComputingShare", {}),
    "image": ("GLUE2CloudComputingImageID=i,GLUE2ShareID=s", "GLUE2CloudComputingImage", {}),
    "size": ("GLUE2ResourceID=z,GLUE2ShareID=s", "GLUE2Resource GLUE2CloudComputingInstanceType", {}),
}
ACCELERATOR = "CloudComputingVirtualAccelerator"
JSON: dict[str, dict[str, Any]] = {
    "CloudComputingService": {},
    "CloudComputingManager": {},
    "CloudComputingEndpoint": {"ID": "e"},
    "Share": {"ID": "s"},
    "MappingPolicy": {"Associations": {"Share": ["s"], "PolicyUserDomain": ["ops"]}},
    "CloudComputingImage": {"ID": "i", "Associations": {"Share": ["s"]}},
    "CloudComputingInstanceType": {"ID": "z", "Associations": {"Share": ["s"], ACCELERATOR: ["a"]}},
    ACCELERATOR: {"ID": "a", "Number": 2},
}
CMDB: dict[str, dict[str, Any]] = {
    "provider": {},
    "service": {"id": "e"},
    "tenant": {"tenant_id": "s", "user_group": "ops"},
    "image": {"image_id": "i"},
    "flavor": {"flavor_id": "z"},
}


def block(name: str, classes: str, attributes: dict[str, str]) -> str:
    lines = [f"dn: {attributes.get('dn', f'{name},o=glue')}", *(f"objectClass: {each}" for each in classes.split())]
    return "\n".join([*lines, *(f"{key}: {value}" for key, value in attributes.items() if key != "dn")])


def document(row: Row) -> bytes:
    """Return a description with one item of each kind, of which one says what the row says."""
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


@pytest.mark.parametrize("row", ROWS, ids=" ".join)
def test_what_a_provider_says_becomes_what_the_reference_shows(row: Row) -> None:
    if row.result.startswith("set aside: "):
        with pytest.raises(Broken) as broken:
            described(document(row))
        assert str(broken.value) == row.result.removeprefix("set aside: ")
        return

    found = described(document(row))

    if row.result.startswith("not taken: "):
        assert found == described(document(row._replace(item="none")))
    elif row.result.startswith("no value of "):
        assert column(found, row.result.split("`")[1]) is None
    else:
        _, name, value = row.result.split("`")
        assert column(found, name) == value.strip()


@pytest.mark.parametrize(("lines", "result"), list(rows("cloud-info", "Forms of LDIF")))
def test_forms_of_ldif_are_read_as_the_reference_says(lines: str, result: str) -> None:
    share = "dn: GLUE2ShareID=s\nobjectClass: GLUE2Share\nGLUE2ShareDescription: one"
    base = f"{share}\n\ndn: GLUE2EndpointID=e\nobjectClass: GLUE2ComputingEndpoint\n"
    extra = lines.replace(" / ", "\n")

    for data in (f"{extra}\n\n{base}", f"{base}\n{extra}\n"):
        if result.startswith("set aside: "):
            with pytest.raises(Broken) as broken:
                described(data.encode())
            assert str(broken.value).replace("\\n", "") == result.removeprefix("set aside: ")
        else:
            assert described(data.encode()) == described(base.encode())


class Asked(dict[str, Any]):
    """A value that notes, in small letters, which names are asked of it."""

    names: ClassVar[set[str]] = set()

    def get(self, key: str, default: Any = None) -> Any:
        self.names.add(key.lower())
        return super().get(key, default)

    def __getitem__(self, key: str) -> Any:
        self.names.add(key.lower())
        return super().__getitem__(key)


def asked(value: Any) -> Any:
    if isinstance(value, list):
        return [asked(each) for each in value]
    return Asked({name: asked(each) for name, each in value.items()}) if isinstance(value, dict) else value


def taken(forms: tuple[str, ...]) -> Iterator[str]:
    for row in ROWS:
        if row.form in forms and not row.result.startswith(("not taken", "set aside")):
            names = re.split(r"(?<!\\)\.", row.attribute.partition(";")[0])
            yield from (each.replace("\\.", ".").lower() for each in names)


@pytest.mark.parametrize(
    ("forms", "others"),
    [
        (("ldif", "ldif 2.1"), {*ldif.REMARKS, "glue2sharedescription", "objectclass", "dn", "entryuuid"}),
        (("json",), {*map(str.lower, JSON), "images"}),
        (("cmdb",), {"type", "data", "properties", "images"}),
    ],
    ids=["ldif", "json", "cmdb"],
)
def test_names_asked_for_have_a_row(forms: tuple[str, ...], others: set[str], monkeypatch: pytest.MonkeyPatch) -> None:
    block, json_value = ldif._block, parse.json_value
    monkeypatch.setattr(ldif, "_block", lambda lines: Asked(block(lines)))
    monkeypatch.setattr(parse, "json_value", lambda data: asked(json_value(data)))
    monkeypatch.setattr(Asked, "names", set())

    for row in ROWS:
        if row.form in forms and not row.result.startswith("set aside"):
            described(document(row))

    assert Asked.names - others == set(taken(forms)) - others
