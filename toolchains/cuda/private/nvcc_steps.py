"""Runs one step of an nvcc compilation, so that each step can be an action with inputs and a cache key of its own.

The steps are never guessed: `nvcc --dryrun` of the toolkit at hand prints them, and they are run with names of our own
for the files in between. They differ between toolkits 12.x, 13.0 and 13.4.

    preprocess    T.cu, headers          -> T.ii, plan           one SM target
    cubin         T.ii, plan             -> T.cubin, T.stub.c    no headers, no host compiler
    host-front    T.cu, headers          -> T.cudafe1.cpp, plan  all SM targets of the module
    host-compile  T.cudafe1.cpp, T.stub.c, plan -> T.o           the fatbin is an external hidden symbol

fatbin_step.py joins the cubins of a module. Command lines are `STEP --option value ... [-- nvcc flags]`; paths are relative to the working directory.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

# CUB and Thrust put the list of SM targets into the name of an inline namespace. The halves of a TU that are compiled
# apart would then not find each other's symbols. (CCCL's documentation, "ABI and inline namespaces".)
_ONE_NAMESPACE = [
    "-DTHRUST_DISABLE_ABI_NAMESPACE",
    "-DTHRUST_IGNORE_ABI_NAMESPACE_ERROR",
    "-DCUB_DISABLE_NAMESPACE_MAGIC",
    "-DCUB_IGNORE_NAMESPACE_MAGIC_ERROR",
]

# A module is a shared library, whatever flags its TUs have.
_SHARED = ["-Xcompiler=-fPIC"]

# Flags with which the line numbers of the source end up in the product (nvcc's manual, "Options for specifying
# behavior of compiler/linker").
_LINE_FLAGS = {"-lineinfo", "--generate-line-info", "-G", "--device-debug", "-g", "--debug"}

# What a plan has in place of a path.
_II, _PTX, _CUBIN, _STUB, _MODULE_ID, _C, _GPU, _CPP, _OBJECT = (
    f"@{name}@" for name in ("II", "PTX", "CUBIN", "STUB", "MODULE_ID", "C", "GPU", "CPP", "OBJECT")
)


class StepError(Exception):
    """A step failed. The message names the TU and the SM target, what was expected, what was found, what to do."""


def sm_name(sm_target: str) -> str:
    """`9.0a` as nvcc writes it after `sm_` or `compute_`: `90a`."""
    return sm_target.replace(".", "")


def fatbin_symbol(tu: str) -> str:
    """The symbol that joins the host object of a TU to its fatbin."""
    return "smwheel_fatbin_" + hashlib.sha256(tu.encode()).hexdigest()[:16]


def module_id(tu: str) -> str:
    """What makes names of internal linkage unique. cudafe++ and every cicc run of the TU must get the same one."""
    return hashlib.sha256(tu.encode()).hexdigest()[:16]


# ---- The dry run -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class DryRun:
    """What nvcc would run: commands by tool, each with its arguments. The host compiler is called `cxx`."""

    commands: list[tuple[str, list[str]]]

    def find(self, tool: str, *marks: str) -> list[str]:
        """The arguments of the one command of `tool` that has all `marks`; raises StepError if not exactly one."""
        found = [arguments for name, arguments in self.commands if name == tool and all(m in arguments for m in marks)]
        if len(found) != 1:
            raise StepError(
                f"expected one {tool} {' '.join(marks)} command in nvcc's dry run, found {len(found)}.\n"
                f"  This toolkit splits a compilation in a way that toolchains/cuda/private/nvcc_steps.py does not know."
            )
        return found[0]


def parse_dry_run(text: str, cxx: str, root: str) -> DryRun:
    """Parses what `nvcc --dryrun` printed; `cxx` is the -ccbin it ran with, `root` the toolkit's directory."""
    variables: dict[str, str] = {}
    commands: list[tuple[str, list[str]]] = []
    for line in text.splitlines():
        line = line.removeprefix("#$ ")
        assignment = re.match(r"([A-Za-z_]+)=(.*)$", line)
        if assignment:
            variables[assignment[1]] = assignment[2].strip()
            continue
        for name in ("CICC_PATH", "NVVMIR_LIBRARY_DIR"):
            line = line.replace(f"${name}", variables.get(name, ""))
        top = variables.get("TOP", "")
        # A toolkit's `targets/<cpu>-linux/` holds the same headers as `include/` of the wheels.
        words = [
            re.sub(rf"{re.escape(top)}/+(targets/[^/]+/)?", root + "/", word) if top else word
            for word in shlex.split(line)
        ]
        if words and words[0] != "rm":
            commands.append(("cxx" if words[0] == cxx else os.path.basename(words[0]), words[1:]))
    return DryRun(commands)


