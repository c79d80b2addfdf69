"""The ELF gate: what it says of real modules, of modules that are built or tampered with to be wrong, and of damaged ones."""

import contextlib
import io
import json
import os
import struct
import subprocess
import sys
import tempfile
import unittest
from dataclasses import asdict
from pathlib import Path
from unittest import mock

import elf_gate
import samples
from elf import PT_GNU_STACK, SHT_DYNAMIC, SHT_GNU_VERNEED, Elf, ElfError
from elf_gate import ElfFacts, check, check_tag, platform_tag, read
from toolchain import module

LABELS = {"cu130": ("x86_64", "13.0"), "cu134": ("aarch64", "13.4")}
REAL = samples.real_modules()
SOURCE = 'extern "C" int add(int a, int b) { return a + b; }\n'


def problems(data: bytes, label: str = "cu130", **changes: str) -> list[str]:
    """What the gate says of a module that is to be what `label` promises, but for `changes` of the promise."""
    cpu, cuda_version = LABELS[label]
    promise = {"cpu": cpu, "cuda_version": cuda_version, "tag": f"manylinux_2_28_{cpu}", **changes}
    elf = Elf(data, "a.so")
    return check("a", elf, read(data, "a.so"), **promise)


def elf_hash(name: str) -> int:
    """The hash function of the gABI, by which vernaux entries name a version."""
    value = 0
    for character in name.encode():
        value = (value << 4) + character
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high & 0xFFFFFFFF
    return value


def renamed(data: bytes, old: str, new: str) -> bytes:
    """A copy with another string in .dynstr, and its hash in .gnu.version_r."""
    assert len(old) == len(new)
    elf, copy = Elf(data, "a.so"), bytearray(data)
    for name, before, after in (
        (".dynstr", b"\0" + old.encode() + b"\0", b"\0" + new.encode() + b"\0"),
        (".gnu.version_r", struct.pack("<I", elf_hash(old)), struct.pack("<I", elf_hash(new))),
    ):
        section = elf.section(name)
        assert section
        content = bytes(elf.content(section))
        assert before in content or name == ".gnu.version_r"
        copy[section.offset : section.offset + section.size] = content.replace(before, after)
    return bytes(copy)


def with_dynamic_tag(data: bytes, tag: int, value: int) -> bytes:
    """A copy whose DT_RELACOUNT, which loaders need not know, is another tag."""
    elf, copy = Elf(data, "a.so"), bytearray(data)
    [section] = [section for section in elf.sections if section.type == SHT_DYNAMIC]
    for offset in range(section.offset, section.offset + section.size, 16):
        if struct.unpack_from("<Q", data, offset) == (0x6FFFFFF9,):
            struct.pack_into("<QQ", copy, offset, tag, value)
            return bytes(copy)
    raise AssertionError


class RealTest(unittest.TestCase):
    def test_facts(self) -> None:
        self.assertEqual(
            asdict(read(REAL["cu130"], "a.so")),
            {
                "machine": "x86_64",
                "needed": ("libcudart.so.13", "libstdc++.so.6", "libgcc_s.so.1", "libc.so.6"),
                "versions": {"CXXABI": "1.3", "GCC": "3.0", "GLIBC": "2.2.5"},
                "glibc": "2.2.5",
                "instruction_sets": (),
            },
        )
        facts = read(REAL["cu134"], "a.so")
        self.assertEqual((facts.machine, facts.glibc, facts.instruction_sets), ("aarch64", "2.17", ()))

    def test_nothing_is_wrong(self) -> None:
        for label, data in REAL.items():
            self.assertEqual(problems(data, label), [])

    def test_tag(self) -> None:
        for label, data in REAL.items():
            cpu = LABELS[label][0]
            facts = read(data, "a.so")
            self.assertEqual(platform_tag([facts], cpu), f"manylinux_2_28_{cpu}")
            self.assertIsNone(check_tag("a.whl", f"manylinux_2_28_{cpu}", {"a": facts}))


