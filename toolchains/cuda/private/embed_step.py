"""Makes an object of a cubin, for host code that loads it from memory: CudaEmbed.

The symbols are those that upstream's launcher declares (tvm/ffi/extra/cuda/cubin_launcher.h: TVM_FFI_EMBED_CUBIN), where
tvm_ffi/utils/embed_cubin.py would put them: the first byte, and the first after the last. They are hidden, which is what
becomes of that program's local ones. The command line is that of nvcc_steps.py.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
from pathlib import Path

from nvcc_steps import Step, StepError, sm_name

# Larger than an ELF header, so that a driver which is given it reads nothing else.
_ABSENT = 64


def assembly(name: str, symbol: str, cubin: str, sm_target: str) -> str:
    """GNU as' text of the object; StepError for a name or symbol that is no identifier.

    cubin: the file, or empty: zeros are in its place then, in no section by which they would pass for a cubin.
    """
    for what, word in (("name", name), ("symbol", symbol)):
        if not re.fullmatch(r"[A-Za-z_]\w*", word, re.ASCII):
            raise StepError(
                f"embedded cubin {name!r}: expected an identifier of C as its {what}, found {word!r}.\n"
                "  To do: correct it where the module is declared (embedded_cubin)."
            )
    section = f".cubin.sm_{sm_name(sm_target)}.{name}" if cubin else f".rodata.{symbol}"
    # cuModuleLoadData asks for no alignment, but an ELF file's structures want their own.
    return (
        f'.section {section},"a",%progbits\n.balign 64\n'
        f".globl {symbol}, {symbol}_end\n.hidden {symbol}, {symbol}_end\n"
        f".type {symbol}, %object\n.size {symbol}, {symbol}_end - {symbol}\n"
        f"{symbol}:\n" + (f'.incbin "{cubin}"\n' if cubin else f".zero {_ABSENT}\n") + f"{symbol}_end:\n"
        '.section .note.GNU-stack,"",%progbits\n'
    )


def main(argv: list[str]) -> int:
    """Runs the step; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option in ("nvcc", "version", "tu", "cxx", "object", "symbol"):
        parser.add_argument(f"--{option}", required=True)
    parser.add_argument("--cubin", default="", help="none: zeros are in its place")
    parser.add_argument("--sm-target", default="")
    args = parser.parse_args(argv)
    scratch = Path(tempfile.mkdtemp())
    try:
        step = Step("embed", args.nvcc, args.cxx, args.tu, args.version, "any", [], [], scratch)
        source = scratch / "cubin.s"
        source.write_text(assembly(args.tu, args.symbol, args.cubin, args.sm_target))
        step.run("cxx", ["-c", "-x", "assembler", str(source), "-o", args.object])
    except StepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
