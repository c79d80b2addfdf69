"""Assembles a wheel from members that are compressed already: WheelPack.

    wheel_pack.py --deflate DIR --spec SPEC.json --members LIST --wheel OUT --manifest OUT.json

SPEC.json holds what the rule knows (distribution, version, tag, CUDA version, CPU, family, SM targets, files); LIST
names, a word a line, each module: name, member, what wheel_member.py says of it, what module_check.py measured.

The wheel's layout is the binary distribution format (packaging.python.org, "Binary distribution format"; PEP 427,
PEP 376 for RECORD, PEP 639 for license files).
"""

from __future__ import annotations

import argparse
import base64
import csv
import hashlib
import io
import json
import re
from pathlib import Path
from typing import Any

from size_report import share
from sm_targets import DEVICES, image_for, parse
from wheel_member import load_deflate
from zip_writer import Member, write_zip

Json = dict[str, Any]


def read_members(path: Path) -> list[tuple[str, Path, Json, Json]]:
    """Reads LIST: name, compressed member, what the zip's directory says of it, and what was measured on the module.

    Raises ValueError if the two are not about the same bytes.
    """
    words = iter(path.read_text().splitlines())
    modules = []
    for name in words:
        member, entry, facts = Path(next(words)), *(json.loads(Path(next(words)).read_text()) for _ in range(2))
        if entry["sha256"] != facts["sha256"]:
            raise ValueError(f"{name}: the member is of sha256 {entry['sha256']}, the facts are of {facts['sha256']}")
        modules.append((name, member, entry, facts))
    return modules


def describe_module(entry: Json, facts: Json) -> Json:
    """A module's entry in the manifest. Sizes in bytes; those of its host code and SM targets add up to its own."""
    parts = {"host": facts["host"], **facts["sm_targets"]}
    shares = share(entry["compressed_bytes"], {name: part["weight"] for name, part in parts.items()})
    described = {
        name: {
            "bytes": part["bytes"],
            "compressed_bytes": shares[name],
            **({"kernels": part["kernels"]} if "kernels" in part else {}),
        }
        for name, part in parts.items()
    }
    return {
        "bytes": entry["bytes"],
        "compressed_bytes": entry["compressed_bytes"],
        "sha256": entry["sha256"],
        "host": described.pop("host"),
        "sm_targets": dict(sorted(described.items(), key=lambda item: parse(item[0]))),
    }


def covers(device: str, supports: dict[str, list[str]], modules: Json) -> bool:
    """Whether every module that can be built for a device has an image that runs there, and there is such a module.

    supports: name of a module -> the devices that it can be built for.
    """
    able = [name for name, devices in supports.items() if device in devices]
    return bool(able) and all(image_for(modules[name]["sm_targets"], device) for name in able)


def describe_wheel(spec: Json, modules: dict[str, Json]) -> Json:
    """The manifest: what is inside, so that nothing has to guess it from file names."""
    return {
        "schema_version": 2,
        "distribution": spec["distribution"],
        "version": spec["version"],
        "cuda_version": spec["cuda_version"],
        "minimum_driver": spec["minimum_driver"],
        "cpu": spec["cpu"],
        "tag": spec["tag"],
        "sm_family": spec["sm_family"],
        "sm_targets": spec["sm_targets"],
        "devices": [device for device in DEVICES if covers(device, spec["supports"], modules)],
        "siblings": dict(sorted(spec["siblings"].items())),
        "not_built": dict(sorted(spec["not_built"].items())),
        "modules": modules,
    }


def metadata(spec: Json) -> str:
    """METADATA (core metadata 2.4)."""
    lines = [
        "Metadata-Version: 2.4",
        f"Name: {spec['distribution']}",
        f"Version: {spec['version']}",
        f"Summary: {spec['summary']}",
        "Requires-Python: >=3.9",
        f"License-Expression: {spec['license']}",
        *(f"License-File: {name}" for name in sorted(spec["license_files"])),
    ]
    return "\n".join(lines) + "\n"


def wheel_file(spec: Json) -> str:
    """WHEEL. A compressed tag set is written out, one tag a line (PEP 425)."""
    python, abi, platform = spec["tag"].split("-")
    tags = [f"Tag: {p}-{a}-{f}" for p in python.split(".") for a in abi.split(".") for f in platform.split(".")]
    return "\n".join(["Wheel-Version: 1.0", f"Generator: {spec['generator']}", "Root-Is-Purelib: false", *tags]) + "\n"


def record(entries: list[tuple[str, str, int]], own: str) -> str:
    """RECORD: path, sha256 (URL-safe base64 without padding), size of every file; its own line has neither."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for name, sha256, size in entries:
        digest = base64.urlsafe_b64encode(bytes.fromhex(sha256)).rstrip(b"=").decode()
        writer.writerow([name, f"sha256={digest}", size])
    writer.writerow([own, "", ""])
    return text.getvalue()


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--deflate", required=True)
    for option in ("spec", "members", "wheel", "manifest"):
        parser.add_argument(f"--{option}", type=Path, required=True)
    args = parser.parse_args()
    deflate = load_deflate(args.deflate)
    spec = json.loads(args.spec.read_text())
    listed = read_members(args.members)
    manifest = describe_wheel(spec, {name: describe_module(entry, facts) for name, _, entry, facts in listed})
    manifest_text = json.dumps(manifest, indent=1) + "\n"
    args.manifest.write_text(manifest_text)

    package = spec["package"]
    name = re.sub(r"[-_.]+", "_", spec["distribution"])
    dist_info = f"{name}-{spec['version']}.dist-info"
    texts = {f"{package}/{path}": Path(source).read_bytes() for path, source in spec["files"].items()}
    texts[f"{package}/_build_meta.py"] = f'"""Written by the build."""\n\n__version__ = "{spec["version"]}"\n'.encode()
    texts[f"{package}/manifest.json"] = manifest_text.encode()
    texts[f"{dist_info}/METADATA"] = metadata(spec).encode()
    texts[f"{dist_info}/WHEEL"] = wheel_file(spec).encode()
    for path, source in spec["license_files"].items():
        texts[f"{dist_info}/licenses/{path}"] = Path(source).read_bytes()

    def text_member(path: str, data: bytes) -> Member:
        level = spec["compression_level"]
        return Member(path, bytes(deflate.deflate_compress(data, level)), deflate.crc32(data), len(data))

    members = [text_member(path, data) for path, data in texts.items()]
    entries = [(path, hashlib.sha256(data).hexdigest(), len(data)) for path, data in texts.items()]
    for module, stream, entry, _ in listed:
        path = f"{package}/{spec['modules_directory']}/{module}/{module}.so"
        members.append(Member(path, stream, entry["crc32"], entry["bytes"], 0o755))
        entries.append((path, entry["sha256"], entry["bytes"]))
    # Sorted names; the dist-info directory comes last, as the format recommends, and RECORD at its end.
    in_order = sorted(members, key=lambda member: (member.name.startswith(dist_info), member.name))
    own = f"{dist_info}/RECORD"
    write_zip(args.wheel, [*in_order, text_member(own, record(sorted(entries), own).encode())])


if __name__ == "__main__":
    main()