@dataclass
class Step:
    """The context of one step: tools, TU, and a directory for what is thrown away."""

    name: str
    nvcc: str
    cxx: str
    tu: str
    version: str
    cpu: str
    sm_targets: list[str]
    flags: list[str]
    scratch: Path
    environment: dict[str, str] = field(init=False)

    def __post_init__(self) -> None:
        self.root = os.path.dirname(os.path.dirname(self.nvcc))
        path = [os.path.abspath(os.path.join(self.root, directory)) for directory in ("bin", "nvvm/bin")]
        self.environment = {
            "PATH": ":".join([*path, "/usr/bin", "/bin"]),
            "TMPDIR": str(self.scratch),
            "LC_ALL": "C",
            "SOURCE_DATE_EPOCH": "0",
        }

    def where(self) -> str:
        """The TU and its SM targets, as messages name them."""
        targets = f" for SM target {self.sm_targets[0]}" if len(self.sm_targets) == 1 else ""
        return f"{self.tu}{targets} (CUDA {self.version}, {self.cpu} host)"

    def normalises(self) -> bool:
        """Whether line numbers are taken out of what is handed on: not where they end up in the product."""
        return not _LINE_FLAGS.intersection(self.flags)

    def run(self, tool: str, arguments: list[str]) -> None:
        """Runs a tool of the toolkit or the host compiler; raises StepError if it fails."""
        executable = (
            self.cxx
            if tool == "cxx"
            else next(
                path for path in (f"{self.root}/bin/{tool}", f"{self.root}/nvvm/bin/{tool}") if os.path.exists(path)
            )
        )
        if subprocess.run([executable, *arguments], env=self.environment).returncode:
            name = "the host compiler" if tool == "cxx" else tool
            raise StepError(
                f"compile error in {self.where()}: {name} failed in step {self.name}; its messages are above.\n"
                f"  To see the whole command: ./bazelw build --sandbox_debug --verbose_failures"
            )

    def dry_run(self) -> DryRun:
        """Asks nvcc for its steps; raises StepError when it does not accept the SM targets or the flags."""
        cc = self.scratch / "cc"  # nvcc runs -ccbin once, to ask for its version, and wants an absolute path
        cc.write_text(f'#!/bin/sh\nexec {shlex.quote(os.path.abspath(self.cxx))} "$@"\n')
        cc.chmod(0o755)
        gencode = [f"-gencode=arch=compute_{sm_name(sm)},code=sm_{sm_name(sm)}" for sm in self.sm_targets]
        command = [
            self.nvcc,
            "--dryrun",
            "-c",
            "-ccbin",
            str(cc),
            *gencode,
            *_ONE_NAMESPACE,
            *_SHARED,
            *self.flags,
            "tu.cu",
            "-o",
            "tu.o",
        ]
        result = subprocess.run(command, env=self.environment, capture_output=True, text=True)
        if result.returncode:
            raise StepError(self._explain_refusal(result.stderr.strip()))
        return parse_dry_run(result.stderr, str(cc), self.root)

    def _explain_refusal(self, said: str) -> str:
        if "Unsupported gpu architecture" not in said:
            return f"nvcc {self.version} refuses the flags of {self.where()}: {said}"
        listed = subprocess.run([self.nvcc, "--list-gpu-code"], env=self.environment, capture_output=True, text=True)
        known = [re.sub(r"sm_(\d+)(\d)$", r"\1.\2", code) for code in listed.stdout.split()]
        return (
            f"{self.tu}: the toolkit of CUDA {self.version} does not know SM target {', '.join(self.sm_targets)}.\n"
            f"  expected: one of {', '.join(known)}, or one of them with suffix a or f\n"
            f"  found:    {said}\n"
            f"  To do: correct the SM target where it is listed (wheels/matrix.bzl for wheels), or use a newer toolkit."
        )


# ---- Preprocessing ---------------------------------------------------------------------------------------------


_RAW_STRING = re.compile(r'R"([^()\\\s"]{0,16})\(')


