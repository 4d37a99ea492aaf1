"""GLUE 2 as LDIF: blocks parted by blank lines, each an object by its classes, its attributes line by line.

Of LDIF (RFC 2849) is read what a description needs: comments, lines that go on after a blank, values in base64
(`name:: ...`), and attributes that stand there more than once. Names are case-insensitive, as in LDAP.
"""

import base64
from collections.abc import Iterator

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.cloud.description import Capacity, Description, Endpoint, Flavour, Image, Share, distinct
from ams.pipeline.jobs.fields import needed, shown, text, total, whole

Block = dict[str, list[str]]
"""The values of an object's attributes, by their names in small letters."""


def described(data: bytes) -> Description:
    """Read a description; raises `Broken`, naming the line or the field."""
    blocks = list(_blocks(data))
    vos = _vos_of_shares(blocks)
    everyone = distinct(vo for each in vos.values() for vo in each)
    return Description(
        shape="glue2-ldif",
        site=_site(blocks),
        capacity=_capacity(blocks),
        endpoints=tuple(_endpoint(block) for block in _of(blocks, "GLUE2ComputingEndpoint")),
        shares=tuple(_share(block, vo) for block in _shares(blocks) for vo in vos.get(_id_of_share(block), ())),
        images=tuple(_image(block, everyone) for block in _of(blocks, "GLUE2ApplicationEnvironment")),
        flavours=tuple(_flavour(block, everyone) for block in _of(blocks, "GLUE2ExecutionEnvironment")),
    )


def _blocks(data: bytes) -> Iterator[Block]:
    try:
        lines = data.decode().split("\n")
    except UnicodeDecodeError as error:
        raise Broken("neither JSON nor text in UTF-8") from error
    found = False
    block: Block = {}
    for number, line in [*_unfolded(lines), (len(lines), "")]:
        if line:
            name, value = _attribute(number, line)
            block.setdefault(name, []).append(value)
        elif block:
            if "dn" not in block:
                raise Broken(f"the block before line {number + 1} has no dn")
            found = True
            yield block
            block = {}
    if not found:
        raise Broken("neither JSON nor LDIF: no block with a dn")


def _unfolded(lines: list[str]) -> Iterator[tuple[int, str]]:
    """Yield lines with their numbers, comments left out, and those that begin with a blank added to the one before."""
    number, whole_line = 0, ""
    for place, line in enumerate(lines):
        if line.startswith(" ") and whole_line:
            whole_line += line[1:]
            continue
        if whole_line and not whole_line.startswith("#"):
            yield number, whole_line
        if not line.strip():
            yield place, ""
        number, whole_line = place, line.rstrip()
    if whole_line and not whole_line.startswith("#"):
        yield number, whole_line


def _attribute(number: int, line: str) -> tuple[str, str]:
    name, colon, value = line.partition(":")
    if not colon or not name or " " in name:
        raise Broken(f"line {number + 1} is not `name: value`: {shown(line)}")
    if not value.startswith(":"):
        return name.lower(), value.strip()
    try:
        return name.lower(), base64.b64decode(value[1:].strip(), validate=True).decode()
    except ValueError as error:
        raise Broken(f"line {number + 1} is not base64 of text") from error


def _of(blocks: list[Block], kind: str) -> list[Block]:
    return [block for block in blocks if kind.lower() in map(str.lower, block.get("objectclass", []))]


def _first(block: Block, name: str) -> str | None:
    return text({name: next(iter(block.get(name.lower(), [])), None)}, name)


def _number(block: Block, name: str) -> int | None:
    return whole({name: _first(block, name)}, name)


def _id(block: Block, name: str) -> str:
    """Return the id of an object: of its attribute, or of its name in the tree (`dn: NAME=ID,...`)."""
    named = _first(block, name) or _in_dn(block, name)
    return needed({name: named}, name)


def _in_dn(block: Block, name: str) -> str | None:
    for part in block["dn"][0].split(","):
        key, _, value = part.partition("=")
        if key.strip().lower() == name.lower():
            return value.strip()
    return None


