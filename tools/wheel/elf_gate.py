"""The ELF gate: whether a module can be loaded wherever its wheel's tags say, read from its bytes.

    elf_gate.py [--cpu x86_64 --cuda-version 13.0 --tag manylinux_2_28_x86_64] MODULE.so...

It prints what the modules need. With --cpu, --cuda-version and --tag it checks it.
"""

from __future__ import annotations

import argparse
import json
import re
import struct
import sys
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from itertools import pairwise
from pathlib import Path

import instructions_aarch64
import instructions_x86_64
from elf import (
    EM_AARCH64,
    EM_X86_64,
    PF_X,
    PT_GNU_STACK,
    SHF_ALLOC,
    SHF_EXECINSTR,
    SHN_UNDEF,
    STB_GLOBAL,
    Elf,
    ElfError,
    Section,
)
from fatbin import FATBIN_SECTIONS, fatbins

_MACHINES = {EM_X86_64: "x86_64", EM_AARCH64: "aarch64"}
_BASELINES = {"x86_64": "x86-64 (SSE2)", "aarch64": "Armv8.0-A (Advanced SIMD)"}
_LOADERS = {"x86_64": "ld-linux-x86-64.so.2", "aarch64": "ld-linux-aarch64.so.1"}

# The highest versions of each namespace by policy, manylinux_2_28 and later: the lists of auditwheel 6.8.2 (manylinux-policy.json),
# which are what PEP 600's tags mean in practice. A version that is no number counts as the policy it first appears in.
_NAMESPACES = ("GLIBC", "GLIBCXX", "CXXABI", "GCC", "LIBATOMIC", "ZLIB")
_ROWS = """
2.28  2.28  3.4.24  1.3.11   7.0.0   7.0.0  1.2  1.2.9
2.31  2.31  3.4.28  1.3.12   7.0.0   7.0.0  1.2  1.2.9
2.34  2.34  3.4.29  1.3.13   7.0.0    11.0  1.2  1.2.9
2.35  2.35  3.4.30  1.3.13  12.0.0    11.0  1.2  1.2.9
2.36  2.36  3.4.30  1.3.13  12.0.0    11.0  1.2  1.2.9
2.37  2.36  3.4.30  1.3.13  12.0.0    11.0  1.2  1.2.12
2.38  2.38  3.4.30  1.3.13  12.0.0    11.0  1.2  1.2.12
2.39  2.39  3.4.33  1.3.15  14.0.0  14.0.0  1.2  1.2.12
2.40  2.40  3.4.33  1.3.15  14.0.0  14.0.0  1.2  1.2.12
2.41  2.41  3.4.33  1.3.15  14.0.0  14.0.0  1.2  1.2.12
"""
_NOT_NUMBERS = {
    "CXXABI_TM_1": ("CXXABI", "1.3.7"),
    "CXXABI_FLOAT128": ("CXXABI", "1.3.9"),
    "GLIBC_ABI_DT_RELR": ("GLIBC", "2.36"),
}


def _policies(cpu: str) -> dict[str, dict[str, str]]:
    policies = {}
    for row in _ROWS.split("\n")[1:-1]:
        policy, glibc, glibcxx, cxxabi, gcc_x86_64, gcc_aarch64, *others = row.split()
        gcc = gcc_x86_64 if cpu == "x86_64" else gcc_aarch64
        policies[policy] = dict(zip(_NAMESPACES, (glibc, glibcxx, cxxabi, gcc, *others), strict=True))
    return policies


# By CPU and policy: {"x86_64": {"2.28": {"GLIBC": "2.28", ...}}}, in ascending order.
POLICIES = {cpu: _policies(cpu) for cpu in _LOADERS}

# What every system that a manylinux tag admits has: lib_whitelist of the same policies.
SYSTEM_LIBRARIES = frozenset(
    """libGL.so.1 libICE.so.6 libSM.so.6 libX11.so.6 libXext.so.6 libXrender.so.1 libanl.so.1 libatomic.so.1 libc.so.6
    libdl.so.2 libexpat.so.1 libgcc_s.so.1 libglib-2.0.so.0 libgobject-2.0.so.0 libgthread-2.0.so.0 libm.so.6 libmvec.so.1
    libnsl.so.1 libpthread.so.0 libresolv.so.2 librt.so.1 libstdc++.so.6 libutil.so.1 libz.so.1""".split()
)

