"""Asks FlashInfer's own generators what its ahead-of-time modules are made of.

Writes OUT/modules.bzl, OUT/modules.json and OUT/generated/: per module its SM targets, link options
and translation units with their flags and headers. Needs no GPU, CUDA toolkit, torch or network.
Run it with `python3 -B`; see --help.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.abc
import importlib.machinery
import json
import os
import re
import shlex
import shutil
import sys
import sysconfig
import tempfile
import types
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from include_scan import ScanError, Trees, scan

# Packages that upstream imports and that decide nothing about the modules of a profile.
STUBBED = frozenset({"pynvml", "requests", "torch", "tvm_ffi"})


class ImporterError(Exception):
    """Upstream, the profile or the command line is not as expected."""


@dataclass(frozen=True)
class Request:
    """The command line; paths are resolved."""

    python_root: Path
    first_party: Path
    third_party: Path
    site: Path
    profile: Path
    out: Path
    cuda: str
    archs: str


@dataclass(frozen=True)
class Generator:
    """One entry of a profile: upstream's `function` ("module.path:name") and its arguments.

    where: the SM target without which upstream does not ask for the module (flashinfer/aot.py), or empty.
    """

    function: str
    args: tuple[str | int | bool, ...]
    where: str = ""

    def __str__(self) -> str:
        return f"{self.function}({', '.join(map(repr, self.args))})"


@dataclass(frozen=True)
class Flags:
    """A command line of upstream's, taken apart. copts keep their order."""

    copts: tuple[str, ...]
    include_dirs: tuple[str, ...]
    sm_targets: tuple[str, ...]


@dataclass(frozen=True)
class TranslationUnit:
    """One source of a module; files are named `csrc/…`, `include/…` or `generated/…`."""

    src: str
    lang: str
    device_code: bool
    copts: tuple[str, ...]
    includes: tuple[str, ...]
    hdrs: tuple[str, ...]
    third_party: tuple[str, ...]
    toolkit_components: tuple[str, ...]


@dataclass(frozen=True)
class Module:
    """One shared library that FlashInfer's runtime loads by name."""

    sm_targets: tuple[str, ...]
    linkopts: tuple[str, ...]
    tus: tuple[TranslationUnit, ...]


class _Stub(type):
    """Stands for a stubbed package and all in it. It has no text, lest that ends up in a flag."""

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        setattr(cls, name, _Stub(f"{cls.__name__}.{name}", (), {}))
        return cls.__dict__[name]

    def __call__(cls, *args: Any, **kwargs: Any) -> Any:
        decorates = len(args) == 1 and callable(args[0]) and not kwargs
        return args[0] if decorates else cls

    def __repr__(cls) -> str:
        raise TypeError(f"{cls.__name__} is stubbed by importer.py and has no text")


class _StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        stubbed = fullname.split(".")[0] in STUBBED
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if stubbed else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return _Stub(spec.name, (), {})

    def exec_module(self, module: types.ModuleType) -> None:
        pass


def read_profile(path: Path) -> tuple[Generator, ...]:
    """The generators of a profile; ImporterError if the file has another form."""
    try:
        entries = json.loads(path.read_text(encoding="utf-8"))["generators"]
        if unknown := sorted({key for entry in entries for key in entry} - {"generator", "args", "where"}):
            raise ValueError(f"unknown keys {unknown}")
        return tuple(Generator(e["generator"], tuple(e.get("args", ())), e.get("where", "")) for e in entries)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImporterError(
            f'profile {path}: expected {{"generators": [{{"generator": "module.path:function", '
            f'"args": [...], "where": "10.7a"}}]}}, found {error!r}; correct the file'
        ) from error


