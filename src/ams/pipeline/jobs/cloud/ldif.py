"""GLUE 2 as LDIF: blocks parted by blank lines, each an object by its classes, its attributes line by line.

Of LDIF (RFC 2849) is read what a description needs: comments, lines that go on after a blank, values in base64
(`name:: ...`), options of names (`name;lang-en`), and attributes that stand there more than once. Names are
case-insensitive, as in LDAP. Objects are those of GLUE 2.0 and of GLUE 2.1, whose classes begin with `GLUE2Cloud`.
"""

import base64
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from ams.pipeline.errors import Broken
from ams.pipeline.jobs import fields
from ams.pipeline.jobs.fields import Names, Record, first, join, names, names_in, needed, text, total, whole

ENDPOINT = names(
    needed="id=GLUE2EndpointID",
    text="url=GLUE2EndpointURL interface=GLUE2EndpointInterfaceName interface_version=GLUE2EndpointInterfaceVersion"
    " implementation=GLUE2EndpointImplementationName implementation_version=GLUE2EndpointImplementationVersion"
    " health=GLUE2EndpointHealthState serving=GLUE2EndpointServingState"
    " authentication=Authn|GLUE2EndpointAuthentication",
)
SHARE = names(
    needed="id=GLUE2ShareID",
    text="project=project_name|ProjectID|GLUE2CloudComputingShareProjectID|Project",
    whole="max_instances=GLUE2ComputingShareMaxRunningJobs|GLUE2CloudComputingShareMaxVM"
    " instances=GLUE2ComputingShareTotalJobs|GLUE2CloudComputingShareTotalVM"
    " max_cpus=GLUE2CloudComputingShareInstanceMaxCPU max_ram_mb=GLUE2CloudComputingShareInstanceMaxRAM",
)
IMAGE = names(
    needed="id=GLUE2ApplicationEnvironmentID",
    text="name=GLUE2ApplicationEnvironmentAppName|GLUE2EntityName|GLUE2ApplicationEnvironmentID os=os"
    " version=GLUE2ApplicationEnvironmentAppVersion marketplace=GLUE2ApplicationEnvironmentRepository",
)
CLOUD_IMAGE = names(
    needed="id=GLUE2CloudComputingImageID",
    text="name=GLUE2EntityName|GLUE2CloudComputingImageID version=GLUE2CloudComputingImageVersion"
    " marketplace=GLUE2CloudComputingImageMarketPlaceURL|GLUE2CloudComputingImageMarketPlaceID"
    " platform=GLUE2CloudComputingImageOSPlatform",
)
FLAVOUR = names(
    needed="id=GLUE2ResourceID",
    text="name=GLUE2EntityName|GLUE2ResourceID",
    whole="cpus=GLUE2ExecutionEnvironmentLogicalCPUs ram_mb=GLUE2ExecutionEnvironmentMainMemorySize disk_gb=disk",
)
CLOUD_FLAVOUR = names(
    needed="id=GLUE2ResourceID",
    text="name=GLUE2EntityName|GLUE2ResourceID",
    whole="cpus=GLUE2CloudComputingInstanceTypeCPU|GLUE2CloudComputingInstanceTypevCPU"
    " ram_mb=GLUE2CloudComputingInstanceTypeRAM disk_gb=GLUE2CloudComputingInstanceTypeDisk",
)
TABLES: Final = (ENDPOINT, SHARE, IMAGE, CLOUD_IMAGE, FLAVOUR, CLOUD_FLAVOUR)
KEYS: Final = frozenset(name for table in TABLES for name in table["id"][0])  # may stand in the dn alone
OTHER_INFO: Final = frozenset({"Authn", "project_name", "ProjectID", "os", "disk"})  # names within GLUE2EntityOtherInfo
OTHERS: Final = frozenset(
    {
        *("dn", "objectclass", "project", "description", "o", "cn", "ou"),
        *("createtimestamp", "modifytimestamp", "creatorsname", "modifiersname", "structuralobjectclass"),
        *("entrydn", "entryuuid", "entrycsn", "hassubordinates", "subschemasubentry"),
    }
)  # attributes that objects of GLUE 2 may have beside those of GLUE 2, mostly of directories themselves
TAKEN: Final = frozenset(  # attributes that are read, in lower case; `description` drops and names all others
    name.lower()
    for name in (
        *(name for name in names_in(*TABLES) if name not in OTHER_INFO),
        *("GLUE2EntityOtherInfo", "GLUE2ServiceAdminDomainForeignKey", "GLUE2MappingPolicyShareForeignKey"),
        *("GLUE2ComputingManagerTotalLogicalCPUs", "GLUE2CloudComputingManagerTotalCPUs"),
        *("GLUE2ComputingManagerWorkingAreaTotal", "GLUE2CloudComputingManagerTotalRAM"),
        *("GLUE2StorageServiceCapacityTotalSize", "GLUE2PolicyRule", "GLUE2PolicyUserDomainForeignKey"),
        *("GLUE2CloudComputingImageOSName", "GLUE2CloudComputingImageOSVersion"),
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
    blocks = _blocks(data)
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
    said = (name for block in blocks for name in block)
    return {
        "shape": "glue2-ldif",
        "site": next(filter(None, sites), None),
        "capacity": {
            "cores": _sum(managers, "GLUE2ComputingManagerTotalLogicalCPUs", "GLUE2CloudComputingManagerTotalCPUs"),
            "ram_mb": _sum(managers, "GLUE2ComputingManagerWorkingAreaTotal", "GLUE2CloudComputingManagerTotalRAM"),
            "storage_gb": _sum(stores, "GLUE2StorageServiceCapacityTotalSize"),
        },
        "endpoints": [_read(block, ENDPOINT) for block in endpoints],
        "shares": [{**_read(block, SHARE), "vo": vo} for block in shares for vo in vos.get(_share_id(block), ())],
        # Without links of its own an item belongs to the service, so every VO of the service may use it.
        "images": [
            *({**_read(block, IMAGE), "vos": everyone} for block in _of(blocks, "GLUE2ApplicationEnvironment")),
            *(_cloud_image(block, vos) for block in _of(blocks, "GLUE2CloudComputingImage")),
        ],
        "flavours": [
            *({**_read(block, FLAVOUR), "vos": everyone} for block in _of(blocks, "GLUE2ExecutionEnvironment")),
            *(
                {**_read(block, CLOUD_FLAVOUR), "vos": _users(block, vos, "GLUE2CloudComputingInstanceType")}
                for block in _of(blocks, "GLUE2CloudComputingInstanceType")
            ),
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
        lines = re.sub("\r\n?", "\n", fields.in_utf8(data).decode())
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
                raise Broken(f"unknown attribute {fields.abbreviate(unknown[0])}")
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
            raise Broken(f"one dn stands there twice, with other attributes: {fields.abbreviate(block['dn'][0])}")


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
        raise Broken(f"a block has no dn: {fields.abbreviate(lines)}")
    for result in block.get("result", []):
        if result.split(" ")[0] != "0":
            raise Broken(f"the search that made it failed: {fields.abbreviate(result)}")
    if block.get("version", ["1"]) != ["1"]:
        raise Broken(f"LDIF of version {fields.abbreviate(block['version'][0])}; 1 is read")


def _attribute(line: str) -> tuple[str, list[str], str]:
    description, colon, value = line.partition(":")
    name, *options = description.lower().split(";")
    if not colon or not name or " " in description:
        raise Broken(f"a line is not `name: value`: {fields.abbreviate(line)}")
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
    def unescape(match: re.Match[str]) -> str:
        return bytes.fromhex(match[1].replace("\\", "")).decode("utf-8", "replace") if match[1] else match[2]

    for part in _PART.findall(dn):
        for each in _PLUS.split(part):
            key, _, value = each.strip().partition("=")
            yield key.strip(), _ESCAPE.sub(unescape, value.strip())


def _of(blocks: list[Block], *kinds: str) -> list[Block]:
    wanted = {kind.lower() for kind in kinds}
    return [block for block in blocks if not wanted.isdisjoint(map(str.lower, block.get("objectclass", [])))]


def _first(block: Block, name: str) -> str | None:
    found = text({name: next(iter(block.get(name.lower(), [])), None)}, name)
    return None if found == UNKNOWN else found


def _read(block: Block, table: Names) -> Record:
    """Return the columns of a table. All attributes in it must be readable; the first with a value counts."""

    def values(attributes: Iterable[str], reader: Callable[[Record, str], Any]) -> list[Any]:
        return [reader({name: _value_of(block, name)}, name) for name in attributes]

    return {column: first(values(*told)) for column, told in table.items()}


def _value_of(block: Block, name: str) -> str | None:
    if name in OTHER_INFO:
        return _value(block.get("glue2entityotherinfo", []), name)
    return _first(block, name) or (_in_dn(block, name) if name in KEYS else None)


def _share_id(block: Block) -> str:
    return needed({"GLUE2ShareID": _value_of(block, "GLUE2ShareID")}, "GLUE2ShareID")


def _in_dn(block: Block, name: str) -> str | None:
    return _value([f"{key}={value}" for key, value in _parts(block["dn"][0])], name)


def _value(pairs: list[str], name: str) -> str | None:
    for each in pairs:
        key, _, value = each.partition("=")
        if key.strip().lower() == name.lower():
            return value.strip() or None
    return None


def _sum(blocks: list[Block], *names: str) -> int | None:
    return total((whole({name: _first(block, name)}, name) for block in blocks for name in names), names[0])


def _cloud_image(block: Block, vos: Vos) -> Record:
    system = join(" ", *(_first(block, f"GLUE2CloudComputingImageOS{part}") for part in ("Name", "Version")))
    return {**_read(block, CLOUD_IMAGE), "os": system, "vos": _users(block, vos, "GLUE2CloudComputingImage")}


def _users(block: Block, vos: Vos, kind: str) -> list[str]:
    """Return the VOs of an item's shares, or of the share above it in the tree."""
    key = f"{kind}CloudComputingShareForeignKey"
    below = _in_dn(block, "GLUE2ShareID")
    shares = block.get(key.lower()) or ([below] if below else [])
    return sorted({vo for share in shares for vo in vos.get(share, ())})