# What the driver has, and what the runtime that loads a module has loaded before.
LOADED_LIBRARIES = frozenset(("libcuda.so.1", "libnccl.so.2", "libtvm_ffi.so"))

# The number in the sonames of CUDA's libraries, by CUDA major: what NVIDIA's wheels of 12.x and 13.x ship.
_CUDA_LIBRARIES = {
    **{
        library: {12: 12, 13: 13}
        for library in ("libcublas", "libcublasLt", "libcudart", "libcupti", "libnvJitLink", "libnvfatbin", "libnvrtc")
    },
    "libcufft": {12: 11, 13: 12},
    "libcurand": {12: 10, 13: 10},
    "libcusolver": {12: 11, 13: 12},
    "libcusparse": {12: 12, 13: 12},
}

# Libraries whose symbols have no versions, by what the names of these begin with: the driver's, those that the link finds as
# //toolchains/cuda:stub_<library>, and the C API of tvm_ffi (tvm/ffi/c_api.h), which has loaded itself before it loads a module.
_OWNERS = (
    (re.compile("TVMFFI"), ()),
    (re.compile("cu[A-Z]"), ("libcuda",)),
    (re.compile("cublasLt"), ("libcublasLt", "libcublas")),
    (re.compile("cublas"), ("libcublas",)),
    (re.compile("nvrtc"), ("libnvrtc",)),
    (re.compile("nccl"), ("libnccl",)),
)

# Directories that only the machine has where something was built: homes, temporary files, what CI services mount, and what
# Bazel makes for an action. `include/home/me/a.h` is none of them: it is relative.
_PATHS = re.compile(
    rb"/(?:((?:home|root|Users|tmp|var/tmp|builds|workspace|__w)/[\x21-\x7e]{2})|(?:execroot|sandbox|_bazel_\w+)/)"
)
# The text around a match, and what makes it a part of a longer path.
_BEFORE, _AFTER, _RELATIVE = (
    re.compile(rb"[\x21-\x7e]*\Z"),
    re.compile(rb"[\x21-\x7e]{0,200}"),
    re.compile(rb"[\w.+~-]\Z"),
)


@dataclass(frozen=True)
class ElfFacts:
    """What a module needs of where it is loaded.

    machine: `x86_64` or `aarch64`
    needed: the sonames of the libraries that it is linked to
    versions: the highest version of its symbols by namespace: {"GLIBC": "2.27", "GLIBCXX": "3.4.21"}
    glibc: the version of glibc among them
    instruction_sets: the extensions of its machine's baseline that its code has instructions of, whether or not it asks for
        the CPU first (but for GCC's outline atomics); `unknown` is code that could not be read
    """

    machine: str
    needed: tuple[str, ...]
    versions: dict[str, str]
    glibc: str | None
    instruction_sets: tuple[str, ...]


def _number(version: str) -> tuple[int, ...]:
    return tuple(map(int, version.split(".")))


def _namespaced(version: str) -> tuple[str, str] | None:
    """Namespace and number of a symbol version, or None if it has none."""
    match = re.fullmatch(r"([A-Z_]+)_(\d{1,9}(?:\.\d{1,9}){0,3})", version)
    return (match[1], match[2]) if match else _NOT_NUMBERS.get(version)


def _sections(elf: Elf) -> Iterator[Section]:
    """The sections. Raises ElfError if they overlap, which would make it long to look at each."""
    left = len(elf.data)
    for section in elf.sections:
        left -= len(elf.content(section))
        if left < 0:
            raise elf.error(section, "sections that do not overlap", f"more than {len(elf.data)} bytes of them")
        yield section