def _other(block: Block, name: str) -> str | None:
    """Return a value of the form `name=value` among an object's other information."""
    for each in block.get("glue2entityotherinfo", []):
        key, _, value = each.partition("=")
        if key.strip().lower() == name.lower():
            return value.strip() or None
    return None


def _site(blocks: list[Block]) -> str | None:
    for block in blocks:
        site = _first(block, "GLUE2ServiceAdminDomainForeignKey") or _in_dn(block, "GLUE2DomainID")
        if site:
            return site
    return None


def _capacity(blocks: list[Block]) -> Capacity:
    managers = _of(blocks, "GLUE2ComputingManager")
    stores = _of(blocks, "GLUE2StorageServiceCapacity")
    return Capacity(
        cores=_sum(managers, "GLUE2ComputingManagerTotalLogicalCPUs"),
        ram_mb=_sum(managers, "GLUE2ComputingManagerWorkingAreaTotal"),
        storage_gb=_sum(stores, "GLUE2StorageServiceCapacityTotalSize"),
    )


def _sum(blocks: list[Block], name: str) -> int | None:
    return total((_number(block, name) for block in blocks), name)


def _shares(blocks: list[Block]) -> list[Block]:
    return [block for kind in ("GLUE2ComputingShare", "GLUE2CloudComputingShare") for block in _of(blocks, kind)]


def _id_of_share(block: Block) -> str:
    return _id(block, "GLUE2ShareID")


def _vos_of_shares(blocks: list[Block]) -> dict[str, tuple[str, ...]]:
    """Return the VOs of each share: a mapping policy says which share it is of, and which VO may use it."""
    found: dict[str, set[str]] = {}
    for policy in _of(blocks, "GLUE2MappingPolicy"):
        rules = [rule.removeprefix("VO:") for rule in policy.get("glue2policyrule", []) if rule.startswith("VO:")]
        share = _first(policy, "GLUE2MappingPolicyShareForeignKey")
        if share:
            found.setdefault(share, set()).update(rules or policy.get("glue2policyuserdomainforeignkey", []))
    return {share: distinct(vos) for share, vos in found.items()}


def _share(block: Block, vo: str) -> Share:
    return Share(
        id=_id_of_share(block),
        vo=vo,
        project=_other(block, "project_name") or _other(block, "ProjectID"),
        max_instances=_number(block, "GLUE2ComputingShareMaxRunningJobs"),
        instances=_number(block, "GLUE2ComputingShareTotalJobs"),
    )


def _endpoint(block: Block) -> Endpoint:
    return Endpoint(
        id=_id(block, "GLUE2EndpointID"),
        url=_first(block, "GLUE2EndpointURL"),
        interface=_first(block, "GLUE2EndpointInterfaceName"),
        interface_version=_first(block, "GLUE2EndpointInterfaceVersion"),
        implementation=_first(block, "GLUE2EndpointImplementationName"),
        implementation_version=_first(block, "GLUE2EndpointImplementationVersion"),
        authentication=_other(block, "Authn"),
        health=_first(block, "GLUE2EndpointHealthState"),
        serving=_first(block, "GLUE2EndpointServingState"),
    )


def _image(block: Block, vos: tuple[str, ...]) -> Image:
    """Read an image; LDIF ties it to the service and not to a share, so every VO of the service may use it."""
    name = _id(block, "GLUE2ApplicationEnvironmentID")
    return Image(
        id=name,
        name=_first(block, "GLUE2ApplicationEnvironmentAppName") or _first(block, "GLUE2EntityName") or name,
        version=_first(block, "GLUE2ApplicationEnvironmentAppVersion"),
        os=_other(block, "os"),
        marketplace=_first(block, "GLUE2ApplicationEnvironmentRepository"),
        vos=vos,
    )


def _flavour(block: Block, vos: tuple[str, ...]) -> Flavour:
    name = _id(block, "GLUE2ResourceID")
    return Flavour(
        id=name,
        name=_first(block, "GLUE2EntityName") or name,
        cpus=_number(block, "GLUE2ExecutionEnvironmentLogicalCPUs"),
        ram_mb=_number(block, "GLUE2ExecutionEnvironmentMainMemorySize"),
        disk_gb=whole({"disk": _other(block, "disk")}, "disk"),
        vos=vos,
    )
