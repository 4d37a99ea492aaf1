"""GLUE 2 as LDIF: blocks parted by blank lines, each an object by its classes, its attributes line by line.

Of LDIF (RFC 2849) is read what a description needs: comments, lines that go on after a blank, values in base64
(`name:: ...`), options of names (`name;lang-en`), and attributes that stand there more than once. Names are
case-insensitive, as in LDAP. Objects are those of GLUE 2.0 and of GLUE 2.1, whose classes begin with `GLUE2Cloud`.
"""

import base64
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from ams.pipeline.errors import Broken
from ams.pipeline.jobs.fields import Names, Record, abbreviate, in_utf8, join, names, needed, read, text, total, whole

ENDPOINT = names(
    text="url=GLUE2EndpointURL interface=GLUE2EndpointInterfaceName interface_version=GLUE2EndpointInterfaceVersion"
    " implementation=GLUE2EndpointImplementationName implementation_version=GLUE2EndpointImplementationVersion"
    " health=GLUE2EndpointHealthState serving=GLUE2EndpointServingState"
)
SHARE = names(whole="max_instances=GLUE2ComputingShareMaxRunningJobs instances=GLUE2ComputingShareTotalJobs")
CLOUD_SHARE = names(
    whole="max_instances=GLUE2CloudComputingShareMaxVM instances=GLUE2CloudComputingShareTotalVM"
    " max_cpus=GLUE2CloudComputingShareInstanceMaxCPU max_ram_mb=GLUE2CloudComputingShareInstanceMaxRAM"
)
IMAGE = names(text="version=GLUE2ApplicationEnvironmentAppVersion marketplace=GLUE2ApplicationEnvironmentRepository")
CLOUD_IMAGE = names(
    text="version=GLUE2CloudComputingImageVersion marketplace=GLUE2CloudComputingImageMarketPlaceURL"
    " platform=GLUE2CloudComputingImageOSPlatform"
)
FLAVOUR = names(whole="cpus=GLUE2ExecutionEnvironmentLogicalCPUs ram_mb=GLUE2ExecutionEnvironmentMainMemorySize")
CLOUD_FLAVOUR = names(
    whole="cpus=GLUE2CloudComputingInstanceTypeCPU ram_mb=GLUE2CloudComputingInstanceTypeRAM"
    " disk_gb=GLUE2CloudComputingInstanceTypeDisk"
)
EARLIER_IMAGE = names(text="marketplace=GLUE2CloudComputingImageMarketPlaceID")
EARLIER_FLAVOUR = names(whole="cpus=GLUE2CloudComputingInstanceTypevCPU")  # names of attributes in drafts of GLUE 2.1
OTHERS: Final = frozenset(
    {
        *("dn", "objectclass", "project", "description", "o", "cn", "ou"),
        *("createtimestamp", "modifytimestamp", "creatorsname", "modifiersname", "structuralobjectclass"),
        *("entrydn", "entryuuid", "entrycsn", "hassubordinates", "subschemasubentry"),
    }
)
"""Attributes that objects of GLUE 2 may have beside those of GLUE 2, mostly of directories themselves."""
TAKEN: Final = frozenset(  # attributes that are read, in lower case; `description` drops and names all others
    name.lower()
    for name in (
        *(name for table in (ENDPOINT, SHARE, CLOUD_SHARE, IMAGE, CLOUD_IMAGE) for name, _ in table.values()),
        *(name for table in (FLAVOUR, CLOUD_FLAVOUR, EARLIER_IMAGE, EARLIER_FLAVOUR) for name, _ in table.values()),
        *("GLUE2EntityName", "GLUE2EntityOtherInfo", "GLUE2ServiceAdminDomainForeignKey", "Project"),
        *("GLUE2ComputingManagerTotalLogicalCPUs", "GLUE2CloudComputingManagerTotalCPUs"),
        *("GLUE2ComputingManagerWorkingAreaTotal", "GLUE2CloudComputingManagerTotalRAM"),
        *("GLUE2StorageServiceCapacityTotalSize", "GLUE2EndpointID", "GLUE2EndpointAuthentication"),
        *("GLUE2ShareID", "GLUE2CloudComputingShareProjectID", "GLUE2MappingPolicyShareForeignKey"),
        *("GLUE2PolicyRule", "GLUE2PolicyUserDomainForeignKey"),
        *("GLUE2ApplicationEnvironmentID", "GLUE2ApplicationEnvironmentAppName", "GLUE2CloudComputingImageID"),
        *("GLUE2CloudComputingImageOSName", "GLUE2CloudComputingImageOSVersion", "GLUE2ResourceID"),
        "GLUE2CloudComputingImageCloudComputingShareForeignKey",
        "GLUE2CloudComputingInstanceTypeCloudComputingShareForeignKey",
    )
)
UNKNOWN: Final = "UNKNOWN"  # a provider's word for unknown values
REMARKS: Final = frozenset({"version", "search", "result", "ref", "text", "matcheddn", "control", "pagedresults"})