class WrongTest(unittest.TestCase):
    def problem(self, data: bytes, label: str = "cu130", **changes: str) -> str:
        [message] = problems(data, label, **changes)
        return message

    def says(self, message: str, *parts: str) -> None:
        for part in (*parts, "  expected: ", "  found:", "  To do: "):
            self.assertIn(part, message)

    def test_machine(self) -> None:
        message = self.problem(REAL["cu130"], cpu="aarch64")
        self.says(message, "a is for another machine", "expected: aarch64", "found:    x86_64")
        with self.assertRaisesRegex(ElfError, r"a.so: ELF header: expected machine 62 \(x86_64\) or 183 .*, found 190"):
            read(samples.elf({}, machine=190), "a.so")

    def test_symbols_that_nothing_provides(self) -> None:
        """A loader that resolves all symbols would refuse it; the driver, for one, is not linked."""
        call = 'extern "C" int {0}(); extern "C" int add() {{ return {0}(); }}\n'
        for cpu, label in (("x86_64", "cu130"), ("aarch64", "cu134")):
            message = self.problem(module(cpu, call.format("cuGetErrorName")), label)
            self.says(
                message, "a has symbols that nothing provides", "expected: libcuda among", "found:    cuGetErrorName;"
            )
            self.says(message, "//toolchains/cuda:stub_cuda")
            message = self.problem(module(cpu, "int other(); int add() { return other(); }\n"), label)
            self.says(
                message,
                "symbols of its libraries, or of tvm_ffi",
                "found:    _Z5otherv;",
                "add the source or the library",
            )
            # The library that loads a module has these.
            self.assertEqual(problems(module(cpu, call.format("TVMFFIErrorSetRaised")), label), [])
            # A weak one may be missing.
            weak = 'extern "C" int __attribute__((weak)) f(); extern "C" int add() { return f ? f() : 0; }\n'
            self.assertEqual(problems(module(cpu, weak), label), [])

    def test_symbols_of_libraries_without_versions(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            stub = Path(directory, "libcuda.so")
            stub.write_bytes(module("x86_64", 'extern "C" int cuInit() { return 0; }\n', "-Wl,-soname,libcuda.so.1"))
            source = 'extern "C" int cuInit(); extern "C" int add() { return cuInit(); }\n'
            data = module("x86_64", source, str(stub))
        self.assertEqual(problems(data), [])

    def test_glibc(self) -> None:
        data = renamed(REAL["cu134"], "GLIBC_2.17", "GLIBC_2.34")
        message = self.problem(data, "cu134")
        self.says(
            message, "a needs symbols that manylinux_2_28_aarch64 does not have", "libc.so.6 with GLIBC_2.28 at most"
        )
        self.says(message, "found:    GLIBC_2.34: __cxa_atexit, __cxa_finalize")
        facts = read(data, "a.so")
        self.assertEqual((facts.glibc, facts.versions["GLIBC"]), ("2.34", "2.34"))
        self.assertEqual(platform_tag([facts], "aarch64"), "manylinux_2_34_aarch64")
        self.assertEqual(
            check_tag("w.whl", "manylinux_2_28_aarch64", {"a": read(REAL["cu134"], "a.so"), "b": facts}),
            "w.whl does not have the platform tag that its modules deserve.\n"
            "  expected: manylinux_2_34_aarch64, by the symbol versions that they need\n"
            "  found:    manylinux_2_28_aarch64\n"
            "  b needs GLIBC_2.34; manylinux_2_28 has up to 2.28\n"
            "  To do: link what is too new statically (toolchains/cc:libstdcxx_nonshared does it for libstdc++), or "
            "declare the tag that they deserve.",
        )

    def test_glibc_private(self) -> None:
        source = '__asm__(".symver f, f@GLIBC_PRIVATE"); extern "C" int f(); extern "C" int g() { return f(); }'
        library = '__asm__(".symver h, f@@GLIBC_PRIVATE"); extern "C" int h() { return 1; }'
        with tempfile.TemporaryDirectory() as directory:
            script, other = Path(directory, "map"), Path(directory, "libc.so.6")
            script.write_text("GLIBC_PRIVATE { f; };")
            other.write_bytes(module("x86_64", library, f"-Wl,--version-script={script}", "-Wl,-soname,libc.so.6"))
            data = module("x86_64", source, str(other))
        [message] = [message for message in problems(data) if "GLIBC_PRIVATE" in message]
        self.says(message, "found:    GLIBC_PRIVATE: f")

    def test_libstdcxx(self) -> None:
        """The default constructor of std::ostringstream is newer in GCC 10 than manylinux_2_28 has it."""
        source = "#include <sstream>\nvoid* f() { return new std::ostringstream; }\n"
        for label, (cpu, _) in LABELS.items():
            data = module(cpu, source, "-O0")
            message = self.problem(data, label)
            self.says(
                message,
                "libstdc++.so.6 with GLIBCXX_3.4.24 at most",
                "GLIBCXX_3.4.26: _ZNSt7__cxx1119basic_ostringstream",
            )
            self.assertEqual(platform_tag([read(data, "a.so")], cpu), f"manylinux_2_31_{cpu}")

    def test_cuda_of_another_major(self) -> None:
        for label in REAL:
            data = renamed(REAL[label], "libcudart.so.13", "libcudart.so.12")
            message = self.problem(data, label)
            self.says(message, "of another CUDA version", "expected: libcudart.so.13", "found:    libcudart.so.12")
            self.assertEqual(problems(data, label, cuda_version="12.9"), [])
        message = self.problem(REAL["cu130"], cuda_version="12.8")
        self.says(message, "expected: libcudart.so.12, of CUDA 12.8", "found:    libcudart.so.13")

    def test_cuda_libraries_with_numbers_of_their_own(self) -> None:
        for version, found in (("12.8", "11 10 11 12"), ("13.4", "12 10 12 12")):
            names = ("cufft", "curand", "cusolver", "cusparse")
            expected = {f"lib{name}.so.{number}" for name, number in zip(names, found.split(), strict=True)}
            self.assertLessEqual(expected, elf_gate.cuda_libraries(version))
        data = renamed(REAL["cu130"], "libcudart.so.13", "libcufft.so.011")
        self.says(self.problem(data), "expected: libcufft.so.12", "found:    libcufft.so.011")
        with self.assertRaisesRegex(ValueError, r"CUDA 14\.0: .*_CUDA_LIBRARIES"):
            problems(REAL["cu130"], cuda_version="14.0")

    def test_other_library(self) -> None:
        data = renamed(REAL["cu130"], "libcudart.so.13", "libopenblas.so0")
        self.says(self.problem(data), "a library that is not everywhere", "found:    libopenblas.so0", "libtvm_ffi.so")

    def test_rpath(self) -> None:
        for tag, name in ((15, "RPATH"), (29, "RUNPATH")):
            message = self.problem(with_dynamic_tag(REAL["cu130"], tag, 1))
            self.says(message, "searches directories of its own", f"expected: no {name}\n", f"found:    {name} '")
        built = module("aarch64", SOURCE, "-Wl,-rpath,$ORIGIN/../lib")
        self.says(self.problem(built, "cu134"), "found:    RUNPATH '$ORIGIN/../lib'")

    def test_text_relocations(self) -> None:
        for tag, value in ((22, 0), (30, 4)):
            self.says(self.problem(with_dynamic_tag(REAL["cu134"], tag, value), "cu134"), "found:    text relocations")
        source = '.text\n.globl f\nf: ret\n.quad abort\n.section .note.GNU-stack,"",@progbits\n'
        [message, *_] = problems(module("x86_64", source, language="assembler"))
        self.says(message, "found:    text relocations")

    def test_executable_stack(self) -> None:
        for label, (cpu, _) in LABELS.items():
            message = self.problem(module(cpu, SOURCE, "-Wl,-z,execstack"), label)
            self.says(message, "a asks for an executable stack", "found:    flags 0x7")
            copy = bytearray(REAL[label])
            (table,), (count,) = struct.unpack_from("<Q", copy, 32), struct.unpack_from("<H", copy, 56)
            [header] = [
                offset
                for offset in range(table, table + 56 * count, 56)
                if struct.unpack_from("<I", copy, offset) == (PT_GNU_STACK,)
            ]
            struct.pack_into("<I", copy, header, 0)
            self.says(self.problem(bytes(copy), label), "found:    no PT_GNU_STACK")

    def test_instructions(self) -> None:
        loop = 'extern "C" void f(int* p, int n) { for (int i = 0; i < n; ++i) p[i] = p[i] * p[i]; }\n'
        atomic = "#include <atomic>\nint f(std::atomic<int>& a) { return a.fetch_add(1); }\n"
        half = 'extern "C" void f(__fp16* p) { for (int i = 0; i < 64; ++i) p[i] = p[i] * p[i]; }\n'
        count = 'extern "C" int f(unsigned long x) { return __builtin_popcountl(x); }\n'
        for label, source, flag, expected in (
            ("cu130", loop, "-mavx2", {"AVX", "AVX2"}),
            ("cu130", loop, "-msse4.1", {"SSE4.1"}),
            ("cu130", loop, "-march=skylake-avx512", {"AVX", "AVX2"}),
            ("cu130", count, "-mpopcnt", {"POPCNT"}),
            ("cu130", loop, "-march=x86-64", set()),
            ("cu134", atomic, "-march=armv8.2-a", {"LSE"}),
            ("cu134", half, "-march=armv8.2-a+fp16", {"FP16"}),
            ("cu134", loop, "-march=armv8.2-a+sve", {"SVE"}),
            ("cu134", atomic, "-march=armv8-a", set()),
            ("cu134", atomic, "-moutline-atomics", set()),
        ):
            with self.subTest(flag=flag):
                cpu = LABELS[label][0]
                data = module(cpu, source, flag, "-O3")
                found = set(read(data, "a.so").instruction_sets)
                self.assertEqual(found & expected if "avx512" in flag else found, expected)
                messages = problems(data, label)
                self.assertEqual(len(messages), bool(expected))
                if messages:
                    self.says(messages[0], f"a has host code that not every {cpu} CPU runs", "the first at 0x")
        outlined = module("aarch64", atomic, "-moutline-atomics")
        self.assertIn(struct.pack("<I", 0xB8E00020), outlined)  # ldaddal w0, w0, [x1]

    def test_padding(self) -> None:
        """A zero between two functions is no part of the second, whose beginning is in .eh_frame_hdr."""
        function = ".globl {0}\n.type {0}, @function\n{0}: .cfi_startproc\n{1}\nret\n.cfi_endproc\n"
        end = '.section .note.GNU-stack,"",@progbits\n'
        for code, expected in (("mov (%rbx), %rdi", ()), ("vpxor %ymm0, %ymm0, %ymm0", ("AVX2",))):
            source = ".text\n" + function.format("f", "nop") + ".byte 0\n" + function.format("g", code) + end
            data = module("x86_64", source, language="assembler")
            self.assertEqual(read(data, "a.so").instruction_sets, expected)
        elf, copy = Elf(data, "a.so"), bytearray(data)
        section = elf.section(".eh_frame_hdr")
        assert section
        struct.pack_into("<I", copy, section.offset + 8, 1 << 31)
        with self.assertRaisesRegex(ElfError, "section '.eh_frame_hdr': expected 2147483648 entries within its"):
            read(bytes(copy), "a.so")

    def test_paths(self) -> None:
        for path in (f"/{top}/me/a.h" for top in ("home", "root", "tmp", "var/tmp", "b/execroot")):
            data = module("x86_64", f'extern "C" const char* f() {{ return "see:{path}"; }}\n')
            message = self.problem(data)
            self.says(message, "paths of the machine that built it", f"    see:{path} (section '.rodata")
        for text in (
            "external/home/a.h",
            "include/home/me/a.h",
            "/usr/include/stdio.h",
            "/proc/self/cwd/a.cc",
            "/tmp/",
            "a/tmp/bcd",
        ):
            data = module("x86_64", f'extern "C" const char* f() {{ return "{text}"; }}\n')
            self.assertEqual(problems(data), [])

    def test_paths_in_device_code(self) -> None:
        """In an image that is not compressed."""
        name, path = b"_Z5scaleIfEvPT_S0_", b"/home/me/scale.cuh"
        data = REAL["cu134"].replace(b"\0" + name + b"\0", b"\0" + path + b"\0")
        self.assertNotEqual(data, REAL["cu134"])
        self.says(self.problem(data, "cu134"), f"    {path.decode()} (sass for ")

    def test_many_paths(self) -> None:
        names = "".join(f'extern "C" const char* f{i}() {{ return "/home/me/{i:02}.h"; }}\n' for i in range(12))
        self.assertIn("    and 2 more\n", self.problem(module("x86_64", names)))

    def test_unknown_tag(self) -> None:
        for tag in ("linux_x86_64", "manylinux_2_5_x86_64", "manylinux_2_28_riscv64", "any"):
            self.says(
                self.problem(REAL["cu130"], tag=tag),
                "a has a platform tag whose policy is not known",
                f"found:    {tag}",
            )
            message = check_tag("w.whl", tag, {"a": read(REAL["cu130"], "a.so")})
            assert message
            self.says(message, "w.whl has a platform tag", "manylinux_2_28_<cpu>")

    def test_several_at_once(self) -> None:
        data = renamed(
            module("aarch64", 'extern "C" void abort(); void f() { abort(); }', "-Wl,-rpath,/x", "-Wl,-z,execstack"),
            "libc.so.6",
            "libc.so.7",
        )
        self.assertEqual(len(problems(data)), 4)  # and the machine


class TagTest(unittest.TestCase):
    def facts(self, **versions: str) -> ElfFacts:
        return ElfFacts("x86_64", (), versions, versions.get("GLIBC"), ())

    def test_each_namespace_counts(self) -> None:
        for versions, policy in (
            ({}, "2_28"),
            ({"GLIBC": "2.28"}, "2_28"),
            ({"GLIBC": "2.29"}, "2_31"),
            ({"GLIBC": "2.4"}, "2_28"),  # not 2.40
            ({"GLIBC": "2.2.5", "GLIBCXX": "3.4.30"}, "2_35"),
            ({"CXXABI": "1.3.13"}, "2_34"),
            ({"GCC": "12.0.0"}, "2_35"),
            ({"ZLIB": "1.2.12"}, "2_37"),
            ({"OTHER": "99"}, "2_28"),
        ):
            self.assertEqual(platform_tag([self.facts(**versions)], "x86_64"), f"manylinux_{policy}_x86_64")
        self.assertEqual(platform_tag([self.facts(GLIBC="2.99")], "x86_64"), "linux_x86_64")

    def test_the_most_demanding_module_counts(self) -> None:
        modules = [self.facts(GLIBC="2.17"), self.facts(GLIBCXX="3.4.29"), self.facts(GLIBC="2.31")]
        self.assertEqual(platform_tag(modules, "x86_64"), "manylinux_2_34_x86_64")

    def test_floor(self) -> None:
        self.assertEqual(platform_tag([], "aarch64", floor="2.34"), "manylinux_2_34_aarch64")
        with self.assertRaisesRegex(ValueError, r"floor: expected one of 2\.28, 2\.31, .*, found 2\.30"):
            platform_tag([], "x86_64", floor="2.30")

    def test_a_tag_that_is_higher_than_deserved(self) -> None:
        message = check_tag("w.whl", "manylinux_2_34_x86_64", {"a": self.facts(GLIBC="2.17")})
        assert message
        self.assertIn("expected: manylinux_2_28_x86_64", message)
        self.assertIn("no module needs more than manylinux_2_28_x86_64 has", message)

    def test_a_module_for_another_machine(self) -> None:
        message = check_tag("w.whl", "manylinux_2_28_aarch64", {"a": self.facts()})
        assert message
        self.assertIn("\n  a is for x86_64\n", message)


class DamagedTest(samples.DamageTest):
    def test_a_damaged_module(self) -> None:
        for label, at_least in (("cu130", 30), ("cu134", 30)):
            with self.subTest(label=label):
                data = REAL[label]
                elf = Elf(data, "a.so")
                sections, programs = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<Q", data, 32)[0]
                names = (
                    ".dynamic",
                    ".dynsym",
                    ".dynstr",
                    ".gnu.version",
                    ".gnu.version_r",
                    ".eh_frame_hdr",
                    ".text",
                    ".plt",
                    ".nv_fatbin",
                )
                hot = [0, programs, *(section.offset for section in elf.sections if section.name in names)]
                self.survives(
                    lambda copy, label=label: problems(copy, label),  # type: ignore[misc]
                    data,
                    [*hot, *range(sections, len(data), 64)],
                    at_least,
                )

    def test_sections_that_overlap(self) -> None:
        """A file of n bytes whose n/64 sections are all of it would take n*n/64 bytes of looking."""
        data = bytearray(samples.elf({f".text{i}": (1, bytes(64)) for i in range(8)}))
        table, count = struct.unpack_from("<Q", data, 40)[0], struct.unpack_from("<H", data, 60)[0]
        for header in range(table + 64, table + 64 * (count - 1), 64):
            struct.pack_into("<QQQQ", data, header + 8, 6, 0, 0, len(data))
        with self.assertRaisesRegex(ElfError, "sections that do not overlap"):
            read(bytes(data), "a.so")

    def test_no_end_of_prefixes(self) -> None:
        """Code that could be read as many things is read in one way."""
        for code in (b"\x66" * (1 << 20), b"\xf0\x66\xf2" * (1 << 18), b"\x0f\x0f" * (1 << 19), bytes(1 << 20)):
            elf = bytearray(samples.elf({".text": (1, code)}))
            table = struct.unpack_from("<Q", elf, 40)[0]
            struct.pack_into("<Q", elf, table + 64 + 8, 6)
            self.assertIsInstance(read(bytes(elf), "a.so"), ElfFacts)

    def test_program_headers(self) -> None:
        for offset, form, value, words in (
            (54, "<H", 55, "program headers of 56 bytes, found 55"),
            (32, "<Q", 1 << 60, "program headers: expected an end within"),
            (56, "<H", 0xFFFF, "executable stack"),  # their number is in section header 0: none
        ):
            data = bytearray(REAL["cu130"])
            struct.pack_into(form, data, offset, value)
            with self.subTest(words=words):
                if "expected" in words or "found" in words:
                    with self.assertRaisesRegex(ElfError, words):
                        problems(bytes(data))
                else:
                    self.assertIn(words, problems(bytes(data))[0])

    def test_symbol_versions(self) -> None:
        elf = Elf(REAL["cu130"], "a.so")
        [section] = [section for section in elf.sections if section.type == SHT_GNU_VERNEED]
        self.assertIn("libcudart.so.13", elf.symbols_by_version())
        self.assertIn("__cudaRegisterFatBinary", elf.symbols_by_version()["libcudart.so.13"])
        data = bytearray(REAL["cu130"])
        data[section.offset] = 9
        with self.assertRaisesRegex(ElfError, "entries of version 1, found 9"):
            read(bytes(data), "a.so")


class CommandLineTest(unittest.TestCase):
    def run_main(self, *arguments: str) -> tuple[int, str, str]:
        out, err = io.StringIO(), io.StringIO()
        with (
            mock.patch.object(sys, "argv", ["elf_gate.py", *arguments]),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            return elf_gate.main(), out.getvalue(), err.getvalue()

    def setUp(self) -> None:
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.path = Path(directory.name, "a.so")
        self.path.write_bytes(REAL["cu130"])

    def test_table(self) -> None:
        status, out, err = self.run_main(str(self.path))
        self.assertEqual((status, err), (0, ""))
        header, row = out.splitlines()
        self.assertEqual(header.split()[:3], ["module", "machine", "needed"])
        self.assertEqual((row.split()[0], row.split()[-1]), (str(self.path), "baseline"))

    def test_json(self) -> None:
        _, out, _ = self.run_main("--json", str(self.path))
        self.assertEqual(json.loads(out)[str(self.path)]["glibc"], "2.2.5")

    def test_check(self) -> None:
        promise = ["--cpu", "x86_64", "--cuda-version", "13.0", "--tag", "manylinux_2_28_x86_64", str(self.path)]
        self.assertEqual(self.run_main(*promise)[::2], (0, ""))
        status, out, err = self.run_main(*[word.replace("13.0", "12.9") for word in promise])
        self.assertEqual((status, bool(out)), (1, True))
        self.assertIn("error: a.so is linked to a library of another CUDA version", err)

    def test_errors(self) -> None:
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            self.run_main("--cpu", "x86_64", str(self.path))
        self.path.write_bytes(b"")
        self.assertEqual(
            self.run_main(str(self.path)), (1, "", "error: a.so: ELF header: expected 64 bytes, found 0 bytes\n")
        )
        status, _, err = self.run_main(str(self.path) + ".missing")
        self.assertEqual((status, "No such file" in err), (1, True))

    def test_as_a_program(self) -> None:
        command = [sys.executable, "-S", elf_gate.__file__, str(self.path)]
        self.assertEqual(subprocess.run(command, capture_output=True, env={**os.environ}, check=False).returncode, 0)


if __name__ == "__main__":
    unittest.main()