def open_raw_string(line: str, end: str | None) -> str | None:
    """What ends the raw string literal that is open after `line`, or None; `end` is the same for before it."""
    while True:
        if end:
            _, found, line = line.partition(end)
            if not found:
                return end
            end = None
        else:
            opening = _RAW_STRING.search(line)
            if not opening:
                return None
            line, end = line[opening.end() :], f'){opening[1]}"'


def normalise_markers(lines: Iterable[str]) -> Iterator[str]:
    """Sets the line number of every `# N "file" flags` marker to 1, and drops blank lines and markers that say no more.

    What the compilers then see does not change when a comment is added. The flags stay: flag 3 marks system headers
    (GCC manual, "Preprocessor Output"). Raw string literals are left as they are.
    """
    marker = re.compile(r'# \d+(?: ("[^"]*")(.*))?$')
    current = None
    end: str | None = None  # of the raw string literal that the line is in
    for line in lines:
        inside, end = end, open_raw_string(line, end)
        match = marker.match(line)
        if inside:
            yield line
        elif match:
            if match[1] is None:
                continue
            key = (match[1], match[2].replace("1", "").replace("2", "").strip())
            if key == current and not match[2].strip():
                continue
            current = key
            yield f"# 1 {match[1]}{match[2]}\n"
        elif not line.isspace():
            yield line


def name_repositories(line: str) -> str:
    """Gives external repositories in paths the names that they were declared with.

    `__FILE__` ends up in messages of the product. Bazel's own names for a repository differ between MODULE.bazel
    (`external/_main~flashinfer~flashinfer/`, with `+` from Bazel 8 on) and WORKSPACE (`external/flashinfer/`).
    """
    return re.sub(r'"external/[^/"\s]*[~+]([^/~+"\s]+)/', r'"external/\1/', line) if '"external/' in line else line


def normalise_file(path: str, markers: bool) -> None:
    """Applies name_repositories and, if `markers`, normalise_markers to a file in place."""
    with open(path, encoding="utf-8", errors="surrogateescape") as text:
        lines = [name_repositories(line) for line in (normalise_markers(text) if markers else text)]
    with open(path, "w", encoding="utf-8", errors="surrogateescape") as text:
        text.writelines(lines)


def preprocess(step: Step, arguments: list[str], src: str, out: str, headers: str, unused: str) -> None:
    """Runs the host preprocessor with nvcc's `arguments`; writes the text and the list of unused inputs.

    headers: file that lists the declared headers and header directories, one a line. Raises StepError for a header
    outside of the working directory: it is not declared, so nothing would notice a change of it.
    """
    depfile = step.scratch / "d"
    arguments = [
        *replace_after([src if word == "tu.cu" else word for word in arguments], "-o", out),
        *("-MD", "-MF", str(depfile), "-MT", "x"),
        # __DATE__ and __TIME__ follow SOURCE_DATE_EPOCH; this one is the file's own time.
        *("-Wno-builtin-macro-redefined", '-D__TIMESTAMP__="redacted"'),
    ]
    step.run("cxx", arguments)
    used = {os.path.normpath(path) for path in depfile.read_text().replace("\\\n", " ").split()[1:]}
    outside = sorted(path for path in used if os.path.isabs(path))
    if outside:
        raise StepError(
            f"{step.where()} includes headers of this machine: {', '.join(outside[:5])}.\n"
            f"  expected: only headers of declared dependencies. Add the package that has them to the deps of the TU."
        )
    declared = Path(headers).read_text().splitlines()
    directories = {path for path in declared if os.path.isdir(path)}
    Path(unused).write_text(
        "".join(
            f"{path}\n"
            for path in declared
            if not (
                any(u.startswith(path + "/") for u in used) if path in directories else os.path.normpath(path) in used
            )
        )
    )


def replace_after(arguments: list[str], option: str, value: str) -> list[str]:
    """`arguments` with `value` after `option`; raises StepError if the option is not there."""
    if option not in arguments:
        raise StepError(f"nvcc's dry run has no {option} where one was expected: {shlex.join(arguments)}")
    index = arguments.index(option)
    return [*arguments[: index + 1], value, *arguments[index + 2 :]]