_PART: Final = re.compile(r"(?:\\.|[^\\,])+", re.DOTALL)
_PLUS: Final = re.compile(r"(?<!\\)\+(?=[A-Za-z0-9-]+=)")
_ESCAPE: Final = re.compile(r"((?:\\[0-9A-Fa-f]{2})+)|\\(.)", re.DOTALL)

Block = dict[str, list[str]]  # values by attribute, in lower case
Vos = Mapping[str, list[str]]  # the VOs that may use each share


def description(data: bytes) -> Record:
    """Read a description; raises `Broken`, naming the line or the field."""
    whole_blocks = _blocks(data)
    blocks = [{name: block[name] for name in block.keys() & (TAKEN | OTHERS)} for block in whole_blocks]
    vos = vos_by_share(
        (share, policy.get("glue2policyrule", []), policy.get("glue2policyuserdomainforeignkey", []))
        for policy in _of(blocks, "GLUE2MappingPolicy")
        if (share := _first(policy, "GLUE2MappingPolicyShareForeignKey"))
    )
    sites = (_first(each, "GLUE2ServiceAdminDomainForeignKey") or _in_dn(each, "GLUE2DomainID") for each in blocks)
    everyone = sorted({vo for each in vos.values() for vo in each})
    shares = _of(blocks, "GLUE2ComputingShare", "GLUE2CloudComputingShare")
    managers = _of(blocks, "GLUE2ComputingManager", "GLUE2CloudComputingManager")
    stores = _of(blocks, "GLUE2StorageServiceCapacity")
    endpoints = _of(blocks, "GLUE2ComputingEndpoint", "GLUE2CloudComputingEndpoint")
    said = (name for block in whole_blocks for name in block)
    return {
        "shape": "glue2-ldif",
        "site": next(filter(None, sites), None),
        "capacity": {
            "cores": _sum(managers, "GLUE2ComputingManagerTotalLogicalCPUs", "GLUE2CloudComputingManagerTotalCPUs"),
            "ram_mb": _sum(managers, "GLUE2ComputingManagerWorkingAreaTotal", "GLUE2CloudComputingManagerTotalRAM"),
            "storage_gb": _sum(stores, "GLUE2StorageServiceCapacityTotalSize"),
        },
        "endpoints": [_endpoint(block) for block in endpoints],
        "shares": [_share(block, vo) for block in shares for vo in vos.get(_id(block, "GLUE2ShareID"), ())],
        "images": [
            *(_image(block, everyone) for block in _of(blocks, "GLUE2ApplicationEnvironment")),
            *(_cloud_image(block, vos) for block in _of(blocks, "GLUE2CloudComputingImage")),
        ],
        "flavours": [
            *(_flavour(block, everyone) for block in _of(blocks, "GLUE2ExecutionEnvironment")),
            *(_cloud_flavour(block, vos) for block in _of(blocks, "GLUE2CloudComputingInstanceType")),
        ],
        "not_taken": [name for name in said if name.startswith("glue2") and name not in TAKEN],
    }