def load_upstream(request: Request, work: Path) -> tuple[Any, Trees]:
    """Imports flashinfer.jit, aimed at the request's source trees and at a workspace below work.

    Replaces this process's environment and sys.path, so that the request alone decides the result.

    Returns:
      flashinfer.jit.cpp_ext, which makes upstream's command lines, and the source trees.
    Raises:
      ImporterError: flashinfer.jit does not import, or a source tree is missing.
    """
    # Upstream asks nvcc for its version and for what it can target.
    nvcc = work / "cuda" / "bin" / "nvcc"
    nvcc.parent.mkdir(parents=True)
    nvcc.write_text(
        '#!/bin/sh\ncase "$1" in --version | --list-gpu-arch) ;; *) exit 1 ;; esac\n'
        f"echo 'Cuda compilation tools, release {request.cuda}, V{request.cuda}'\n"
        f"echo '{' '.join('compute_' + re.sub('[.af]', '', a) for a in request.archs.split())}'\n"
    )
    nvcc.chmod(0o755)
    os.environ.clear()
    os.environ.update(
        CUDA_HOME=str(work / "cuda"),
        FLASHINFER_CUBIN_DIR=str(work / "cubins"),
        FLASHINFER_CUDA_ARCH_LIST=request.archs,
        FLASHINFER_LOGGING_LEVEL="error",
        FLASHINFER_NO_DOWNLOAD="1",
        FLASHINFER_WORKSPACE_BASE=str(work),
        HOME=str(work),
    )
    installed = ("site-packages", "dist-packages")
    sys.path[:] = [str(request.site), *(p for p in sys.path if Path(p).name not in installed)]
    sys.meta_path.insert(0, _StubFinder())
    sys.dont_write_bytecode = True
    # A free-threaded interpreter here must not change what is compiled for all the others.
    sysconfig.get_config_vars()["Py_GIL_DISABLED"] = 0
    # flashinfer/__init__.py would import the whole library.
    sys.modules["flashinfer"] = types.ModuleType("flashinfer")
    sys.modules["flashinfer"].__path__ = [str(request.python_root / "flashinfer")]
    try:
        importlib.import_module("torch")._C._GLIBCXX_USE_CXX11_ABI = True
        tvm_ffi = importlib.import_module("tvm_ffi").libinfo
        tvm_ffi.find_include_path = tvm_ffi.find_dlpack_include_path = lambda: "/tvm_ffi"
        env: Any = importlib.import_module("flashinfer.jit.env")
        cpp_ext = importlib.import_module("flashinfer.jit.cpp_ext")
    except Exception as error:
        raise ImporterError(
            f"cannot import flashinfer.jit: {error!r}; expected flashinfer/ in --python-root "
            f"{request.python_root} and jinja2, markupsafe, packaging, filelock in --site "
            f"{request.site}; another package that is named belongs in STUBBED or in --site"
        ) from error

    def third(path: Path) -> Path:
        return request.third_party / path.relative_to(env.FLASHINFER_DATA)

    env.CUTLASS_INCLUDE_DIRS = [third(path) for path in env.CUTLASS_INCLUDE_DIRS]
    env.CCCL_INCLUDE_DIRS = [third(path) for path in env.CCCL_INCLUDE_DIRS]
    env.SPDLOG_INCLUDE_DIR = third(env.SPDLOG_INCLUDE_DIR)
    env.FLASHINFER_DATA = request.first_party
    # Resolved, as upstream resolves the include directories that it puts into flags.
    env.FLASHINFER_CSRC_DIR = (request.first_party / "csrc").resolve()
    env.FLASHINFER_INCLUDE_DIR = (request.first_party / "include").resolve()
    first = {"csrc": env.FLASHINFER_CSRC_DIR, "include": env.FLASHINFER_INCLUDE_DIR}
    dirs = (*env.CUTLASS_INCLUDE_DIRS, *env.CCCL_INCLUDE_DIRS, env.SPDLOG_INCLUDE_DIR)
    if missing := [str(path) for path in (*first.values(), *dirs) if not path.is_dir()]:
        raise ImporterError(
            f"missing {', '.join(missing)}; expected csrc/ and include/ in --first-party, and "
            "cutlass/, cccl/ and spdlog/ in --third-party"
        )
    names = sorted({path.relative_to(request.third_party).parts[0] for path in dirs})
    return cpp_ext, Trees(
        first_party={**first, "generated": env.FLASHINFER_GEN_SRC_DIR},
        third_party={name: request.third_party / name for name in names},
        third_party_dirs=dirs,
    )