def _functions(elf: Elf) -> list[int]:
    """The addresses at which functions begin, in ascending order; none for a module that doesn't say.

    .eh_frame_hdr (LSB Core Specification, "Exception Frame Header"), with the only encodings that linkers give it: addresses
    are 32 bits, relative to the section.
    """
    section = elf.section(".eh_frame_hdr")
    content = elf.content(section) if section else memoryview(b"")
    if not section or len(content) < 12 or bytes(content[:4]) != b"\x01\x1b\x03\x3b":
        return []
    (count,) = struct.unpack_from("<I", content, 8)
    if 12 + 8 * count > len(content):
        raise elf.error(section, f"{count} entries within its {len(content)} bytes", "fewer")
    return sorted(section.address + address for address, _ in struct.iter_unpack("<ii", content[12 : 12 + 8 * count]))


def _beyond_baseline(elf: Elf) -> Iterator[tuple[int, str]]:
    """The address and the extension of each host instruction that is not of the baseline."""
    # What a linker fills gaps between functions with may be read as the beginning of an instruction, where they have no
    # fixed size.
    functions = _functions(elf) if elf.machine == EM_X86_64 else []
    extensions = {EM_X86_64: instructions_x86_64.extensions, EM_AARCH64: instructions_aarch64.extensions}[elf.machine]
    for section in _sections(elf):
        if section.flags & SHF_ALLOC and section.flags & SHF_EXECINSTR:
            content = elf.content(section)
            end = section.address + len(content)
            within = functions[bisect_right(functions, section.address) : bisect_left(functions, end)]
            for start, stop in pairwise([section.address, *within, end]):
                for offset, extension in extensions(content[start - section.address : stop - section.address]):
                    yield start + offset, extension


def read(data: bytes | memoryview, name: str) -> ElfFacts:
    """The facts of a module that messages call `name`. Raises ElfError for what is damaged or for another machine."""
    return facts_of(Elf(data, name))


def facts_of(elf: Elf) -> ElfFacts:
    """The facts of a module. Raises ElfError as `read` does."""
    if elf.machine not in _MACHINES:
        expected = " or ".join(f"{number} ({machine})" for number, machine in _MACHINES.items())
        raise elf.error("ELF header", f"machine {expected}", elf.machine)
    highest: dict[str, str] = {}
    for library_versions in elf.needed_versions().values():
        for namespace, version in filter(None, map(_namespaced, library_versions)):
            if namespace not in highest or _number(version) > _number(highest[namespace]):
                highest[namespace] = version
    return ElfFacts(
        _MACHINES[elf.machine],
        elf.dynamic().needed,
        dict(sorted(highest.items())),
        highest.get("GLIBC"),
        tuple(sorted({extension for _, extension in _beyond_baseline(elf)})),
    )


