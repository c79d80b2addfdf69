"""Measures a module on its bytes, and fails if it is not what it was built to be: ModuleCheck.

    module_check.py --module M.so --name NAME --cpu CPU --cuda-version V --images IMAGES.json --deflate DIR --zstd LIB
                    --tag TAG --facts OUT.json [--fewer-kernels 'TU SM=REASON'...] [--embedded 'NAME SM KERNEL'...]

IMAGES.json is how the fatbins were made (CudaFatbin). OUT.json is what wheels, their manifests and reports say of the
module: nothing else guesses it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import census
import elf_gate
from elf import Elf, ElfError
from fatbin import embedded_cubins, fatbins
from wheel_member import load_deflate
from zstd import Zstd


def provenance(images: list[dict[str, Any]]) -> dict[str, list[str]]:
    """TU -> the SM targets of its fatbin, in the order of linking, from what CudaFatbin wrote."""
    found: dict[str, list[str]] = {}
    for image in images:
        found.setdefault(image["tu"], []).append(image["sm_target"])
    return found


def allowed(module: str, texts: list[str]) -> dict[tuple[str, str, str], str]:
    """The allow-list of census.check, from `TU SM=REASON`."""
    result = {}
    for text in texts:
        key, _, reason = text.partition("=")
        tu, _, sm = key.rpartition(" ")
        result[module, tu, sm] = reason
    return result


def weights(elf: Elf, deflate: Any) -> dict[str, int]:
    """Bytes that the images of each SM target, and `host` for all the rest, take when they are deflated on their own.

    A member is one stream: by these its compressed bytes are shared out.
    """
    parts: dict[str, list[memoryview]] = defaultdict(list)
    for image in [*(image for fatbin in fatbins(elf) for image in fatbin.images), *embedded_cubins(elf).values()]:
        parts[image.sm].append(image.payload)
    device = sorted(
        (section.offset, section.offset + section.size)
        for section in elf.sections
        if section.name == ".nv_fatbin" or section.name.startswith(".cubin.")
    )
    ends = [0, *(end for _, end in device)]
    starts = [*(start for start, _ in device), len(elf.data)]
    host = [elf.data[end:start] for end, start in zip(ends, starts, strict=True)]
    # The fastest level: only the proportions matter.
    return {
        name: len(deflate.deflate_compress(b"".join(pieces), 1)) for name, pieces in {"host": host, **parts}.items()
    }


def measure(elf: Elf, zstd: Zstd, deflate: Any) -> tuple[dict[str, Any], census.Census]:
    """What the bytes of a module say; raises ElfError if they are damaged or contradict themselves."""
    data, name = bytes(elf.data), elf.name
    taken = census.take(data, name, zstd)
    weight = weights(elf, deflate)
    sm_targets: dict[str, dict[str, int]] = {}
    for images in taken:
        for image in images:
            entry = sm_targets.setdefault(image.sm, {"bytes": 0, "kernels": 0, "weight": weight[image.sm]})
            entry["bytes"] += image.bytes
            entry["kernels"] += len(image.kernels)
    facts = {
        "name": name,
        "bytes": len(data),
        "sha256": hashlib.sha256(data).hexdigest(),
        "host": {"bytes": len(data) - sum(entry["bytes"] for entry in sm_targets.values()), "weight": weight["host"]},
        "sm_targets": sm_targets,
        "elf": asdict(elf_gate.facts_of(elf)),
    }
    return facts, taken


def kernels(expected: Mapping[str, list[str]], taken: census.Census) -> dict[str, dict[str, list[str]]]:
    """TU, or name of an embedded cubin -> SM target -> names of kernels."""
    names = [*expected, *(image.embedded for images in taken for image in images if image.embedded)]
    return {n: {image.sm: list(image.kernels) for image in images} for n, images in zip(names, taken, strict=True)}


def embedded(texts: list[str]) -> dict[str, tuple[str, str]]:
    """Name -> SM target and kernel of embedded cubins, from `NAME SM KERNEL`."""
    words = [text.split(" ") for text in texts]
    return {name: (sm, kernel) for name, sm, kernel in words}


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--module", type=Path, required=True)
    for option in ("name", "cpu", "cuda-version", "deflate", "tag", "zstd"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--images", type=Path, help="none for a module without device code")
    parser.add_argument("--fewer-kernels", action="append", default=[], metavar="TU SM=REASON")
    parser.add_argument("--embedded", action="append", default=[], metavar="NAME SM KERNEL")
    parser.add_argument("--facts", type=Path, required=True)
    args = parser.parse_args()
    expected = provenance(json.loads(args.images.read_text())) if args.images else {}
    try:
        elf = Elf(args.module.read_bytes(), args.name)
        facts, taken = measure(elf, Zstd(args.zstd), load_deflate(args.deflate))
        problems = [
            *census.check(args.name, taken, expected, allowed(args.name, args.fewer_kernels), embedded(args.embedded)),
            *elf_gate.check(
                args.name,
                elf,
                elf_gate.ElfFacts(**facts["elf"]),
                cpu=args.cpu,
                cuda_version=args.cuda_version,
                tag=args.tag.rpartition("-")[2],
            ),
        ]
    except ElfError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if problems:
        print("\n".join(f"error: {problem}" for problem in problems), file=sys.stderr)
        return 1
    args.facts.write_text(json.dumps({**facts, "kernels": kernels(expected, taken)}, indent=1) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