def sm_target(gencode: str) -> str:
    """`9.0a` for `-gencode=arch=compute_90a,code=sm_90a`; ImporterError for any other form."""
    match = re.fullmatch(r"-gencode=arch=compute_(\w+),code=sm_(\d+)(\d)([af]?)", gencode)
    if not match or match[1] != match[2] + match[3] + match[4]:
        raise ImporterError(
            f"flag {gencode!r}: expected -gencode=arch=compute_XY,code=sm_XY, since modules.bzl "
            "has no place for PTX; leave the module out of the profile or extend sm_target"
        )
    return f"{match[2]}.{match[3]}{match[4]}"


def split_flags(flags: Iterable[str]) -> Flags:
    """Takes upstream's flags, which are shell text, apart. `--threads=` is dropped.

    Raises:
      ImporterError: a flag of an unknown form, or one that names a directory of this machine.
    """
    copts: list[str] = []
    include_dirs: list[str] = []
    sm_targets: list[str] = []
    for flag in flags:
        # Upstream writes `-isystem DIR` as one string, and does not quote DIR.
        if match := re.fullmatch(r"(?:-I|-isystem )(.+)", flag):
            include_dirs.append(os.path.normpath(match[1]))
        elif flag.startswith("-gencode"):
            sm_targets.append(sm_target(flag))
        elif re.match(r"-I|-isystem", flag) or re.search(r'(?:^|-L|[=,"])/', flag):
            raise ImporterError(
                f"flag {flag!r}: expected an include directory in one string, and no other "
                "absolute paths; leave the module out of the profile or extend split_flags"
            )
        elif not flag.startswith("--threads="):
            copts.extend(shlex.split(flag))
    return Flags(tuple(copts), tuple(include_dirs), tuple(sm_targets))


def upstream_flags(spec: Any, source: Path, cpp_ext: Any) -> Flags:
    """The flags that upstream's ninja file has for a source; include_dirs are the module's own."""
    cuda_home = cpp_ext.get_cuda_path()
    shared = split_flags(cpp_ext.build_common_cflags(cuda_home, None)).include_dirs
    common = cpp_ext.build_common_cflags(cuda_home, spec.extra_include_dirs)
    if source.suffix == ".cu":
        by_source = spec.extra_cuda_cflags_by_source or {}
        extra = by_source.get(source.resolve(), spec.extra_cuda_cflags)
        lines = cpp_ext.build_cuda_cflags(common, extra)
    else:
        lines = cpp_ext.build_cflags(common, spec.extra_cflags)
    # "$common_cflags" is a variable of the ninja file.
    flags = split_flags(f for line in lines for f in (common if line == "$common_cflags" else [line]))
    own = tuple(path for path in dict.fromkeys(flags.include_dirs) if path not in shared)
    return Flags(flags.copts, own, flags.sm_targets)


def describe(spec: Any, cpp_ext: Any, trees: Trees) -> Module:
    """What Bazel needs to know of one of upstream's JitSpecs.

    Raises:
      ImporterError, ScanError: the module needs something that modules.bzl cannot express.
    """
    unsupported = ("needs_device_linking", "embedded_cubin_factory")
    if spec.toolchain != "nvcc" or any(getattr(spec, name) for name in unsupported):
        raise ImporterError(
            f"expected a module of nvcc without {', '.join(unsupported)}, found {spec.toolchain}; leave it "
            "out of the profile or extend importer.py"
        )
    tus = []
    sm_targets = set()
    for source in (Path(os.path.normpath(source)) for source in spec.sources):
        src = trees.label(source)
        if not source.is_file():
            raise ImporterError(f"source {source} is missing; expected a file; check --first-party")
        flags = upstream_flags(spec, source, cpp_ext)
        closure = scan(source, trees, map(Path, flags.include_dirs), flags.copts)
        lang = "cuda" if source.suffix == ".cu" else "c++"
        if lang == "cuda":
            sm_targets.add(flags.sm_targets)
        tus.append(
            TranslationUnit(
                src=src,
                lang=lang,
                device_code=lang == "cuda" and closure.device_code,
                copts=flags.copts,
                includes=tuple(trees.label(path) for path in flags.include_dirs),
                hdrs=closure.headers,
                third_party=closure.third_party,
                toolkit_components=closure.toolkit_components,
            )
        )
    if len(sm_targets) > 1:
        raise ImporterError(f"expected one list of SM targets per module, found {sm_targets}")
    linkopts = split_flags(spec.extra_ldflags or ()).copts
    return Module(sm_targets.pop() if sm_targets else (), linkopts, tuple(tus))