def front_end(step: Step, arguments: list[str], values: dict[str, str]) -> list[str]:
    """Arguments of cicc or cudafe++ with our own names for source and outputs, and our own module id."""
    values = {"--orig_src_file_name": os.path.basename(step.tu), "--orig_src_path_name": step.tu, **values}
    for option, value in values.items():
        arguments = replace_after(arguments, option, value)
    return [word for word in arguments if word != "--gen_module_id_file"]


# ---- The steps -------------------------------------------------------------------------------------------------


def device_preprocess(step: Step, args: argparse.Namespace) -> None:
    """T.cu -> T.ii and the plan: cicc's, ptxas' and fatbinary's arguments."""
    dry = step.dry_run()
    cpp = dry.find("cxx", "-E", "-DCUDA_DOUBLE_MATH_FUNCTIONS")
    ii = cpp[cpp.index("-o") + 1]
    cicc = front_end(
        step,
        dry.find("cicc"),
        {
            "--include_file_name": Path(step.tu).stem + ".fatbin.c",
            "--module_id_file_name": _MODULE_ID,
            "--gen_c_file_name": _C,
            "--stub_file_name": _STUB,
            "--gen_device_file_name": _GPU,
        },
    )
    ptxas = dry.find("ptxas")
    ptx = cicc[cicc.index("-o") + 1]
    cicc = [{ii: _II, ptx: _PTX}.get(word, word) for word in cicc]
    ptxas = replace_after([_PTX if word == ptx else word for word in ptxas], "-o", _CUBIN)
    fatbinary = [
        word for word in dry.find("fatbinary") if not word.startswith(("--image", "--embedded-fatbin", "--create"))
    ]
    preprocess(step, cpp, args.src, args.ii, args.headers, args.unused)
    normalise_file(args.ii, step.normalises())
    write_plan(args.plan, {"cicc": cicc, "ptxas": ptxas, "fatbinary": fatbinary})


def write_plan(path: str, plan: dict[str, list[str]]) -> None:
    """Writes the arguments of the steps to come, by tool."""
    Path(path).write_text(json.dumps(plan, indent=1) + "\n")


def read_plan(path: str) -> dict[str, list[str]]:
    """Reads what write_plan wrote."""
    plan: dict[str, list[str]] = json.loads(Path(path).read_text())
    return plan


def fill(arguments: list[str], values: dict[str, str]) -> list[str]:
    """`arguments` with paths in place of a plan's placeholders."""
    return [values.get(word, word) for word in arguments]


def normalise_stub(stub: str) -> str:
    """Numbers the local variables and parameters of a host stub (`__T90`) anew, in the order in which they appear.

    cicc takes the numbers from a counter that also runs while device code is read, so they differ between SM targets
    while nothing else does. The new names are none that host code could have.
    """
    numbers: dict[str, str] = {}
    return re.sub(r"\b__T\d+\b", lambda match: numbers.setdefault(match[0], f"__smwheel{len(numbers)}"), stub)


def cubin(step: Step, args: argparse.Namespace) -> None:
    """T.ii and the plan -> T.cubin and T.stub.c."""
    identity = step.scratch / "module_id"
    identity.write_text(module_id(step.tu))
    values = {
        _II: args.ii,
        _MODULE_ID: str(identity),
        _CUBIN: args.cubin,
        **{mark: str(step.scratch / name) for mark, name in ((_C, "c"), (_GPU, "gpu"), (_PTX, "ptx"), (_STUB, "stub"))},
    }
    plan = read_plan(args.plan)
    step.run("cicc", fill(plan["cicc"], values))
    stub = Path(values[_STUB]).read_text(errors="surrogateescape")
    # It names itself in a line marker.
    stub = stub.replace(values[_STUB], f"{Path(step.tu).stem}.stub.c")
    Path(args.stub).write_text(normalise_stub(stub), errors="surrogateescape")
    step.run("ptxas", fill(plan["ptxas"], values))