def vos_by_share(policies: Iterable[tuple[str, Iterable[str], Iterable[str]]]) -> Vos:
    """Return the VOs by share, of policies: share, rules such as `VO:biomed`, and domains if no rule has a VO."""
    found: dict[str, set[str]] = {}
    for share, rules, domains in policies:
        ruled = [name for kind, _, name in (rule.partition(":") for rule in rules) if kind.upper() == "VO" and name]
        found.setdefault(share, set()).update(ruled or domains)
    return {share: sorted(vos) for share, vos in found.items()}


def _blocks(data: bytes) -> list[Block]:
    try:
        lines = re.sub("\r\n?", "\n", in_utf8(data).decode())
    except UnicodeDecodeError as error:
        raise Broken("neither JSON nor text in UTF-8") from error
    found: dict[tuple[tuple[str, str], ...], Block] = {}
    for part in re.split(r"\n\s*\n", re.sub("(?<=[^\n])\n ", "", lines)):
        block = _block(part)
        if "dn" not in block:
            _pass_over(block, part)
            continue
        if any(each.lower().startswith("glue2") for each in block.get("objectclass", [])):
            unknown = [name for name in block if name not in OTHERS and not name.startswith("glue2")]
            if unknown:
                raise Broken(f"unknown attribute {abbreviate(unknown[0])}")
        name = tuple((key.lower(), value) for key, value in _parts(block["dn"][0]))
        _join(found.setdefault(name, block), block)
    if not found:
        raise Broken("neither JSON nor LDIF: no block with a dn")
    return list(found.values())


def _join(block: Block, again: Block) -> None:
    """Merge a repeated object; providers repeat it for each endpoint. Only foreign keys may differ."""
    for name in block.keys() | again.keys():
        before, now = block.get(name, []), again.get(name, [])
        if name.endswith("foreignkey"):
            block[name] = [*before, *(each for each in now if each not in before)]
        elif name != "dn" and sorted(before) != sorted(now):
            raise Broken(f"one dn stands there twice, with other attributes: {abbreviate(block['dn'][0])}")


def _block(lines: str) -> Block:
    """Parse a block; values without attribute options come first."""
    attributes = [_attribute(line) for line in lines.split("\n") if line.strip() and not line.startswith("#")]
    block: Block = {}
    for name, options, value in sorted(attributes, key=lambda each: bool(each[1])):
        if "binary" not in options:
            block.setdefault(name, []).append(value)
    return block


def _pass_over(block: Block, lines: str) -> None:
    """Raise `Broken` unless a block without dn is a comment of a successful search."""
    if block.keys() - REMARKS:
        raise Broken(f"a block has no dn: {abbreviate(lines)}")
    for result in block.get("result", []):
        if result.split(" ")[0] != "0":
            raise Broken(f"the search that made it failed: {abbreviate(result)}")
    if block.get("version", ["1"]) != ["1"]:
        raise Broken(f"LDIF of version {abbreviate(block['version'][0])}; 1 is read")


def _attribute(line: str) -> tuple[str, list[str], str]:
    description, colon, value = line.partition(":")
    name, *options = description.lower().split(";")
    if not colon or not name or " " in description:
        raise Broken(f"a line is not `name: value`: {abbreviate(line)}")
    if name == "changetype":
        raise Broken("it is a change of a directory, and no description")
    if value.startswith("<"):
        raise Broken(f"{name[:40]} stands in a file, which is not read")
    if not value.startswith(":"):
        return name, options, value.strip()
    try:
        return name, options, base64.b64decode(value[1:].strip(), validate=True).decode()
    except ValueError as error:
        if "binary" in options:
            return name, options, ""
        raise Broken(f"{name[:40]} is not base64 of text") from error


def _parts(dn: str) -> Iterator[tuple[str, str]]:
    for part in _PART.findall(dn):
        for each in _PLUS.split(part):
            key, _, value = each.strip().partition("=")
            yield key.strip(), _ESCAPE.sub(_unescape, value.strip())


def _unescape(match: re.Match[str]) -> str:
    return bytes.fromhex(match[1].replace("\\", "")).decode("utf-8", "replace") if match[1] else match[2]


def _of(blocks: list[Block], *kinds: str) -> list[Block]:
    wanted = {kind.lower() for kind in kinds}
    return [block for block in blocks if not wanted.isdisjoint(map(str.lower, block.get("objectclass", [])))]


