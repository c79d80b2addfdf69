"""Finds instructions beyond x86-64's baseline in machine code.

The baseline has CMOV, CX8, FPU, FXSR, MMX, SSE and SSE2 (psABI of x86-64, "Micro-Architecture Levels"). Which extension an
instruction is of is a matter of its prefixes, opcode map and opcode: the tables are those of the Intel SDM, volume 2,
appendix A, "Opcode Map", and for AMD's own of AMD's manual, volume 3. Code is read from its first byte on, instruction by
instruction: GCC puts no data between them.

Two extensions are not told from the baseline, since GCC generates them for it: TZCNT is BSF to a CPU that does not have it,
and ENDBR64, with all of that opcode, a NOP. Instructions of an
operating system are UNKNOWN.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

# What is neither of the baseline nor of an extension that is known here. What follows it can't be read.
UNKNOWN = "unknown"


def _set(text: str) -> frozenset[int]:
    """A set of bytes from its ranges: `00-03 88`."""
    values: set[int] = set()
    for item in text.split():
        first, _, last = item.partition("-")
        values.update(range(int(first, 16), int(last or first, 16) + 1))
    return frozenset(values)


def _any(values: Iterable[int]) -> bytes:
    """A pattern of one of these bytes."""
    return b"[" + b"".join(b"\\x%02x" % value for value in sorted(values)) + b"]"


def _modrm(registers: str = "0-7", kinds: str = "memory register") -> bytes:
    """A pattern of ModRM, SIB and displacement. registers: values of ModRM's reg field."""

    def first(mod: int, rms: str) -> bytes:
        return _any(mod << 6 | reg << 3 | rm for reg in _set(registers) for rm in _set(rms))

    with_base, without = (_any(n for n in range(256) if (n & 7 == 5) is absolute) for absolute in (False, True))
    memory = [
        first(0, "0-3 6-7"),
        first(1, "0-3 5-7") + b".",
        first(2, "0-3 5-7") + b".{4}",
        first(0, "5") + b".{4}",
        first(0, "4") + b"(?:" + with_base + b"|" + without + b".{4})",
        first(1, "4") + b"..",
        first(2, "4") + b".{5}",
    ]
    register = [first(3, "0-7")]
    return b"(?:" + b"|".join((register if "register" in kinds else []) + (memory if "memory" in kinds else [])) + b")"


_PREFIXES = _any(_set("26 2e 36 3e 64-67 f0 f2 f3")) + b"{0,14}"
_NO_66 = _any(_set("26 2e 36 3e 64 65 67 f0 f2 f3")) + b"{0,14}"

