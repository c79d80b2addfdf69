"""What is beyond the baseline CPU, against what binutils knows: objdump names an instruction, as asks which CPU it takes."""

import itertools
import random
import re
import struct
import tempfile
import unittest
from collections.abc import Iterator, Sequence
from pathlib import Path

import instructions_aarch64
import instructions_x86_64
from toolchain import tool


def disassembled(cpu: str, machine: str, code: bytes) -> list[tuple[int, str]]:
    """Offset and text of each instruction that objdump finds."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "code")
        path.write_bytes(code)
        said = tool(cpu, "objdump", "-Dw", "-b", "binary", "-m", machine, "--no-show-raw-insn", path)
    lines = re.findall(r"^ *([0-9a-f]+):\t(.*)$", said, re.MULTILINE)
    return [(int(offset, 16), re.sub(r"\s*(#|//).*", "", text).strip()) for offset, text in lines]


def refused(cpu: str, march: str, texts: Sequence[str]) -> dict[int, str]:
    """What `as` says of those instructions that it does not assemble, by their index."""
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, "code.s")
        path.write_text("\n".join(texts) + "\n")
        said = tool(cpu, "as", f"-march={march}", path, "-o", Path(directory, "code.o"), check=False)
    return {int(line) - 1: why for line, why in re.findall(r"\.s:(\d+): Error: (.*)", said)}


class X8664Test(unittest.TestCase):
    # What follows each instruction keeps objdump in step with the slots.
    SLOT = 32
    TAIL = bytes([1, 2, 3, 4, 5, 6, 7, 8])
    PREFIXES = (b"", b"\x66", b"\xf2", b"\xf3", b"\x48", b"\x66\x48", b"\xf3\x48")
    # Opcodes of which ModRM says which instruction it is.
    GROUPS = {
        b"": (*range(0x80, 0x84), 0x8F, 0xC0, 0xC1, 0xC6, 0xC7, *range(0xD0, 0xD4), *range(0xD8, 0xE0), 0xF6, 0xF7, 0xFE, 0xFF),
        b"\x0f": (0x00, 0x01, 0x0D, 0x18, 0x1E, 0x71, 0x72, 0x73, 0xAE, 0xBA, 0xC7),
    }  # fmt: skip
    # A CPU without these does something else that is as good, or nothing.
    HARMLESS = r"tzcnt|endbr|rdssp|bnd|cldemote"
    # Not assembled as it was disassembled; or said to be of the baseline, but not by the psABI.
    AMBIGUOUS = r"pextrw|lahf|sahf"
    OPERATING_SYSTEM = (
        r"clts|invd|w?b?(no)?invd|lmsw|smsw|rdmsr|wrmsr|rdpmc|swapgs|sysexit|sysret|vm|getsec|inv(ept|vpid|pcid)|xcrypt|xsha|xstore|"
        r"montmul|xresldtrk|xsusldtrk|[ls][gi]dt|invlpg|rstorssp|mov +%[cdt][rb]|mov +.*,%[cdt][rb]|skinit|stgi|clgi|setssbsy|clrssbsy|encl|xsetbv|"
        r"saveprevssp|str|sldt|monitor|mcommit|pconfig|rdpru"
    )

    def instructions(self) -> Iterator[bytes]:
        """An instruction of each opcode of each map, with each prefix that changes its meaning."""
        prefixes_and_vex = _set("26 2e 36 3e 40-4f 62 64-67 8f c4 c5 f0 f2 f3 0f")
        for escape in (b"", b"\x0f", b"\x0f\x38", b"\x0f\x3a"):
            for opcode in range(256):
                if (not escape and opcode in prefixes_and_vex) or (escape == b"\x0f" and opcode in (0x38, 0x3A)):
                    continue
                group = opcode in self.GROUPS.get(escape, ())
                modrms = [*range(0, 0x40, 8), *range(0xC1, 0x100, 8), 0xC8, 0xD0, 0xF8] if group else [0x00, 0xC1]
                for prefix in self.PREFIXES:
                    for modrm in modrms:
                        yield prefix + escape + bytes([opcode, modrm]) + self.TAIL
        for addressing in (b"\x44\x24", b"\x84\x24", b"\x04\x25", b"\x04\x24", b"\x05", b"\x45", b"\x85", b"\x40"):
            for start in (
                b"\x8b",
                b"\x0f\x28",
                b"\x81",
                b"\x83",
                b"\x66\x81",
                b"\x48\x81",
                b"\x48\x69",
                b"\xff",
                b"\xf7",
            ):
                yield start + addressing + self.TAIL
        for vex_map in (1, 2, 3):
            for opcode in range(256):
                for pp in range(4):
                    for wide in (0, 0x80):
                        for modrm in (0x00, 0xC1):
                            yield bytes([0xC4, 0xE0 | vex_map, wide | 0x70 | pp, opcode, modrm]) + self.TAIL
                            yield bytes([0xC4, 0xE0 | vex_map, wide | 0x74 | pp, opcode, modrm]) + self.TAIL
                            yield bytes([0x62, 0xF0 | vex_map, wide | 0x74 | pp, 0x48, opcode, modrm]) + self.TAIL

    def test_as_binutils_has_it(self) -> None:
        slots = list(self.instructions())
        code = b"".join(slot.ljust(self.SLOT, b"\x90") for slot in slots)
        found = disassembled("x86_64", "i386:x86-64", code)
        lengths = {start: end - start for (start, _), (end, _) in itertools.pairwise(found)}
        cases = []
        for offset, text in found:
            slot = slots[offset // self.SLOT] if offset % self.SLOT == 0 else b""
            size = lengths.get(offset, 99)
            # A jump's operand size of 16 bits differs between vendors, and nobody uses it; prefixes alone are no instruction.
            if size > len(slot) or "(bad)" in text or re.match(r"(data16|rex|rep|lock|j\w+ |call|xbegin|loop)", text):
                continue
            cases.append((slot[:size], text))
        self.assertGreater(len(cases), 5000)
        why = refused("x86_64", "generic64", [text for _, text in cases])
        counts = {"baseline": 0, "extension": 0}
        for index, (instruction, text) in enumerate(cases):
            beyond = "not supported on" in why.get(index, "")
            if (index in why and not beyond) or re.match(self.AMBIGUOUS, text):
                continue
            names = [name for _, name in instructions_x86_64.extensions(instruction)]
            with self.subTest(instruction=instruction.hex(), text=text):
                if re.match(self.OPERATING_SYSTEM, text) and names:
                    continue
                if beyond and not re.match(self.HARMLESS, text):
                    self.assertEqual(len(names), 1)
                    self.assertNotEqual(names, ["unknown"])
                    counts["extension"] += 1
                else:
                    self.assertEqual(names, [])
                    counts["baseline"] += 1
                if len(instruction) > 1 and instruction[0]:
                    names = [name for _, name in instructions_x86_64.extensions(instruction[:-1])]
                    self.assertEqual(names[-1:], ["unknown"], "it is longer")
        print(counts)
        self.assertGreater(counts["baseline"], 2000)
        self.assertGreater(counts["extension"], 2000)

    def test_names(self) -> None:
        texts = {
            "AES": "aesenc %xmm0, %xmm1",
            "AVX": "vaddps %ymm0, %ymm1, %ymm2; vpaddd %xmm0, %xmm1, %xmm2; vzeroupper",
            "AVX2": "vpaddd %ymm0, %ymm1, %ymm2; vpermq $1, %ymm0, %ymm1; vpgatherdd %ymm0, (%rax,%ymm1), %ymm2",
            "AVX512": "vpaddd %zmm0, %zmm1, %zmm2; vpaddd %ymm0, %ymm1, %ymm20; kmovw %eax, %k1; vpdpbusd %ymm0, %ymm1, %ymm2",
            "BMI1": "andn %eax, %ebx, %ecx; bextr %eax, %ebx, %ecx; blsr %eax, %ebx",
            "BMI2": "mulx %eax, %ebx, %ecx; pdep %eax, %ebx, %ecx; rorx $1, %eax, %ebx; shlx %eax, %ebx, %ecx",
            "CMPXCHG16B": "lock cmpxchg16b (%rax)",
            "F16C": "vcvtph2ps %xmm0, %ymm1",
            "FMA": "vfmadd213ps %ymm0, %ymm1, %ymm2",
            "LZCNT": "lzcnt %eax, %ebx",
            "MOVBE": "movbe (%rax), %ebx",
            "PCLMULQDQ": "pclmulqdq $1, %xmm0, %xmm1",
            "POPCNT": "popcnt %rax, %rbx",
            "RDRAND": "rdrand %eax",
            "SSE3": "haddps %xmm0, %xmm1; movddup %xmm0, %xmm1; fisttpl (%rax); lddqu (%rax), %xmm0",
            "SSE4.1": "pmulld %xmm0, %xmm1; pextrd $1, %xmm0, %eax; roundps $1, %xmm0, %xmm1",
            "SSE4.2": "crc32b %al, %ebx; pcmpgtq %xmm0, %xmm1",
            "SSSE3": "pshufb %xmm0, %xmm1; palignr $1, %xmm0, %xmm1",
            "VAES": "vaesenc %ymm0, %ymm1, %ymm2",
        }
        for name, text in texts.items():
            code = assembled("x86_64", text)
            with self.subTest(name=name):
                found = [extension for _, extension in instructions_x86_64.extensions(code)]
                self.assertEqual(found, [name] * len(text.split(";")))

    def test_baseline(self) -> None:
        text = (
            "rep bsf %rax, %rbx; endbr64; pause; mfence; movnti %eax, (%rax); cmpxchg8b (%rax); cpuid; ud2; rep stosq; "
        )
        text += "data16 lea 1(%rip), %rdi; .byte 0x66, 0x66, 0x48, 0xe8, 0, 0, 0, 0; movabs $1, %rax; fildll (%rax); sqrtpd %xmm0, %xmm0"
        self.assertEqual(list(instructions_x86_64.extensions(assembled("x86_64", text))), [])

    def test_data_in_an_instruction(self) -> None:
        """An immediate may look like an instruction."""
        code = assembled("x86_64", "movabs $0xfdc5fdc5fdc5fdc5, %rax; mov $0xc0580f62, %eax")
        self.assertEqual(list(instructions_x86_64.extensions(code)), [])

    def test_padding(self) -> None:
        for zeros in range(4):
            self.assertEqual(list(instructions_x86_64.extensions(b"\xc3" + bytes(zeros))), [])

    def test_what_cannot_be_read(self) -> None:
        for code in (b"\x06", b"\x90\xe8\0", b"\x66" * 20, b"\x0f", b"\xc5", b"\x62\xf1", b"\x0f\x3a\xff\0\0"):
            [(_, name)] = instructions_x86_64.extensions(code)
            self.assertEqual(name, "unknown")


def _set(text: str) -> frozenset[int]:
    return instructions_x86_64._set(text)


def assembled(cpu: str, text: str) -> bytes:
    """The machine code of instructions."""
    with tempfile.TemporaryDirectory() as directory:
        source, output, code = (Path(directory, name) for name in ("a.s", "a.o", "a"))
        source.write_text(text.replace(";", "\n") + "\n")
        tool(
            cpu, "as", *(["-march=armv8.5-a+sve+fp16+crypto+crc+rng"] if cpu == "aarch64" else []), source, "-o", output
        )
        tool(cpu, "objcopy", "-O", "binary", "-j", ".text", output, code)
        return code.read_bytes()


class Aarch64Test(unittest.TestCase):
    # as refuses an alias of a newer architecture, or objdump reads what is no instruction; and system registers go by
    # numbers that as takes whatever they mean.
    AMBIGUOUS = r"bfc|fml[as]l|msr|mrs|sysl?\b"
    EVERYTHING = (
        "armv8.6-a+crypto+sve2+sve2-aes+sve2-sm4+sve2-sha3+sve2-bitperm+memtag+rng+fp16+fp16fml+sm4+sha3+profile+tme+predres+ssbs+"
        "sb+i8mm+bf16+f32mm+f64mm+crc+lse+rdma+rcpc+dotprod+compnum+aes+sha2"
    )  # fmt: skip

    def test_as_binutils_has_it(self) -> None:
        generator = random.Random(1)
        words = [
            generator.getrandbits(32) & ~mask | value
            for mask, value, _ in instructions_aarch64._ROWS
            for _ in range(40)
        ]
        words += [generator.getrandbits(32) for _ in range(20000)]
        cases = [
            (words[offset // 4], text)
            for offset, text in disassembled("aarch64", "aarch64", struct.pack(f"<{len(words)}I", *words))
            if not re.match(rf"\.inst|undefined|{self.AMBIGUOUS}", text) and "NYI" not in text
        ]
        texts = [text for _, text in cases]
        impossible = refused("aarch64", self.EVERYTHING, texts)
        beyond = refused("aarch64", "armv8-a", texts)
        counts = {"baseline": 0, "extension": 0}
        for index, (word, text) in enumerate(cases):
            if index not in impossible:
                name = instructions_aarch64.extension(word)
                with self.subTest(word=hex(word), text=text):
                    self.assertEqual(bool(name), index in beyond, name or "baseline")
                    self.assertNotEqual(name, "unknown")
                counts["extension" if name else "baseline"] += 1
        print(counts)
        self.assertGreater(counts["baseline"], 4000)
        self.assertGreater(counts["extension"], 2000)

    def test_names(self) -> None:
        texts = {
            "AES": "aese v0.16b, v1.16b",
            "CRC32": "crc32cb w0, w1, w2",
            "DOTPROD": "sdot v0.4s, v1.16b, v2.16b; udot v0.4s, v1.16b, v2.4b[1]",
            "FCMA": "fcadd v0.4s, v1.4s, v2.4s, #90; fcmla v0.4s, v1.4s, v2.s[0], #90",
            "FP16": "fadd v0.8h, v1.8h, v2.8h; fadd h0, h1, h2; fcvtzs w0, h1; fmla v0.8h, v1.8h, v2.h[1]",
            "JSCVT": "fjcvtzs w0, d1",
            "LSE": "ldadd w0, w1, [x2]; casal x0, x1, [x2]; casp x0, x1, x2, x3, [x4]; swpa w0, w1, [x2]; stset x0, [x1]",
            "PAUTH": "pacia x0, x1; retaa; ldraa x0, [x1]",
            "PMULL": "pmull v0.1q, v1.1d, v2.1d",
            "RCPC": "ldapr w0, [x1]",
            "RDM": "sqrdmlah v0.4s, v1.4s, v2.4s",
            "RNG": "mrs x0, rndr",
            "SHA2": "sha256h q0, q1, v2.4s",
            "SVE": "ptrue p0.b; ld1w z0.s, p0/z, [x0]",
        }
        for name, text in texts.items():
            code = assembled("aarch64", text)
            with self.subTest(name=name):
                found = [extension for _, extension in instructions_aarch64.extensions(code)]
                self.assertEqual(found, [name] * len(text.split(";")))

    def test_baseline(self) -> None:
        text = "paciasp; bti c; autiasp; fcvt s0, h1; mrs x0, tpidr_el0; mrs x0, cntvct_el0; dc zva, x0; ldxr x0, [x1]; udf #0"
        self.assertEqual(list(instructions_aarch64.extensions(assembled("aarch64", text))), [])

    def test_outline_atomics(self) -> None:
        """An atomic that is skipped on a CPU without it, as in libgcc, and what only looks like that."""
        guard = "adrp x16, 0; ldrb w16, [x16, 8]; cbz w16, . + {}; "
        for text, expected in (
            (guard.format(12) + "ldadd w0, w0, [x1]; ret", []),
            (guard.format(12) + "ldadd w0, w0, [x1]; ldadd w0, w0, [x1]", [(16, "LSE")]),
            (guard.format(4) + "ldadd w0, w0, [x1]; ret", [(12, "LSE")]),
            (guard.format(-4) + "ldadd w0, w0, [x1]; ret", [(12, "LSE")]),
            (guard.format(12) + "ldapr w0, [x1]; ret", [(12, "RCPC")]),
            (guard.format(12).replace("cbz", "cbnz") + "ldadd w0, w0, [x1]; ret", [(12, "LSE")]),
            (guard.format(12).replace("cbz w16", "cbz w17") + "ldadd w0, w0, [x1]; ret", [(12, "LSE")]),
            ("ldadd w0, w0, [x1]; ret", [(0, "LSE")]),
        ):
            with self.subTest(text=text):
                self.assertEqual(list(instructions_aarch64.extensions(assembled("aarch64", text))), expected)

    def test_half_an_instruction(self) -> None:
        self.assertEqual(list(instructions_aarch64.extensions(bytes(6))), [(4, "unknown")])


if __name__ == "__main__":
    unittest.main()