def _beyond(facts: ElfFacts, limits: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Namespace, version and limit of what a policy does not have."""
    return [
        (namespace, version, limits[namespace])
        for namespace, version in facts.versions.items()
        if namespace in limits and _number(version) > _number(limits[namespace])
    ]


def platform_tag(facts: Iterable[ElfFacts], cpu: str, floor: str = "2.28") -> str:
    """The platform tag that modules deserve: `manylinux_2_28_x86_64`, or `linux_x86_64` if no policy has what they need.

    floor: the lowest policy; one of POLICIES[cpu], or ValueError.
    """
    policies = list(POLICIES[cpu])
    if floor not in policies:
        raise ValueError(f"floor: expected one of {', '.join(policies)}, found {floor}")
    known = list(facts)
    for policy in policies[policies.index(floor) :]:
        if not any(_beyond(module, POLICIES[cpu][policy]) for module in known):
            return f"manylinux_{policy.replace('.', '_')}_{cpu}"
    return f"linux_{cpu}"


def _policy_of(tag: str) -> tuple[str, str] | None:
    """CPU and policy of a platform tag, or None."""
    match = re.fullmatch(r"manylinux_(\d+)_(\d+)_(\w+)", tag)
    cpu, policy = (match[3], f"{match[1]}.{match[2]}") if match else ("", "")
    return (cpu, policy) if policy in POLICIES.get(cpu, {}) else None


def _unknown_tag(name: str, tag: str) -> str:
    known = [f"manylinux_{policy.replace('.', '_')}_<cpu>" for policy in POLICIES["x86_64"]]
    return (
        f"{name} has a platform tag whose policy is not known.\n"
        f"  expected: {', '.join(known)}; <cpu> is {' or '.join(POLICIES)}\n"
        f"  found:    {tag}\n"
        f"  To do: correct the tag, or add the policy to tools/wheel/elf_gate.py, from auditwheel's list."
    )


def check_tag(wheel_name: str, declared_tag: str, facts: Mapping[str, ElfFacts]) -> str | None:
    """The message that a wheel fails with if its platform tag is not the one that its modules deserve, or None.

    facts: of all its modules, by name. A tag that promises less than they deserve is no tag of theirs either.
    """
    declared = _policy_of(declared_tag)
    if not declared:
        return _unknown_tag(wheel_name, declared_tag)
    cpu, policy = declared
    lowest = next(iter(POLICIES[cpu]))
    deserved = platform_tag(facts.values(), cpu, lowest)
    others = [name for name, module in facts.items() if module.machine != cpu]
    if deserved == declared_tag and not others:
        return None
    rows = [f"  {name} is for {facts[name].machine}" for name in others]
    rows += [
        f"  {name} needs {namespace}_{version}; manylinux_{policy.replace('.', '_')} has up to {limit}"
        for name, module in facts.items()
        for namespace, version, limit in _beyond(module, POLICIES[cpu][policy])
    ]
    if not rows:
        rows = [f"  no module needs more than {deserved} has"]
    return "\n".join(
        [
            f"{wheel_name} does not have the platform tag that its modules deserve.",
            f"  expected: {deserved}, by the symbol versions that they need",
            f"  found:    {declared_tag}",
            *rows,
            "  To do: link what is too new statically (toolchains/cc:libstdcxx_nonshared does it for libstdc++), or declare "
            "the tag that they deserve.",
        ]
    )


def cuda_libraries(cuda_version: str) -> frozenset[str]:
    """The sonames of CUDA's libraries. Raises ValueError for a CUDA major whose sonames are not known."""
    major = int(cuda_version.partition(".")[0])
    sonames = frozenset(f"{name}.so.{numbers[major]}" for name, numbers in _CUDA_LIBRARIES.items() if major in numbers)
    if not sonames:
        raise ValueError(
            f"CUDA {cuda_version}: its libraries' sonames are not in _CUDA_LIBRARIES of tools/wheel/elf_gate.py"
        )
    return sonames


def check(
    name: str,
    elf: Elf,
    facts: ElfFacts,
    *,
    cpu: str,
    cuda_version: str,
    tag: str,
    allowed: Collection[str] = SYSTEM_LIBRARIES | LOADED_LIBRARIES,
) -> list[str]:
    """Compares a module with what its wheel promises; returns a message for each difference.

    facts: of `elf`
    cpu: `x86_64` or `aarch64`
    cuda_version: `13.0`
    tag: the wheel's platform tag, `manylinux_2_28_x86_64`
    allowed: sonames that it may be linked to, besides CUDA's
    Raises ElfError for damaged bytes, ValueError for a CUDA major that is not known.
    """
    return [
        *_check_machine(name, facts, cpu),
        *_check_needed(name, facts, cpu, cuda_version, allowed),
        *_check_symbols(name, elf, facts),
        *_check_versions(name, elf, facts, tag),
        *_check_loading(name, elf),
        *_check_instructions(name, elf, facts),
        *_check_paths(name, elf),
    ]


def _check_machine(name: str, facts: ElfFacts, cpu: str) -> Iterator[str]:
    if facts.machine != cpu:
        yield (
            f"{name} is for another machine.\n"
            f"  expected: {cpu}\n"
            f"  found:    {facts.machine}\n"
            f"  To do: build it with the toolchain of {cpu}."
        )


def _check_needed(name: str, facts: ElfFacts, cpu: str, cuda_version: str, allowed: Collection[str]) -> Iterator[str]:
    cuda = cuda_libraries(cuda_version)
    by_name = {soname.partition(".so.")[0]: soname for soname in cuda}
    for soname in facts.needed:
        expected = by_name.get(soname.partition(".so.")[0])
        if soname in allowed or soname == expected or soname == _LOADERS[cpu]:
            continue
        if expected:
            yield (
                f"{name} is linked to a library of another CUDA version.\n"
                f"  expected: {expected}, of CUDA {cuda_version}\n"
                f"  found:    {soname}\n"
                f"  To do: find what links it (linkopts, deps), and take the library from the toolkit of CUDA {cuda_version}."
            )
        else:
            yield (
                f"{name} is linked to a library that is not everywhere where its wheel can be installed.\n"
                f"  expected: {', '.join(sorted({*allowed, *cuda}))}\n"
                f"  found:    {soname}\n"
                f"  To do: link it statically, or allow it if whoever loads the module loads it before."
            )


def _check_symbols(name: str, elf: Elf, facts: ElfFacts) -> Iterator[str]:
    """Messages about symbols that no library has to which the module is linked: a loader refuses it."""
    versioned = {symbol for symbols in elf.symbols_by_version().values() for symbol in symbols}
    linked = {soname.partition(".so")[0] for soname in facts.needed}
    missing: dict[str, list[str]] = {}
    for symbol in elf.symbols(".dynsym"):
        if symbol.section != SHN_UNDEF or symbol.binding != STB_GLOBAL or not symbol.name or symbol.name in versioned:
            continue
        owners = next((owners for pattern, owners in _OWNERS if pattern.match(symbol.name)), None)
        if owners is None:
            missing.setdefault("", []).append(symbol.name)
        elif owners and not linked.intersection(owners):
            missing.setdefault(owners[0], []).append(symbol.name)
    for library, names in sorted(missing.items()):
        shown = ", ".join(sorted(names)[:8]) + (" ..." if len(names) > 8 else "")
        todo = (
            f"link it to //toolchains/cuda:stub_{library[3:]}"
            if library
            else "add the source or the library that has them"
        )
        yield (
            f"{name} has symbols that nothing provides which it is linked to, so it can't be loaded.\n"
            f"  expected: {f'{library} among its libraries' if library else 'symbols of its libraries, or of tvm_ffi'}\n"
            f"  found:    {shown}; libraries {', '.join(facts.needed) or 'none'}\n"
            f"  To do: {todo}."
        )


def _check_versions(name: str, elf: Elf, facts: ElfFacts, tag: str) -> Iterator[str]:
    declared = _policy_of(tag)
    if not declared:
        yield _unknown_tag(name, tag)
        return
    limits = POLICIES[declared[0]][declared[1]]
    symbols = elf.symbols_by_version()
    for library, versions in sorted(elf.needed_versions().items()):
        for version in sorted(versions):
            namespaced = _namespaced(version)
            namespace, number = namespaced or (version.partition("_")[0], "")
            if namespace not in limits or (number and _number(number) <= _number(limits[namespace])):
                continue
            used = sorted(symbols.get(version, []))
            yield (
                f"{name} needs symbols that {tag} does not have.\n"
                f"  expected: {library} with {namespace}_{limits[namespace]} at most\n"
                f"  found:    {version}: {', '.join(used[:8]) or 'no symbol'}{' ...' if len(used) > 8 else ''}\n"
                f"  To do: link them statically (toolchains/cc:libstdcxx_nonshared does it for libstdc++), do without, or "
                f"give the wheel the tag that it deserves."
            )


def _check_loading(name: str, elf: Elf) -> Iterator[str]:
    """Messages about what a loader refuses, or must not be asked for."""
    dynamic = elf.dynamic()
    for tag, value in (("RPATH", dynamic.rpath), ("RUNPATH", dynamic.runpath)):
        if value is not None:
            yield (
                f"{name} searches directories of its own for libraries.\n"
                f"  expected: no {tag}\n"
                f"  found:    {tag} {value!r}\n"
                f"  To do: take -rpath out of its linkopts."
            )
    if dynamic.textrel:
        yield (
            f"{name} has relocations in its code, which loaders with a security policy refuse.\n"
            f"  expected: neither DT_TEXTREL nor DF_TEXTREL\n"
            f"  found:    text relocations\n"
            f"  To do: compile every object of it with -fPIC."
        )
    stacks = [segment.flags for segment in elf.segments() if segment.type == PT_GNU_STACK]
    # Without the header the psABIs' default counts: executable.
    if not stacks or any(flags & PF_X for flags in stacks):
        yield (
            f"{name} asks for an executable stack.\n"
            f"  expected: a program header PT_GNU_STACK without the flag PF_X\n"
            f"  found:    {', '.join(f'flags {flags:#x}' for flags in stacks) or 'no PT_GNU_STACK'}\n"
            f'  To do: give its assembler files a section .note.GNU-stack, or link with "-z noexecstack".'
        )


def _check_instructions(name: str, elf: Elf, facts: ElfFacts) -> Iterator[str]:
    if not facts.instruction_sets:
        return
    found = list(_beyond_baseline(elf))
    first: dict[str, int] = {}
    for address, extension in found:
        first.setdefault(extension, address)
    rows = [
        f"    {extension}: {count} instructions, the first at {first[extension]:#x}"
        for extension, count in sorted(Counter(extension for _, extension in found).items())
    ]
    yield "\n".join(
        [
            f"{name} has host code that not every {facts.machine} CPU runs.",
            f"  expected: instructions of {_BASELINES[facts.machine]}",
            "  found:",
            *rows,
            "  To do: take -march and -m options out of its copts, or the library that brings such code out of its deps.",
        ]
    )


def _check_paths(name: str, elf: Elf) -> Iterator[str]:
    """Messages about paths of the machine that built it, in what is not compressed."""
    texts = [(str(s), elf.content(s)) for s in _sections(elf) if s.name not in FATBIN_SECTIONS]
    images = [image for fatbin in fatbins(elf) for image in fatbin.images if not image.compression]
    texts += [(f"{image.kind} for {image.sm}", image.payload) for image in images]
    found: dict[str, str] = {}
    for where, content in texts:
        for match in _PATHS.finditer(content):
            before = _BEFORE.search(content[max(match.start() - 200, 0) : match.start()])
            after = _AFTER.match(content, match.start())
            assert before and after
            if not (match[1] and _RELATIVE.search(before[0])):
                found[(before[0] + after[0]).decode()] = where
    if found:
        rows = [f"    {path} ({where})" for path, where in sorted(found.items())]
        yield "\n".join(
            [
                f"{name} contains paths of the machine that built it.",
                "  expected: none, or the same bytes are not built elsewhere",
                "  found:",
                *rows[:10],
                *([f"    and {len(rows) - 10} more"] if len(rows) > 10 else []),
                "  To do: find the compiler option that brings them (-g, --generate-line-info, __FILE__ of an absolute include).",
            ]
        )


def table(facts: Mapping[str, ElfFacts]) -> str:
    """Facts by module name as text, a line for each module."""
    rows: list[tuple[str, ...]] = [("module", "machine", "needed", *_NAMESPACES[:4], "instruction sets")]
    rows += [
        (
            name,
            module.machine,
            " ".join(module.needed),
            *(module.versions.get(namespace, "-") for namespace in _NAMESPACES[:4]),
            " ".join(module.instruction_sets) or "baseline",
        )
        for name, module in facts.items()
    ]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join("  ".join(map(str.ljust, row, widths)).rstrip() for row in rows)


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("module", type=Path, nargs="+")
    parser.add_argument("--cpu", choices=sorted(POLICIES))
    parser.add_argument("--cuda-version", metavar="13.0")
    parser.add_argument("--tag", metavar="manylinux_2_28_<cpu>", help="the wheel's platform tag")
    parser.add_argument("--json", action="store_true", help="for programs")
    args = parser.parse_args()
    if len({args.cpu is None, args.cuda_version is None, args.tag is None}) > 1:
        parser.error("--cpu, --cuda-version and --tag belong together")
    facts: dict[str, ElfFacts] = {}
    problems: list[str] = []
    try:
        for path in args.module:
            elf = Elf(path.read_bytes(), path.name)
            facts[str(path)] = facts_of(elf)
            if args.cpu:
                problems += check(
                    path.name, elf, facts[str(path)], cpu=args.cpu, cuda_version=args.cuda_version, tag=args.tag
                )
    except (ElfError, OSError, ValueError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    print(json.dumps({name: asdict(module) for name, module in facts.items()}, indent=1) if args.json else table(facts))
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