# The opcode maps without what belongs to no baseline, or doesn't in each of its forms.
_ONE_BYTE = b"|".join(
    [
        _any(_set("00-03 08-0b 10-13 18-1b 20-23 28-2b 30-33 38-3b 63 84-8e d0-d3 d8-da dc de")) + _modrm(),
        _any(_set("50-5f 6c-6f 90-9d a4-a7 aa-af c3 c9 cb cc cf d7 ec-ef f1 f4 f5 f8-fd")),
        _any(_set("6b 80 83 c0 c1")) + _modrm() + b".",
        _any(_set("04 0c 14 1c 24 2c 34 3c 6a 70-7f a8 b0-b7 cd e0-e7 eb")) + b".",
        b"[\\xe8\\xe9].{4}",
        b"[\\xdb\\xdd\\xdf](?:" + _modrm("0 2-7", "memory") + b"|[\\xc0-\\xff])",
        b"\\xff" + _modrm("0-6"),
        b"\\xfe" + _modrm("0-1"),
        b"[\\xf6\\xf7]" + _modrm("2-7"),
        b"\\xf6" + _modrm("0-1") + b".",
        b"\\xc6" + _modrm("0") + b".",
        b"\\x8f" + _modrm("0"),
        b"[\\xc2\\xca]..",
        b"\\xc8...",
    ]
)  # fmt: skip
_TWO_BYTES = b"\\x0f(?:" + b"|".join(
    [
        _any(_set("00 02 03 10 11 13-15 17-1f 28-2a 2c-2f 40-6f 74-76 7e 7f 90-9f a3 a5 ab ad af-b7 b9 bb bc be bf "
                  "c0 c1 c3 d1-ef f1-ff")) + _modrm(),
        _any(_set("70-73 a4 ac ba c2 c4-c6")) + _modrm() + b".",
        _any(_set("05 0b 31 34 77 a0-a2 a8-aa c8-cf")),
        b"[\\x80-\\x8f].{4}",
    ]
) + b")"  # fmt: skip
# Those whose immediate is two bytes after a prefix 66 that no REX.W overrules, and four otherwise.
_OPERAND_SIZED = b"(?:" + b"|".join(
    [
        _any(_set("05 0d 15 1d 25 2d 35 3d 68 a9")),
        b"[\\x69\\x81]" + _modrm(),
        b"\\xc7" + _modrm("0"),
        b"\\xf7" + _modrm("0-1"),
    ]
) + b")"  # fmt: skip
_OTHER_SIZES = [
    _NO_66 + b"[\\x40-\\x4f]?" + _OPERAND_SIZED + b".{4}",
    _PREFIXES + b"[\\x48-\\x4f]" + _OPERAND_SIZED + b".{4}",
    _NO_66 + b"\\x66" + _PREFIXES + b"[\\x40-\\x47]?" + _OPERAND_SIZED + b"..",
    _PREFIXES + b"[\\x48-\\x4f][\\xb8-\\xbf].{8}",
    _NO_66 + b"[\\x40-\\x47]?[\\xb8-\\xbf].{4}",
    _NO_66 + b"\\x66" + _PREFIXES + b"[\\x40-\\x47]?[\\xb8-\\xbf]..",
    _PREFIXES + b"[\\x40-\\x4f]?[\\xa0-\\xa3].{8}",
]
# The bound keeps small what the matcher remembers of each repetition.
_BASELINE = re.compile(
    b"(?s)(?:%s[\\x40-\\x4f]?(?:%s|%s)|%s){1,4096}"
    % (_PREFIXES, _ONE_BYTE, _TWO_BYTES, b"|".join(_OTHER_SIZES))
)  # fmt: skip

_START = re.compile(b"(?s)(%s)([\\x40-\\x4f]?)" % _PREFIXES)
_MODRM = re.compile(b"(?s)" + _modrm())
_NONE = 0x100  # what stands for no ModRM beyond the end of the code


def _table(**names: str) -> dict[int, str]:
    return {opcode: name.replace("_", ".") for name, opcodes in names.items() for opcode in _set(opcodes)}


