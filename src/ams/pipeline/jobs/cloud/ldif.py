"""GLUE 2 as LDIF: blocks parted by blank lines, each an object by its classes, its attributes line by line.

Of LDIF (RFC 2849) is read what a description needs: comments, lines that go on after a blank, values in base64
(`name:: ...`), and attributes that stand there more than once. Names are case-insensitive, as in LDAP.
"""

import base64
import re
from typing import Final

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.cloud.reading import by_share
from ams.pipeline.jobs.fields import Names, Record, names, needed, read, shown, text, total, whole

ENDPOINT: Final = names(
    text="url=GLUE2EndpointURL interface=GLUE2EndpointInterfaceName interface_version=GLUE2EndpointInterfaceVersion"
    " implementation=GLUE2EndpointImplementationName implementation_version=GLUE2EndpointImplementationVersion"
    " health=GLUE2EndpointHealthState serving=GLUE2EndpointServingState",
)
SHARE: Final = names(whole="max_instances=GLUE2ComputingShareMaxRunningJobs instances=GLUE2ComputingShareTotalJobs")
IMAGE: Final = names(
    text="version=GLUE2ApplicationEnvironmentAppVersion marketplace=GLUE2ApplicationEnvironmentRepository"
)
FLAVOUR: Final = names(whole="cpus=GLUE2ExecutionEnvironmentLogicalCPUs ram_mb=GLUE2ExecutionEnvironmentMainMemorySize")

Block = dict[str, list[str]]
"""The values of an object's attributes, by their names in small letters."""


def described(data: bytes) -> Record:
    """Read a description; raises `Broken`, naming the line or the field."""
    blocks = _blocks(data)
    vos = by_share(
        (share, policy.get("glue2policyrule", []), policy.get("glue2policyuserdomainforeignkey", []))
        for policy in _of(blocks, "GLUE2MappingPolicy")
        if (share := _first(policy, "GLUE2MappingPolicyShareForeignKey"))
    )
    everyone = sorted({vo for each in vos.values() for vo in each})
    shares = [block for kind in ("GLUE2ComputingShare", "GLUE2CloudComputingShare") for block in _of(blocks, kind)]
    managers, stores = (_of(blocks, kind) for kind in ("GLUE2ComputingManager", "GLUE2StorageServiceCapacity"))
    return {
        "shape": "glue2-ldif",
        "site": _site(blocks),
        "capacity": {
            "cores": _sum(managers, "GLUE2ComputingManagerTotalLogicalCPUs"),
            "ram_mb": _sum(managers, "GLUE2ComputingManagerWorkingAreaTotal"),
            "storage_gb": _sum(stores, "GLUE2StorageServiceCapacityTotalSize"),
        },
        "endpoints": [_endpoint(block) for block in _of(blocks, "GLUE2ComputingEndpoint")],
        "shares": [_share(block, vo) for block in shares for vo in vos.get(_id(block, "GLUE2ShareID"), ())],
        "images": [_image(block, everyone) for block in _of(blocks, "GLUE2ApplicationEnvironment")],
        "flavours": [_flavour(block, everyone) for block in _of(blocks, "GLUE2ExecutionEnvironment")],
    }


def _blocks(data: bytes) -> list[Block]:
    try:
        unfolded = re.sub("(?<=[^\n])\n ", "", data.decode().replace("\r\n", "\n"))
    except UnicodeDecodeError as error:
        raise Broken("neither JSON nor text in UTF-8") from error
    blocks = []
    for lines in re.split(r"\n\s*\n", unfolded):
        block: Block = {}
        for line in lines.split("\n"):
            if line.strip() and not line.startswith("#"):
                name, value = _attribute(line)
                block.setdefault(name, []).append(value)
        if block and "dn" not in block:
            raise Broken(f"a block has no dn: {shown(lines)}")
        blocks += [block] if block else []
    if not blocks:
        raise Broken("neither JSON nor LDIF: no block with a dn")
    return blocks


def _attribute(line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or " " in name:
        raise Broken(f"a line is not `name: value`: {shown(line)}")
    if not value.startswith(":"):
        return name.lower(), value.strip()
    try:
        return name.lower(), base64.b64decode(value[1:].strip(), validate=True).decode()
    except ValueError as error:
        raise Broken(f"{name[:40]} is not base64 of text") from error


def _of(blocks: list[Block], kind: str) -> list[Block]:
    return [block for block in blocks if kind.lower() in map(str.lower, block.get("objectclass", []))]


def _first(block: Block, name: str) -> str | None:
    return text({name: next(iter(block.get(name.lower(), [])), None)}, name)


def _read(block: Block, names: Names) -> Record:
    return read({name: _first(block, name) for name, _ in names.values()}, names)


def _id(block: Block, name: str) -> str:
    """Return the id of an object: of its attribute, or of its name in the tree (`dn: NAME=ID,...`)."""
    return needed({name: _first(block, name) or _in_dn(block, name)}, name)


def _in_dn(block: Block, name: str) -> str | None:
    return _value(block["dn"][0].split(","), name)


def _other(block: Block, name: str) -> str | None:
    """Return a value of the form `name=value` among an object's other information."""
    return _value(block.get("glue2entityotherinfo", []), name)


def _value(pairs: list[str], name: str) -> str | None:
    """Return the value of the first of several `name=value`."""
    for each in pairs:
        key, _, value = each.partition("=")
        if key.strip().lower() == name.lower():
            return value.strip() or None
    return None


def _site(blocks: list[Block]) -> str | None:
    names = (_first(block, "GLUE2ServiceAdminDomainForeignKey") or _in_dn(block, "GLUE2DomainID") for block in blocks)
    return next(filter(None, names), None)


def _sum(blocks: list[Block], name: str) -> int | None:
    return total((whole({name: _first(block, name)}, name) for block in blocks), name)


def _share(block: Block, vo: str) -> Record:
    project = _other(block, "project_name") or _other(block, "ProjectID")
    return {"id": _id(block, "GLUE2ShareID"), "vo": vo, "project": project, **_read(block, SHARE)}


def _endpoint(block: Block) -> Record:
    return {"id": _id(block, "GLUE2EndpointID"), "authentication": _other(block, "Authn"), **_read(block, ENDPOINT)}


def _image(block: Block, vos: list[str]) -> Record:
    """Read an image; LDIF ties it to the service and not to a share, so every VO of the service may use it."""
    found = _id(block, "GLUE2ApplicationEnvironmentID")
    name = _first(block, "GLUE2ApplicationEnvironmentAppName") or _first(block, "GLUE2EntityName") or found
    return {"id": found, "name": name, "os": _other(block, "os"), "vos": vos, **_read(block, IMAGE)}


def _flavour(block: Block, vos: list[str]) -> Record:
    found = _id(block, "GLUE2ResourceID")
    disk = whole({"disk": _other(block, "disk")}, "disk")
    name = _first(block, "GLUE2EntityName") or found
    return {"id": found, "name": name, "disk_gb": disk, "vos": vos, **_read(block, FLAVOUR)}