def describe_all(generators: Iterable[Generator], cpp_ext: Any, trees: Trees) -> dict[str, Module]:
    """The modules of a profile by name.

    Raises:
      ImporterError: a generator is unknown or raises, two give the same name, or as describe.
    """
    modules: dict[str, Module] = {}
    for generator in generators:
        module, _, name = generator.function.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as error:
            raise ImporterError(
                f"unknown generator {generator}: {error}; expected a function of this FlashInfer; "
                "look it up in flashinfer/aot.py and correct the profile"
            ) from error
        try:
            result = function(*generator.args)
        except Exception as error:
            raise ImporterError(
                f"generator {generator} raised {error!r}; expected a JitSpec; compare its arguments "
                "with flashinfer/aot.py, and see whether it needs a network or a stubbed package"
            ) from error
        for spec in result if isinstance(result, list) else [result]:
            if spec.name in modules:
                raise ImporterError(
                    f"duplicate module {spec.name}, expected one generator for it, found another: "
                    f"{generator}; remove one from the profile"
                )
            try:
                modules[spec.name] = describe(spec, cpp_ext, trees)
            except (ImporterError, ScanError) as error:
                raise ImporterError(f"module {spec.name} of {generator}: {error}") from error
    return modules


def starlark(value: Any, indent: int = 0) -> str:
    """The Starlark literal of dicts, sequences, strings, ints and bools; keys are sorted."""
    if isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        opening, closing = "{}"
        items = [f"{starlark(k)}: {starlark(value[k], indent + 4)}" for k in sorted(value)]
    else:
        opening, closing = "[]"
        items = [starlark(item, indent + 4) for item in value]
    lines = "".join(f"{' ' * (indent + 4)}{item},\n" for item in items)
    return f"{opening}\n{lines}{' ' * indent}{closing}" if items else opening + closing


def write(modules: Mapping[str, Module], generated: Path, out: Path) -> None:
    """Fills out, which must be new or empty, or leaves it as it was.

    Args:
      generated: the directory of the sources that upstream rendered.
    """
    plain = {name: asdict(module) for name, module in modules.items()}
    files = {
        "modules.json": json.dumps(plain, indent=2, sort_keys=True) + "\n",
        "modules.bzl": '"""FlashInfer\'s modules, written by kernels/flashinfer/importer.py."""\n\n'
        f"MODULES = {starlark(plain)}\n",
    }
    tus = [tu for module in modules.values() for tu in module.tus]
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as holder:
        stage = Path(holder) / "out"
        stage.mkdir()
        for label in {label for tu in tus for label in (tu.src, *tu.hdrs)}:
            if label.startswith("generated/"):
                (stage / label).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(generated.parent / label, stage / label)
        for name, text in files.items():
            (stage / name).write_text(text, encoding="utf-8")
        stage.rename(out)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Describes FlashInfer's modules for Bazel.")
    for option, text in (
        ("--python-root", "directory that holds the package flashinfer/"),
        ("--first-party", "directory that holds csrc/ and include/"),
        ("--third-party", "directory that holds cutlass/, cccl/ and spdlog/"),
        ("--site", "directory that holds jinja2, markupsafe, packaging and filelock"),
        ("--profile", "JSON file that lists the generators to ask"),
        ("--out", "directory to write: new or empty"),
    ):
        parser.add_argument(option, type=lambda p: Path(p).resolve(), required=True, help=text)
    parser.add_argument("--cuda", required=True, help="CUDA version, such as 13.0")
    parser.add_argument("--archs", required=True, help='SM targets, such as "8.0 9.0a"')
    request = Request(**vars(parser.parse_args(argv)))
    try:
        if request.out.exists() and any(request.out.iterdir()):
            raise ImporterError(f"--out {request.out}: expected a new or empty directory")
        archs = request.archs.split()
        generators = [g for g in read_profile(request.profile) if not g.where or g.where in archs]
        with tempfile.TemporaryDirectory(prefix="flashinfer-importer.") as work:
            cpp_ext, trees = load_upstream(request, Path(work).resolve())
            modules = describe_all(generators, cpp_ext, trees)
            write(modules, trees.first_party["generated"], request.out)
    except (ImporterError, ScanError) as error:
        print(f"importer.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