# Opcode maps 0f 38 and 0f 3a: extensions by opcode.
_MAP_0F38 = _table(
    SSSE3="00-0b 1c-1e", SSE4_1="10 14 15 17 20-25 28-2b 30-35 38-41", SSE4_2="37", SHA="c8-cd", GFNI="cf", AES="db-df",
    MOVBE="f0 f1", CET="f5", ADX="f6", MOVDIR64B="f8", MOVDIRI="f9",
)  # fmt: skip
_MAP_0F3A = _table(
    SSSE3="0f", SSE4_1="08-0e 14-17 20-22 40-42", PCLMULQDQ="44", SSE4_2="60-63", SHA="cc", GFNI="ce cf", AES="df"
)
# 0f 01 with a register: extensions by ModRM.
_MAP_0F01 = _table(
    SSE3="c8 c9", SMAP="ca cb", XSAVE="d0 d1", RTM="d5 d6", PKU="ee ef", SERIALIZE="e8", RDTSCP="f9", MONITORX="fa fb",
    CLZERO="fc",
)  # fmt: skip
# What a VEX prefix may mean besides AVX, by map and opcode.
_VEX = {
    1: _table(AVX512="41 42 44-47 4a 4b 90-93 98 99"),
    2: _table(
        BMI1="f2 f3", BMI2="f5-f7", F16C="13", FMA="96-9f a6-af b6-bf", AVX_VNNI="50-53", AMX="49 4b 5c 5e 6c",
        AES="db-df", GFNI="cf", AVX2="16 36 45-47 58 59 5a 78 79 8c 8e 90-93",
    ),
    3: _table(
        BMI2="f0", F16C="1d", FMA4="5c-5f 68-6f 78-7f", XOP="48 49", AVX512="30-33", PCLMULQDQ="44", GFNI="ce cf",
        AES="df", AVX2="00-02 38 39 46",
    ),
}  # fmt: skip
# Integer instructions, which are AVX on 128 bits and AVX2 on 256.
_VEX_INTEGER = {
    1: _set("60-6d 70-76 d1-d5 d7-df e0-e5 e8-ef f1-fe"),
    2: _set("00-0b 1c-1e 20-25 28-2b 30-35 37-41"),
    3: _set("0e 0f 42 4c"),
}
_WITH_IMMEDIATE = _set("70-73 c2 c4-c6")


def extensions(code: bytes | memoryview) -> Iterator[tuple[int, str]]:
    """The offset and the extension of each instruction that isn't of the baseline, in their order.

    UNKNOWN is the last, for code that can't be read on. A zero at the end is padding: two are an instruction.
    """
    code = bytes(code)
    position, matched = 0, _BASELINE.match
    while position < len(code):
        baseline = matched(code, position)
        if baseline:
            position = baseline.end()
            continue
        if position == len(code) - 1 and not code[position]:
            return
        name, end = _extension(code, position)
        if end > len(code):
            name = UNKNOWN
        if name:
            yield position, name
        if name == UNKNOWN:
            return
        position = end


def _extension(code: bytes, start: int) -> tuple[str, int]:
    """The extension (empty for the baseline) and the end of an instruction that _BASELINE does not match."""
    match = _START.match(code, start)
    assert match
    prefixes, rex, position = match[1], match[2], match.end()
    mandatory = max(prefixes.rfind(b"\xf2"), prefixes.rfind(b"\xf3"))
    prefix = prefixes[mandatory] if mandatory >= 0 else 0x66 if 0x66 in prefixes else 0
    opcode, *rest = code[position : position + 5] + bytes(5)

    def done(name: str | None, at: int, immediate: int = 0) -> tuple[str, int]:
        modrm = _MODRM.match(code, position + at)
        return (UNKNOWN, 0) if name is None or not modrm else (name, modrm.end() + immediate)

    if opcode in (0xC5, 0xC4):
        vex_map, vector, at = (1, rest[0], 2) if opcode == 0xC5 else (rest[0] & 0x1F, rest[1], 3)
        operation = rest[at - 1]
        immediate = vex_map == 3 or (vex_map == 1 and operation in _WITH_IMMEDIATE)
        if vex_map == 1 and operation == 0x77:
            return "AVX", position + at + 1
        return done(_vex(vex_map, vector, operation), at + 1, immediate)
    if opcode == 0x62:
        evex_map = rest[0] & 7
        immediate = evex_map == 3 or (evex_map == 1 and rest[3] in _WITH_IMMEDIATE)
        return done("AVX512" if evex_map in (1, 2, 3, 5, 6) else None, 5, immediate)
    if opcode == 0x8F:
        return done("XOP", 4, {8: 1, 9: 0, 10: 4}.get(rest[0] & 0x1F, 0))
    if opcode in (0xDB, 0xDD, 0xDF):
        return done("SSE3", 1)  # FISTTP
    if opcode in (0x9E, 0x9F):
        return "LAHF-SAHF", position + 1
    if opcode in (0xC6, 0xC7) and rest[0] == 0xF8:
        return "RTM", position + (3 if opcode == 0xC6 else 4 if prefix == 0x66 else 6)
    if opcode != 0x0F:
        return UNKNOWN, 0
    if rest[0] == 0x38:
        name = _MAP_0F38.get(rest[1])
        if rest[1] in (0xF0, 0xF1) and prefix == 0xF2:
            name = "SSE4.2"  # CRC32
        return done(name, 3)
    if rest[0] == 0x3A:
        return done(_MAP_0F3A.get(rest[1]), 3, 1)
    if rest[0] == 0x0E:
        return "3DNOW", position + 2
    modrm = rest[1] if position + 2 < len(code) else _NONE
    following = {0x0F: 1, 0x78: 2 if prefix else 0}.get(rest[0], 0)
    return done(_two_bytes(rest[0], prefix, modrm, bool(rex and rex[0] & 8)), 2, following)


