"""Joins the cubins of a module: for each TU a fatbin, all in one object, and the size of every image.

It is a program of its own, so that a change of how cubins are joined compiles nothing. The command line is that of
nvcc_steps.py.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import struct
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from nvcc_steps import Step, StepError, fatbin_symbol, read_plan, sm_name


def image_sizes(fatbin: bytes) -> list[int]:
    """The bytes that each image takes in a fatbin, its header included, in their order.

    The layout (not documented by NVIDIA; read off fatbinary 12.4 to 13.4): a 16-byte header (u32 magic 0xBA55ED50, u16
    version, u16 header size, u64 size of what follows), then for each image u16 kind, u16 version, u32 header size,
    u64 size of what follows. Raises StepError if the bytes do not fit that.
    """
    magic, _, header_size, size = struct.unpack_from("<IHHQ", fatbin)
    if magic != 0xBA55ED50 or header_size + size != len(fatbin):
        raise StepError(f"fatbinary wrote {len(fatbin)} bytes that are not one fatbin (magic {magic:#x}, size {size}).")
    sizes, position = [], header_size
    while position < len(fatbin):
        _, _, header, payload = struct.unpack_from("<HHIQ", fatbin, position)
        sizes.append(header + payload)
        position += header + payload
    return sizes


def statements(stub: str) -> set[str]:
    """What a host stub declares, defines and registers, without the numbers of lines and of local variables.

    Nor does it count what __launch_bounds__ says, which a kernel is registered with: it may differ between SM targets, and
    nvcc too registers the value of one of them for all. The images themselves have their own.
    """
    text = Path(stub).read_text(errors="surrogateescape")
    text = re.sub(r"^#.*", "", re.sub(r"\b__smwheel\d+\b", "__smwheel", text), flags=re.MULTILINE)
    found = (" ".join(statement.split()) for statement in re.split("[;{}]", text))
    return {re.sub(r"^(__cudaRegisterEntry\(.*), (?:\(-1\)|\d+)\)$", r"\1)", statement) for statement in found}


def check_stubs(tu: str, canonical: str, images: list[tuple[str, str, str]]) -> None:
    """Raises StepError unless the host code, which was compiled with the canonical stub, has all that each image's stub has.

    An image may have fewer kernels than the host code knows. The census of the module says so, and whether that is meant.
    """
    expected = statements(canonical)
    more = {sm: found for sm, _, stub in images if (found := statements(stub) - expected)}
    if more:
        shown = sorted(text for found in more.values() for text in found)[0]
        raise StepError(
            f"{tu}: SM target {', '.join(more)} has kernels that the host code does not know, or other ones of the same name.\n"
            f"  expected: those of {Path(canonical).name}, with which the host code was compiled\n"
            f"  found besides: {shown[:300]}\n"
            f"  To do: find what depends on __CUDA_ARCH__ outside of kernel bodies, or build these targets as a module of\n"
            f"  their own. Compare: {canonical} and {next(stub for sm, _, stub in images if sm in more)}"
        )


def compression_flags(flags: list[str], mode: str) -> list[str]:
    """fatbinary's `flags` with compression `mode` in place of what they say of compression; as they are if it is empty."""
    if not mode:
        return flags
    rest = [flag for flag in flags if not flag.startswith("--compress")]
    return [*rest, f"--compress-mode={mode}", *(["--compress-all"] if mode != "none" else [])]


def fatbin(step: Step, args: argparse.Namespace) -> None:
    """The cubins of each TU of a module -> one object that has a fatbin for each, and the size of every image."""
    assembly, sizes = [], []
    for index, (tu, plan, canonical, images) in enumerate(parse_images(args.images)):
        check_stubs(tu, canonical, images)
        out = step.scratch / f"{index}.fatbin"
        image_options = [f"--image3=kind=elf,sm={sm_name(sm)},file={path}" for sm, path, _ in images]
        step.run(
            "fatbinary",
            [*compression_flags(read_plan(plan)["fatbinary"], args.compression), *image_options, f"--create={out}"],
        )
        for (sm, path, _), size in zip(images, image_sizes(out.read_bytes()), strict=True):
            sizes.append({"tu": tu, "sm_target": sm, "cubin_bytes": os.path.getsize(path), "fatbin_bytes": size})
        symbol = fatbin_symbol(tu)
        assembly.append(
            f'.section .nv_fatbin,"a"\n.align 8\n.globl {symbol}\n.hidden {symbol}\n{symbol}:\n.incbin "{out}"\n'
        )
    source = step.scratch / "fatbins.s"
    source.write_text("".join(assembly) + '.section .note.GNU-stack,"",%progbits\n')
    step.run("cxx", ["-c", "-x", "assembler", str(source), "-o", args.object])
    Path(args.sizes).write_text(json.dumps(sizes, indent=1) + "\n")


def parse_images(path: str) -> Iterator[tuple[str, str, str, list[tuple[str, str, str]]]]:
    """Reads `TU <name> <plan> <canonical stub>` and, after each, `IMAGE <SM target> <cubin> <stub>`, a word a line."""
    words = iter(Path(path).read_text().splitlines())
    current: tuple[str, str, str, list[tuple[str, str, str]]] | None = None
    for word in words:
        if word == "TU":
            if current:
                yield current
            current = (next(words), next(words), next(words), [])
        elif current:
            current[3].append((next(words), next(words), next(words)))
    if current:
        yield current


def main(argv: list[str]) -> int:
    """Runs the step; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("nvcc", "version", "tu", "cxx", "images", "object", "sizes"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--compression", default="", help="fatbinary's --compress-mode, in place of the TUs' own flags")
    args = parser.parse_args(argv)
    scratch = Path(tempfile.mkdtemp())
    try:
        fatbin(Step("fatbin", args.nvcc, args.cxx, args.tu, args.version, "any", [], [], scratch), args)
    except StepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
