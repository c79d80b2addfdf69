"""Assembles a wheel from members that are compressed already: WheelPack.

    wheel_pack.py --deflate DIR --spec SPEC.json --modules LIST --wheel OUT --manifest OUT.json

SPEC.json holds what the rule knows (distribution, version, tag, CUDA version, CPU, family, SM targets, files); LIST
names, a word a line, each module: name, member, facts, images or `-`.

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
from collections import defaultdict
from pathlib import Path
from typing import Any

from sm_targets import DEVICES, runs_on
from wheel_member import LEVEL, load_deflate
from zip_writer import Member, write_zip

Json = dict[str, Any]


def read_modules(path: Path) -> list[tuple[str, Path, Json, list[Json]]]:
    """Reads LIST: name, compressed member, facts, and the sizes of the images in its fatbins."""
    words = iter(path.read_text().splitlines())
    modules = []
    for name in words:
        member, facts, images = Path(next(words)), json.loads(Path(next(words)).read_text()), next(words)
        modules.append((name, member, facts, [] if images == "-" else json.loads(Path(images).read_text())))
    return modules


def describe_module(facts: Json, images: list[Json]) -> Json:
    """A module's entry in the manifest: sizes in bytes, sha256, and the bytes that each SM target takes."""
    by_sm: dict[str, int] = defaultdict(int)
    for image in images:
        by_sm[image["sm_target"]] += image["fatbin_bytes"]
    return {
        "bytes": facts["bytes"],
        "compressed_bytes": facts["compressed_bytes"],
        "sha256": facts["sha256"],
        "sm_targets": dict(by_sm),
    }


def describe_wheel(spec: Json, modules: dict[str, Json]) -> Json:
    """The manifest: what is inside, so that nothing has to guess it from file names."""
    with_images = [module for module in modules.values() if module["sm_targets"]]
    return {
        "schema_version": 1,
        "distribution": spec["distribution"],
        "version": spec["version"],
        "cuda_version": spec["cuda_version"],
        "minimum_driver": spec["minimum_driver"],
        "cpu": spec["cpu"],
        "sm_family": spec["sm_family"],
        "sm_targets": spec["sm_targets"],
        "devices": [d for d in DEVICES if all(any(runs_on(sm, d) for sm in m["sm_targets"]) for m in with_images)],
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
    for option in ("spec", "modules", "wheel", "manifest"):
        parser.add_argument(f"--{option}", type=Path, required=True)
    args = parser.parse_args()
    deflate = load_deflate(args.deflate)
    spec = json.loads(args.spec.read_text())
    listed = read_modules(args.modules)
    manifest = describe_wheel(spec, {name: describe_module(facts, images) for name, _, facts, images in listed})
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
        return Member(path, bytes(deflate.deflate_compress(data, LEVEL)), deflate.crc32(data), len(data))

    members = [text_member(path, data) for path, data in texts.items()]
    entries = [(path, hashlib.sha256(data).hexdigest(), len(data)) for path, data in texts.items()]
    for module, stream, facts, _ in listed:
        path = f"{package}/{spec['modules_directory']}/{module}/{module}.so"
        members.append(Member(path, stream, facts["crc32"], facts["bytes"], 0o755))
        entries.append((path, facts["sha256"], facts["bytes"]))
    # Sorted names; the dist-info directory comes last, as the format recommends, and RECORD at its end.
    in_order = sorted(members, key=lambda member: (member.name.startswith(dist_info), member.name))
    own = f"{dist_info}/RECORD"
    write_zip(args.wheel, [*in_order, text_member(own, record(sorted(entries), own).encode())])


if __name__ == "__main__":
    main()