def _vex(vex_map: int, vector: int, opcode: int) -> str | None:
    """The extension of an instruction with a VEX prefix; `vector` is the prefix's last byte."""
    if vex_map not in _VEX:
        return None
    if vex_map == 2 and opcode == 0xF7 and not vector & 3:
        return "BMI1"  # BEXTR
    if (vex_map == 3 and opcode == 0x44) or (vex_map > 1 and 0xDB <= opcode <= 0xDF):
        return _VEX[vex_map].get(opcode) if not vector & 4 else "V" + _VEX[vex_map][opcode]
    integer = opcode in _VEX_INTEGER[vex_map] and vector & 4
    name = _VEX[vex_map].get(opcode, "AVX2" if integer else "AVX")
    return "AVX-VNNI" if name == "AVX.VNNI" else name


def _two_bytes(opcode: int, prefix: int, modrm: int, rex_w: bool) -> str | None:
    """The extension of what is in map 0f; empty for the baseline, None for what is in no extension."""
    reg, register = modrm >> 3 & 7, modrm >> 6 == 3
    repeated = prefix in (0xF2, 0xF3)
    if opcode == 0x01:
        return _MAP_0F01.get(modrm)
    if opcode == 0x0D:
        return "PRFCHW"
    if opcode == 0x0F:
        return "3DNOW"
    if opcode in (0x12, 0x16):
        return "" if not repeated else None if (opcode, prefix) == (0x16, 0xF2) else "SSE3"
    if opcode in (0x2B, 0x78, 0x79):
        return (
            "SSE4A" if prefix in ((0xF2, 0xF3) if opcode == 0x2B else (0xF2, 0x66)) else "" if opcode == 0x2B else None
        )
    if opcode in (0x7C, 0x7D, 0xD0):
        return "SSE3" if prefix in (0x66, 0xF2) else None
    if opcode == 0xF0:
        return "SSE3" if prefix == 0xF2 else None
    if opcode == 0xB8:
        return "POPCNT" if prefix == 0xF3 else None
    if opcode == 0xBD:
        return "LZCNT" if prefix == 0xF3 else ""
    if opcode == 0xAE:
        if register and prefix == 0xF3:
            return "FSGSBASE" if reg < 4 else "CET" if reg == 5 else "WAITPKG"
        if register:
            return ("" if not prefix else "WAITPKG") if reg >= 5 else None
        if reg in (4, 5, 6) or prefix == 0xF3:
            return "CLWB" if (reg, prefix) == (6, 0x66) else "XSAVE" if not repeated else "CET"
        return "CLFLUSHOPT" if (reg, prefix) == (7, 0x66) else ""
    if opcode == 0xC7:
        if register:
            return {(6, False): "RDRAND", (7, False): "RDSEED", (7, True): "RDPID"}.get((reg, prefix == 0xF3))
        return {1: "CMPXCHG16B" if rex_w else "", 3: "XSAVE", 4: "XSAVE", 5: "XSAVE"}.get(reg)
    return None
