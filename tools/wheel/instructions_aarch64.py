"""Finds instructions beyond Armv8.0-A (with floating point and Advanced SIMD, without CRC32 and cryptography) in A64 code.

The encodings are those of the Arm Architecture Reference Manual for A-profile (DDI 0487), "A64 Instruction Set Encoding". What
no architecture has allocated within a group of the baseline's is not told from it: no compiler generates it.
"""

from __future__ import annotations

from collections.abc import Iterator

# What is neither of the baseline nor of an extension that is known here.
UNKNOWN = "unknown"

# Encodings from bit 31 on, each with its extension; those of the baseline have none. A dot is any bit, and so is what is left
# out at the end. The first row that fits counts.
_ENCODINGS = """
00000000 00000000                            # UDF
1..0000                            SME
...0010                            SVE

...10000                                     # ADR, ADRP
...10001 0                                   # add, subtract
1.010001 10                        MTE
..010001 11                        CSSC
...10010                                     # logical, move wide
...10011 0                                   # bitfield
.0010011 1                                   # EXTR

01010100 ........ ........ ...0              # conditional branch
01010100 ........ ........ ...1    HBC
11010100 011                       TME
11010100                                     # exceptions
11010101 00000011 0010.... ...11111          # hints: they do nothing without their extension
11010101 00000011 0001....         WFXT
11010101 00000011 0011.... 01011111          # CLREX
11010101 00000011 0011.... 10.11111          # DSB, DMB
11010101 00000011 0011.... 11011111          # ISB
11010101 00000011 00110000 11111111 SB
11010101 00000011 0100.... 11.11111          # DAIFSet, DAIFClr
11010101 00000000 0100.... 00.11111 FLAGM
11010101 00000000 0100.... 01011111 FLAGM
11010101 00001011 01110100 001               # DC ZVA
11010101 00001011 01110101 001               # IC IVAU
11010101 00001011 01111010 001               # DC CVAC
11010101 00001011 01111011 001               # DC CVAU
11010101 00001011 01111110 001               # DC CIVAC
11010101 00001011 0111110. 001     DPB
11010101 00111000 0000                       # MRS of what identifies the CPU
11010101 00.11011 01000010 00.               # NZCV, DAIF
11010101 00.11011 01000100 00.               # FPCR, FPSR
11010101 00.11011 11010000 01.               # TPIDR_EL0, TPIDRRO_EL0
11010101 00111011 00000000 ..1               # CTR_EL0, DCZID_EL0
11010101 00.11011 1001                       # performance monitors
11010101 00.11011 11100000 0                 # CNTFRQ_EL0, CNTPCT_EL0, CNTVCT_EL0
11010101 00.11011 1110001                    # timers
11010101 00111011 00100100 00.     RNG
11010110 00011111 000000.. ...00000          # BR
11010110 00111111 000000.. ...00000          # BLR
11010110 01011111 000000.. ...00000          # RET
1101011. ...11111 00001            PAUTH
.00101                                       # B, BL
.011010                                      # CBZ, CBNZ
.011011                                      # TBZ, TBNZ

0.001100 0.000000                            # structures of vectors
0.001100 1.0
0.001101 0..00000
0.001101 1
..001000 0.0                                 # exclusive
1.001000 0.1
0.001000 0.1..... .11111           LSE       # CASP
..001000 1.0..... 1                          # LDAR, STLR
..001000 1.0..... 0                LOR
..001000 1.1..... .11111           LSE       # CAS
..011.00                                     # literal
..011001 ..0..... ....00           RCPC2
11011001 ..1                       MTE
..011.01 ..0..... ....01           MOPS
01101000 10                        MTE       # STGP
01101001 .0                        MTE
0.101.0                                      # pairs
10101.0
..111.00 ..0                                 # unscaled, pre-indexed, post-indexed, unprivileged
..111.00 ..1..... ....10                     # register offset
..111000 101..... 110000           RCPC      # LDAPR
..111000 ..1..... 0...00           LSE       # LDADD and the like
..111000 ..1..... 100000           LSE       # SWP
11111000 ..1..... 1...00           LS64
11111000 ..1..... .....1           PAUTH
..111.01                                     # unsigned offset

...01010                                     # logical
...01011 ..0                                 # add, subtract
...01011 001
...11010 000..... 000000                     # add, subtract with carry
10111010 000..... .00001           FLAGM
00111010 000..... ..0010           FLAGM
..111010 010..... .....0.. ...0              # CCMP, CCMN
..011010 100..... ....0                      # conditional select
.0011011 000                                 # multiply
10011011 .01
10011011 .10
.0011010 110..... 00001                      # UDIV, SDIV
.0011010 110..... 0010                       # shifts
.0011010 110..... 010              CRC32
.0011010 110..... 0110             CSSC
10011010 110..... 001100           PAUTH
10.11010 110..... 000000           MTE
10011010 110..... 00010.           MTE
.1011010 11000000 0000                       # RBIT, REV
.1011010 11000000 00010                      # CLZ, CLS
.1011010 11000000 00               CSSC
11011010 11000001                  PAUTH

01001110 00101000 01..10           AES
01011110 000..... 00..00           SHA1
01011110 000..... 01..00           SHA2
01011110 00101000 000.10           SHA1
01011110 00101000 001010           SHA2
11001110 00.                       SHA3
11001110 010                       SM3
11001110 011..... 100011           SHA3
11001110 011..... 1000             SHA512
11001110 011..... 110010           SM4
11001110 011..... 1100             SM3
11001110 100                       SHA3
11001110 11000000 100001           SM4
11001110 11000000 10000            SHA512

01011110 000..... 0....1                     # scalar: DUP
01.11110 .10..... 00...1           FP16      # three registers of one size
01111110 ..0..... 1000.1           RDM
01.11110 ..1..... .....1
01.11110 ..1..... ....00                     # three registers of several sizes
01.11110 .111100. ....10           FP16      # two registers
01.11110 ..10000. ....10
01011110 ..110001 101110                     # pairwise
01011110 ..11000. ....10           FP16
01111110 ..11000. ....10
01.11111 0001.... 111001           FP16      # shift by an immediate
01.11111 0001.... 111111           FP16
01.11111 0....... .....1
01111111 ........ 11.1.0           RDM       # by element
01011111 00...... 0.01.0           FP16
01.11111 00...... 1001.0           FP16
01.11111 ........ .....0

0.001110 000..... 0...00                     # vectors: TBL, TBX
0.001110 ..0..... 0...10                     # UZP, TRN, ZIP
0.101110 000..... 0....0                     # EXT
0..01110 000..... 0....1                     # DUP, INS, UMOV
0..01110 .10..... 00...1           FP16      # three registers of one size
0.101110 ..0..... 1000.1           RDM
0..01110 ..0..... 100101           DOTPROD
0.001110 100..... 100111           I8MM
01.01110 100..... 1010.1           I8MM
0.101110 ..0..... 110..1           FCMA
0.101110 ..0..... 111.01           FCMA
0.101110 ..0..... 111.11           BF16
0.001110 .01..... 111011           FP16FML
0.101110 .01..... 110011           FP16FML
0..01110 ..1..... .....1
0.001110 111..... 111000           PMULL     # three registers of several sizes
0..01110 ..1..... ....00
0..01110 .111100. ....10           FP16      # two registers
0..01110 0.100001 111.10           FRINTTS
0.001110 10100001 011010           BF16
0..01110 ..10000. ....10
0.001110 ..110000 110010           FP16      # across lanes
0.001110 ..110000 111110           FP16
0..01110 ..11000. ....10
0..01111 00000... ....01                     # immediate
0..01111 00000... ....11           FP16
0..01111 0001.... 111001           FP16      # shift by an immediate
0..01111 0001.... 111111           FP16
0..01111 0....... .....1
0.101111 ........ 11.1.0           RDM       # by element
0..01111 10...... 1110.0           DOTPROD
0.001111 .0...... 1111.0           I8MM
0.001111 .1...... 1111.0           BF16
0.101111 ........ 0..1.0           FCMA
0.001111 10...... 0.00.0           FP16FML
0.101111 10...... 1.00.0           FP16FML
0.001111 00...... 0.01.0           FP16
0..01111 00...... 1001.0           FP16
0..01111 ........ .....0

.0011110 0.0                                 # floating point: fixed-point numbers
.0011110 110                       FP16
00011110 01111110 000000           JSCVT
.0011110 0.1..... 000000                     # integers
10011110 1010111. 000000                     # FMOV of a vector's upper half
.0011110 111..... 000000           FP16
00011110 01100011 010000           BF16
00011110 0.10100. .10000           FRINTTS
00011110 11100010 .10000                     # FCVT of half precision
00011110 0.1..... .10000                     # one register
00011110 0.1..... 001000                     # compare
00011110 0.1..... ...10000 000               # immediate
00011110 0.1..... ....01                     # conditional compare
00011110 0.1..... ....1                      # two registers, conditional select
00011110 111                       FP16
00011111 0                                   # three registers
00011111 11                        FP16
"""