def host_front(step: Step, args: argparse.Namespace) -> None:
    """T.cu -> T.cudafe1.cpp and the plan: the host compiler's arguments.

    All SM targets of the module are given, also those that a wheel leaves out: host code may ask for the list
    (`__CUDA_ARCH_LIST__`; CUB chooses launch parameters by it), and host objects are shared by all wheels.
    """
    dry = step.dry_run()
    cpp = next(a for tool, a in dry.commands if tool == "cxx" and "-E" in a and "-DCUDA_DOUBLE_MATH_FUNCTIONS" not in a)
    ii = cpp[cpp.index("-o") + 1]
    text = str(step.scratch / "tu.ii")
    identity = step.scratch / "module_id"
    identity.write_text(module_id(step.tu))
    cudafe = front_end(
        step,
        dry.find("cudafe++"),
        {
            "--gen_c_file_name": args.cpp,
            "--stub_file_name": Path(step.tu).stem + ".stub.c",
            "--module_id_file_name": str(identity),
        },
    )
    preprocess(step, cpp, args.src, text, args.headers, args.unused)
    step.run("cudafe++", fill(cudafe, {ii: text}))
    normalise_file(args.cpp, step.normalises())
    compile_ = dry.find("cxx", "-c")
    source = next(word for word in compile_ if word.endswith(".cudafe1.cpp"))
    compile_ = replace_after([_CPP if word == source else word for word in compile_], "-o", _OBJECT)
    front = Path(args.cpp).read_text(errors="surrogateescape")
    # The list of SM targets was used up by the preprocessor. Left in, it would recompile every host object whenever a
    # target is added.
    write_plan(args.plan, {"cxx": [w for w in compile_ if not w.startswith("-D__CUDA_ARCH")]})
    # What cudafe++ makes of `kernel<<<...>>>` and of a kernel template.
    if args.device_code == "no" and re.search(r"\(__cudaPushCallConfiguration\(|__wrapper__device_stub_", front):
        raise StepError(
            f"{step.where()} has a kernel or launches one, but is declared as a TU without device code.\n"
            f"  expected: device_code = True. Correct it where the TU is declared (for imported modules: the importer)."
        )


# What `<stem>.stub.c` includes in place of the fatbin: a reference to it. The layout is that of __fatBinC_Wrapper_t in
# the toolkit's fatbinary_section.h.
_FATBIN_C = """#include "fatbinary_section.h"
extern "C" {{ extern const unsigned long long {symbol}[] __attribute__((visibility("hidden"))); }}
static const __fatBinC_Wrapper_t __fatDeviceText __attribute__((aligned(8)))
    __attribute__((section(FATBIN_CONTROL_SECTION_NAME))) = {{FATBINC_MAGIC, FATBINC_VERSION, {symbol}, 0}};
"""


def host_compile(step: Step, args: argparse.Namespace) -> None:
    """T.cudafe1.cpp and T.stub.c -> T.o. Without a stub (no device code) the TU registers nothing."""
    include = step.scratch / "include"
    include.mkdir()
    stem = Path(step.tu).stem
    (include / f"{stem}.stub.c").write_bytes(Path(args.stub).read_bytes() if args.stub else b"")
    (include / f"{stem}.fatbin.c").write_text(_FATBIN_C.format(symbol=fatbin_symbol(step.tu)))
    arguments = fill(read_plan(args.plan)["cxx"], {_CPP: args.cpp, _OBJECT: args.object})
    directory = os.path.dirname(args.cpp)
    step.run(
        "cxx",
        [
            *arguments,
            f"-I{include}",
            f"-ffile-prefix-map={include}=.",
            f"-ffile-prefix-map={directory}=.",
            f"-frandom-seed={step.tu}",
        ],
    )


STEPS = {
    "preprocess": device_preprocess,
    "cubin": cubin,
    "host-front": host_front,
    "host-compile": host_compile,
}


def main(argv: list[str]) -> int:
    """Runs one step; returns the exit status."""
    argv, flags = (argv[: argv.index("--")], argv[argv.index("--") + 1 :]) if "--" in argv else (argv, [])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=STEPS)
    for option in ("nvcc", "version", "tu"):
        parser.add_argument(f"--{option}", required=True)
    for option in (
        "src",
        "cxx",
        "headers",
        "unused",
        "ii",
        "plan",
        "cubin",
        "stub",
        "cpp",
        "object",
    ):
        parser.add_argument(f"--{option}", default="")
    parser.add_argument("--cpu", default="any")
    parser.add_argument("--device-code", choices=("yes", "no"), default="yes")
    parser.add_argument("--sm-target", action="append", default=[])
    args = parser.parse_args(argv)
    scratch = Path(tempfile.mkdtemp())
    try:
        step = Step(args.step, args.nvcc, args.cxx, args.tu, args.version, args.cpu, args.sm_target, flags, scratch)
        STEPS[args.step](step, args)
    except StepError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
