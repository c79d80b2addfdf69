"""The census of a module: what device code it holds, read from its bytes.

    census.py [--zstd LIBZSTD] [--json] MODULE.so...

No file name is read for meaning. What fatbin.py says of SM targets' suffixes holds here.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from elf import Elf, ElfError
from fatbin import Image as Found
from fatbin import embedded_cubins, fatbins
from sm_targets import parse
from zstd import Zstd


@dataclass(frozen=True)
class Image:
    """An image: `kind` is `sass` or `ptx`, `sm` its SM target, `bytes` what it takes in the fatbin.

    embedded: the name of a cubin that lies outside of fatbins; empty for what is in one.
    """

    kind: str
    sm: str
    bytes: int
    uncompressed_bytes: int
    kernels: tuple[str, ...]
    embedded: str = ""

    def __str__(self) -> str:
        return f"{self.kind.upper() if self.kind in ('sass', 'ptx') else self.kind} for {self.sm}"


# A module's fatbins in their order, one a TU in the order of linking, each with its images in their order. Then its
# embedded cubins, each alone, by name.
Census = list[list[Image]]


def take(data: bytes | memoryview, name: str, zstd: Zstd | None) -> Census:
    """The census of a module that messages call `name`.

    zstd: None will do for a module without images that are compressed with it.
    Raises ElfError for bytes that are damaged or contradict themselves.
    """

    def read(image: Found, embedded: str = "") -> Image:
        kernels = tuple(image.kernels(zstd))
        return Image(image.kind, image.sm, image.bytes, image.uncompressed_bytes, kernels, embedded)

    module = Elf(data, name)
    return [
        *([read(image) for image in fatbin.images] for fatbin in fatbins(module)),
        *([read(image, embedded)] for embedded, image in embedded_cubins(module).items()),
    ]


def _wanted(sm_target: str) -> tuple[str, str]:
    target = parse(sm_target)
    return "ptx" if target.ptx else "sass", str(target)


def check(
    module: str,
    census: Census,
    expected: Mapping[str, Sequence[str]],
    fewer_kernels: Mapping[tuple[str, str, str], str] | None = None,
    embedded: Mapping[str, tuple[str, str]] | None = None,
) -> list[str]:
    """Compares a census with how the module was built; returns a message for each difference.

    expected: the SM targets of each TU that has a fatbin, in the order of linking; `9.0a` is SASS, `compute_90a` PTX.
    fewer_kernels: why an image may lack kernels that another image of its fatbin has, by (module, TU, SM target).
    embedded: SM target and kernel of each cubin that host code loads itself, by name.
    """
    problems = _check_embedded(module, [i for images in census for i in images if i.embedded], embedded or {})
    census = [images for images in census if not any(image.embedded for image in images)]
    if len(census) != len(expected):
        problems.append(
            f"{module} does not have one fatbin for each TU with device code.\n"
            f"  expected: {len(expected)} fatbins ({', '.join(expected) or 'no TU'})\n"
            f"  found:    {len(census)}\n"
            f"  To do: find the object that brings or lacks one, and declare its TU's device_code as it is."
        )
    names = [*expected, *(f"fatbin {index}" for index in range(len(expected), len(census)))]
    for index, (tu, images) in enumerate(zip(names, census, strict=False)):
        where = f"{module}, {tu} (fatbin {index})" if tu in expected else f"{module}, {tu}"
        problems += _check_images(where, images, [_wanted(sm) for sm in expected.get(tu, [])])
        allowed = {sm for (m, t, sm), reason in (fewer_kernels or {}).items() if (m, t) == (module, tu) and reason}
        problems += _check_kernels(where, [image for image in images if image.sm not in allowed], images)
    return problems


def _check_embedded(module: str, found: list[Image], expected: Mapping[str, tuple[str, str]]) -> list[str]:
    """Messages about embedded cubins that are missing, that nobody asked for, and that are not what host code asks for."""
    by_name = {image.embedded: image for image in found}
    problems = []
    for name in sorted({*by_name, *expected}):
        sm, kernel = expected.get(name, ("", ""))
        image = by_name.get(name)
        wanted = f"SASS for {sm} with kernel {kernel}" if sm else "nothing of that name"
        if not image:
            has, todo = "nothing", "see whether host code refers to its symbol: the linker drops what nothing refers to"
        elif not sm:
            has, todo = str(image), "declare it (embedded_cubin), or find the object that brings it"
        elif image.sm != sm or kernel not in image.kernels:
            has = f"{image} with kernels {', '.join(image.kernels) or 'none'}"
            todo = 'correct its declaration (embedded_cubin), or declare the kernel extern "C" in its source'
        else:
            continue
        problems.append(
            f"{module}, embedded cubin {name} is not what was built.\n"
            f"  expected: {wanted}\n  found:    {has}\n  To do: {todo}."
        )
    return problems


def _listed(images: Sequence[tuple[str, str]]) -> str:
    return ", ".join(f"{kind.upper()} {sm}" for kind, sm in images) or "nothing"


def _check_images(where: str, images: list[Image], wanted: list[tuple[str, str]]) -> list[str]:
    """Messages about images that are missing and images that nobody asked for."""
    found = [(image.kind, image.sm) for image in images]
    problems = []
    for title, todo, differing in (
        (
            "has no image for",
            "build it again; if that does not help, the cubin got lost between CudaFatbin and CudaLink.",
            [pair for pair in dict.fromkeys(wanted) if pair not in found],
        ),
        (
            "has an image that it was not built with",
            "find what brings it: flags of the TU (-gencode), or a library that is linked in.",
            [pair for pair in dict.fromkeys(found) if found.count(pair) > wanted.count(pair)],
        ),
    ):
        problems += [
            f"{where} {title}: {_listed([pair])}.\n"
            f"  expected: {_listed(wanted)}\n"
            f"  found:    {_listed(found)}\n"
            f"  To do: {todo}"
            for pair in differing
        ]
    return problems


def _check_kernels(where: str, images: list[Image], all_images: list[Image]) -> list[str]:
    """Messages about those of `images` that lack kernels which one of `all_images` has."""
    everything = {kernel: image for image in reversed(all_images) for kernel in image.kernels}
    problems = []
    for image in images:
        missing = sorted(everything.keys() - set(image.kernels))
        # An image of a kind whose kernels can't be read is reported as foreign.
        if missing and image.kind in ("sass", "ptx"):
            rows = [f"    {kernel} (in {everything[kernel]})" for kernel in missing[:10]]
            more = [f"    and {len(missing) - 10} more"] if len(missing) > 10 else []
            problems.append(
                "\n".join(
                    [
                        f"{where}: {image} has fewer kernels than another image of the same fatbin.",
                        f"  expected: {len(everything)} kernels",
                        f"  found:    {len(image.kernels)}; these are missing:",
                        *rows,
                        *more,
                        "  To do: find what leaves them out for this SM target (__CUDA_ARCH__, #ifdef), or allow it, with the reason.",
                    ]
                )
            )
    return problems


def table(censuses: Mapping[str, Census]) -> str:
    """Censuses by module name as text, a line for each image."""
    rows = [("module", "fatbin", "kind", "SM", "bytes", "uncompressed", "kernels")]
    rows += [
        (name, i.embedded or str(index), i.kind, i.sm, str(i.bytes), str(i.uncompressed_bytes), str(len(i.kernels)))
        for name, census in censuses.items()
        for index, images in enumerate(census)
        for i in images
    ]
    rows += [(name, "-", "no device code", "", "", "", "") for name, census in censuses.items() if not census]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            cell.rjust(width) if number in (1, 4, 5, 6) else cell.ljust(width)
            for number, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    )


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path, nargs="+")
    parser.add_argument("--zstd", metavar="LIBZSTD", help="the pinned libzstd.so.1 (//tools/wheel:libzstd)")
    parser.add_argument("--json", action="store_true", help="for programs: kernels by name")
    args = parser.parse_args()
    try:
        zstd = Zstd(args.zstd) if args.zstd else None
        censuses = {str(path): take(path.read_bytes(), path.name, zstd) for path in args.module}
    except (ElfError, OSError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if args.json:
        print(json.dumps({name: [[asdict(i) for i in f] for f in c] for name, c in censuses.items()}, indent=1))
    else:
        print(table(censuses))
    return 0


if __name__ == "__main__":
    sys.exit(main())