def _first(block: Block, name: str) -> str | None:
    found = text({name: next(iter(block.get(name.lower(), [])), None)}, name)
    return None if found == UNKNOWN else found


def _read_columns(block: Block, *tables: Names) -> Record:
    """Return the columns of the tables; the first value of a column wins."""
    found: Record = {}
    for table in tables:
        said = read({name: _first(block, name) for name, _ in table.values()}, table)
        found |= {column: value for column, value in said.items() if found.get(column) is None}
    return found


def _id(block: Block, name: str) -> str:
    return needed({name: _first(block, name) or _in_dn(block, name)}, name)


def _in_dn(block: Block, name: str) -> str | None:
    return _value([f"{key}={value}" for key, value in _parts(block["dn"][0])], name)


def _other(block: Block, name: str) -> str | None:
    return _value(block.get("glue2entityotherinfo", []), name)


def _value(pairs: list[str], name: str) -> str | None:
    for each in pairs:
        key, _, value = each.partition("=")
        if key.strip().lower() == name.lower():
            return value.strip() or None
    return None


def _sum(blocks: list[Block], *names: str) -> int | None:
    return total((whole({name: _first(block, name)}, name) for block in blocks for name in names), names[0])


def _share(block: Block, vo: str) -> Record:
    project = _other(block, "project_name") or _other(block, "ProjectID")
    project = project or _first(block, "GLUE2CloudComputingShareProjectID") or _first(block, "Project")
    return {"id": _id(block, "GLUE2ShareID"), "vo": vo, "project": project, **_read_columns(block, SHARE, CLOUD_SHARE)}


def _endpoint(block: Block) -> Record:
    authentication = _other(block, "Authn") or _first(block, "GLUE2EndpointAuthentication")
    return {"id": _id(block, "GLUE2EndpointID"), "authentication": authentication, **_read_columns(block, ENDPOINT)}


def _image(block: Block, vos: list[str]) -> Record:
    """Read an image. In LDIF it belongs to the service, so every VO of the service may use it."""
    found = _id(block, "GLUE2ApplicationEnvironmentID")
    name = _first(block, "GLUE2ApplicationEnvironmentAppName") or _first(block, "GLUE2EntityName") or found
    return {"id": found, "name": name, "os": _other(block, "os"), "vos": vos, **_read_columns(block, IMAGE)}


def _flavour(block: Block, vos: list[str]) -> Record:
    found = _id(block, "GLUE2ResourceID")
    disk = whole({"disk": _other(block, "disk")}, "disk")
    name = _first(block, "GLUE2EntityName") or found
    return {"id": found, "name": name, "disk_gb": disk, "vos": vos, **_read_columns(block, FLAVOUR)}


def _cloud_image(block: Block, vos: Vos) -> Record:
    found = _id(block, "GLUE2CloudComputingImageID")
    parts = (_first(block, f"GLUE2CloudComputingImageOS{part}") for part in ("Name", "Version"))
    name, users = _first(block, "GLUE2EntityName") or found, _users(block, vos, "GLUE2CloudComputingImage")
    own = _read_columns(block, CLOUD_IMAGE, EARLIER_IMAGE)
    return {"id": found, "name": name, "os": join(" ", *parts), "vos": users, **own}


def _cloud_flavour(block: Block, vos: Vos) -> Record:
    found = _id(block, "GLUE2ResourceID")
    name, users = _first(block, "GLUE2EntityName") or found, _users(block, vos, "GLUE2CloudComputingInstanceType")
    return {"id": found, "name": name, "vos": users, **_read_columns(block, CLOUD_FLAVOUR, EARLIER_FLAVOUR)}


def _users(block: Block, vos: Vos, kind: str) -> list[str]:
    """Return the VOs of an item's shares, or of the share above it in the tree."""
    key = f"{kind}CloudComputingShareForeignKey"
    below = _in_dn(block, "GLUE2ShareID")
    shares = block.get(key.lower()) or ([below] if below else [])
    return sorted({vo for share in shares for vo in vos.get(share, ())})