def _row(line: str) -> tuple[int, int, str]:
    """Mask, value and extension of a row."""
    words = line.partition("#")[0].split()
    name = words.pop() if words[-1].strip("01.") else ""
    bits = "".join(words).ljust(32, ".")
    return int("".join("01"[bit != "."] for bit in bits), 2), int(bits.replace(".", "0"), 2), name


_ROWS = [_row(line) for line in _ENCODINGS.splitlines() if line]
_GROUP = 0xF << 25  # op0, by which the manual's first table tells instructions apart
_GROUPS = [
    [row for row in _ROWS if not (row[1] ^ group << 25) & row[0] & _GROUP] for group in range(16)
]  # fmt: skip


def extension(instruction: int) -> str:
    """The extension of an instruction: empty for the baseline, UNKNOWN for what is in no table."""
    for mask, value, name in _GROUPS[instruction >> 25 & 0xF]:
        if instruction & mask == value:
            return name
    return UNKNOWN


def extensions(code: bytes | memoryview) -> Iterator[tuple[int, str]]:
    """The offset and the extension of each instruction that isn't of the baseline, in their order.

    LSE atomics that are skipped on a CPU without them are not among them: see _guarded.
    """
    code = memoryview(code).cast("B")
    if len(code) % 4:
        yield len(code) // 4 * 4, UNKNOWN
    instructions = code[: len(code) // 4 * 4].cast("I")
    beyond = {word: name for word in set(instructions) if (name := extension(word))}
    if beyond:
        for index, word in enumerate(instructions):
            name = beyond.get(word, "")
            if name and not (name == "LSE" and _guarded(instructions, index)):
                yield index * 4, name


def _guarded(instructions: memoryview, index: int) -> bool:
    """Whether an atomic is one of GCC's outline atomics (libgcc's lse.S; GCC's manual, -moutline-atomics).

    Each of them asks at run time, `adrp x16, page; ldrb w16, [x16, offset]; cbz w16, <beyond the atomic>`, whether the CPU
    has the atomic that follows, and does it with exclusive loads and stores otherwise.
    """
    if index < 3:
        return False
    adrp, ldrb, cbz = instructions[index - 3 : index]
    return (
        adrp & 0x9F00001F == 0x90000010
        and ldrb & 0xFFC003FF == 0x39400210
        and (cbz & 0xFF80001F == 0x34000010 and cbz >> 5 & 0x3FFFF >= 2)
    )
