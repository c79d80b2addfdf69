"""Asks FlashInfer's own generators which ahead-of-time modules it has for a CUDA version, and what each is made of.

Writes OUT/<label>/specs.json and the sources that upstream renders, in generated/ and cached_ops/ beside it, and in cubins/ what
it takes of NVIDIA's cubin server, if that is provided. Nothing is run but Python: there is no GPU, CUDA toolkit, torch or network,
and what upstream asks of them is answered here.
Run it with `python3 -B`; see --help.
"""

from __future__ import annotations

import argparse
import functools
import hashlib
import importlib
import importlib.abc
import importlib.machinery
import inspect
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import types
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from provided import NCCL_VERSION, SETTINGS, Provided, ProvidedError, add_options, digest, find_provided

# Packages that upstream imports and that decide nothing about its modules.
STUBBED = frozenset({"pynvml", "requests", "torch", "tvm_ffi"})

# Why a module can't be built. They are what modules.<label>.txt and a wheel's manifest say.
CUBIN_SERVER = "needs files of NVIDIA's cubin server"
TORCH = "needs the headers and libraries of CUDA's torch"
NCCL = "needs NCCL"
EMBEDDED = "embeds cubins that are compiled apart, in a way that is not known here"

# Stands for a directory that is not here. A module that names it needs it.
_TORCH_ROOT = "/needs/torch"
# For which the header of AlphaMoE's images is written: for all that there are, since CUDA labels share what is rendered.
_ALPHAMOE_ARCHS = ("sm_100a", "sm_103a")

_TORCH_VERSION = "2.13.0"
# Bytes of an element, by torch's name.
_DTYPES = {
    1: "bool float4_e2m1fn_x2 float8_e4m3fn float8_e5m2 float8_e8m0fnu int8 uint8",
    2: "bfloat16 float16 int16 uint16",
    4: "float32 int32 uint32",
    8: "complex64 float64 int64 uint64",
    16: "complex128",
}
_DTYPE_ALIASES = {"double": "float64", "float": "float32", "half": "float16", "int": "int32", "long": "int64"}

# In place of what upstream compiles.
_CUBIN = b"a cubin that the build makes\n"

# What reaches out of this process.
_REFUSED = ("os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.system", "pty.spawn", "socket.", "subprocess.")


class UpstreamError(Exception):
    """Upstream or the command line is not as expected."""


@dataclass(frozen=True)
class Request:
    """The command line; paths are resolved."""

    python_root: Path
    first_party: Path
    third_party: Path
    site: Path
    out: Path
    cuda: str
    archs: str
    ninja: Path | None
    provided: Provided


@dataclass(frozen=True)
class Flags:
    """A command line of upstream's, taken apart. copts keep their order.

    include_dirs: of the module itself, which are searched before CCCL's.
    late_include_dirs: the same, searched after CCCL's.
    """

    copts: tuple[str, ...]
    include_dirs: tuple[str, ...]
    late_include_dirs: tuple[str, ...]
    sm_targets: tuple[str, ...]


@dataclass(frozen=True)
class Source:
    """A TU as upstream's ninja file has it; files and directories are named as by `Roots.label`."""

    src: str
    copts: tuple[str, ...]
    includes: tuple[str, ...]
    late_includes: tuple[str, ...]


@dataclass(frozen=True)
class Embedded:
    """A cubin that a module has in itself and loads with the driver's or the runtime's API.

    symbol: where host code looks for it; kernel: what it asks the cubin for.
    """

    name: str
    symbol: str
    kernel: str
    sm_target: str
    source: Source


@dataclass(frozen=True)
class Spec:
    """A module. reason: why it can't be built, or empty; it then has no sources."""

    name: str
    reason: str
    sm_targets: tuple[str, ...] = ()
    linkopts: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    embedded: tuple[Embedded, ...] = ()


@dataclass(frozen=True)
class Roots:
    """Directories by the names that files in them get: `csrc` -> /.../csrc, for `csrc/norm.cu`."""

    by_name: tuple[tuple[str, str], ...]

    def label(self, path: str) -> str:
        """`csrc/norm.cu`. UpstreamError if the path is in none of the directories."""
        for name, root in self.by_name:
            if path == root or path.startswith(root + "/"):
                return name + path[len(root) :]
        names = ", ".join(name for name, _ in self.by_name)
        raise UpstreamError(f"{path}: expected a path in {names}; check --first-party and --third-party")


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
        raise TypeError(f"{cls.__name__} is stubbed by upstream.py and has no text")


class _StubFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> Any:
        stubbed = fullname.split(".")[0] in STUBBED
        return importlib.machinery.ModuleSpec(fullname, self, is_package=True) if stubbed else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> Any:
        return _Stub(spec.name, (), {})

    def exec_module(self, module: types.ModuleType) -> None:
        pass


class _Dtype:
    """torch.dtype, as far as names and sizes go."""

    def __init__(self, name: str, itemsize: int) -> None:
        self.name = name
        self.itemsize = itemsize
        self.is_floating_point = not name.startswith(("bool", "int", "uint"))

    def __repr__(self) -> str:
        return f"torch.{self.name}"


class _Process:
    """Stands for subprocess.Popen: upstream asks nvcc for its version and for what it can target.

    It also compiles and runs a program that prints the traits of FMHA kernels. What that prints goes into a header
    that no source includes, so it prints nothing. Compilations of cubins are noted in `cubins`, and make no cubin.
    """

    answers: dict[str, str] = {}  # noqa: RUF012 (of the class: upstream makes the objects)
    cubins: list[list[str]] = []  # noqa: RUF012

    def __init__(self, args: Any, **kwargs: Any) -> None:
        words = [args] if isinstance(args, str) else [str(word) for word in args]
        if os.path.basename(words[0]) == "nvcc" and words[1:2] in ([a] for a in self.answers):
            self.output = self.answers[words[1]]
        elif os.path.basename(words[0]) == "nvcc" and "-cubin" in words:
            self.output = ""
            self.cubins.append(words[1:])
            Path(words[words.index("-o") + 1]).write_bytes(_CUBIN)
        elif words[0] == "bin/print_traits.exe" or "bin/print_traits.exe" in words:
            self.output = ""
        else:
            raise UpstreamError(
                f"`{shlex.join(words)}`: upstream may run no program here; teach upstream.py the answer"
            )
        self.args, self.returncode = args, 0
        self.text = bool(kwargs.get("text") or kwargs.get("universal_newlines") or kwargs.get("encoding"))

    def __enter__(self) -> _Process:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def communicate(self, *_: Any, **__: Any) -> tuple[Any, Any]:
        """What the program would have printed."""
        return (self.output, "") if self.text else (self.output.encode(), b"")

    def poll(self) -> int:
        """The exit status."""
        return self.returncode


class _Failed(list[Any]):
    """In place of the module, or of the list of modules, of a generator that raised."""

    def __init__(self, call: str, error: Exception) -> None:
        super().__init__([self])
        self.name = call
        self.error = error


def _stub_packages(cuda: str, torch_include: Path | None) -> None:
    """What upstream asks of the stubbed packages. Must run before flashinfer is imported."""
    torch = importlib.import_module("torch")
    version = importlib.import_module("packaging.version").Version
    torch_version: Any = importlib.import_module("torch.torch_version")
    torch_version.TorchVersion = version
    torch.__version__ = torch_version.__version__ = _TORCH_VERSION  # type: ignore[attr-defined]
    importlib.import_module("torch.version").cuda = cuda  # type: ignore[attr-defined]
    torch._C._GLIBCXX_USE_CXX11_ABI = True
    torch.dtype = _Dtype  # type: ignore[attr-defined]
    for itemsize, names in _DTYPES.items():
        for name in names.split():
            setattr(torch, name, _Dtype(name, itemsize))
    for alias, name in _DTYPE_ALIASES.items():
        setattr(torch, alias, getattr(torch, name))
    torch.finfo = torch.iinfo = lambda _=None: types.SimpleNamespace(eps=0, max=0, min=0)  # type: ignore[attr-defined]
    extension: Any = importlib.import_module("torch.utils.cpp_extension")
    include = str(torch_include or f"{_TORCH_ROOT}/include")
    # The toolkit's, which torch names as well, every module has.
    extension.include_paths = lambda *_, **__: [include, f"{include}/torch/csrc/api/include"]
    extension.library_paths = lambda *_, **__: [f"{_TORCH_ROOT}/lib"]
    libinfo = importlib.import_module("tvm_ffi").libinfo
    libinfo.find_include_path = libinfo.find_dlpack_include_path = lambda: "/tvm_ffi"


def load_upstream(request: Request, work: Path) -> tuple[Any, Any, Roots]:
    """Imports flashinfer.aot, aimed at the request's source trees and at a workspace below work.

    Replaces this process's environment, sys.path and subprocess.Popen, so that the request alone decides the result.

    Returns:
      flashinfer.aot, flashinfer.jit.cpp_ext, which makes upstream's command lines, and the source trees.
    Raises:
      UpstreamError: flashinfer.aot does not import, or a source tree is missing.
    """
    os.environ.clear()
    os.environ.update(
        CUDA_HOME=str(work / "cuda"),
        CUDA_PATH=str(work / "cuda"),
        FLASHINFER_CUBIN_DIR=str(work / "cubins"),
        FLASHINFER_CUDA_ARCH_LIST=request.archs,
        FLASHINFER_LOGGING_LEVEL="error",
        FLASHINFER_NO_DOWNLOAD="1",
        FLASHINFER_WORKSPACE_BASE=str(work),
        HOME=str(work),
        NCCL_HOME=str(work / "nccl"),
    )
    # With it upstream names the modules that need NCCL, which it leaves out otherwise.
    (work / "nccl" / "lib").mkdir(parents=True)
    (work / "nccl" / "lib" / "libnccl.so.2").touch()
    if request.provided.nccl:
        (work / "nccl" / "include").symlink_to(request.provided.nccl)
    else:
        (work / "nccl" / "include").mkdir()
        major, minor, patch = map(int, NCCL_VERSION.split("."))
        for name in ("nccl.h", "nccl_device.h"):
            text = f"#define NCCL_VERSION_CODE {major * 10000 + minor * 100 + patch}\n"
            (work / "nccl" / "include" / name).write_text(text, encoding="utf-8")
    _Process.answers = {
        "--version": f"Cuda compilation tools, release {request.cuda}, V{request.cuda}.0\n",
        "--list-gpu-arch": "".join(f"compute_{re.sub('[.af]', '', arch)}\n" for arch in request.archs.split()),
    }
    subprocess.Popen = _Process  # type: ignore[assignment,misc]
    installed = ("site-packages", "dist-packages")
    sys.path[:] = [str(request.site), *(p for p in sys.path if Path(p).name not in installed)]
    sys.meta_path.insert(0, _StubFinder())
    sys.dont_write_bytecode = True
    sys.pycache_prefix = str(work / "pycache")
    # A free-threaded interpreter here must not change what is compiled for all the others.
    sysconfig.get_config_vars()["Py_GIL_DISABLED"] = 0
    # flashinfer/__init__.py would import the whole library.
    package: Any = types.ModuleType("flashinfer")
    package.__path__ = [str(request.python_root / "flashinfer")]
    sys.modules["flashinfer"] = package
    try:
        _stub_packages(request.cuda, request.provided.torch)
        aot: Any = importlib.import_module("flashinfer.aot")
        env: Any = importlib.import_module("flashinfer.jit.env")
        cpp_ext: Any = importlib.import_module("flashinfer.jit.cpp_ext")
    except Exception as error:
        raise UpstreamError(
            f"cannot import flashinfer.aot: {error!r}; expected flashinfer/ in --python-root "
            f"{request.python_root} and jinja2, markupsafe, packaging, filelock in --site "
            f"{request.site}; another package that is named belongs in STUBBED or in --site"
        ) from error

    def third(path: Path) -> Path:
        return request.third_party / path.relative_to(env.FLASHINFER_DATA)

    # Lists are changed in place: modules that were imported have them.
    env.CUTLASS_INCLUDE_DIRS[:] = [third(path) for path in env.CUTLASS_INCLUDE_DIRS]
    env.CCCL_INCLUDE_DIRS[:] = [third(path) for path in env.CCCL_INCLUDE_DIRS]
    env.SPDLOG_INCLUDE_DIR = third(env.SPDLOG_INCLUDE_DIR)
    env.FLASHINFER_DATA = request.first_party
    # Resolved, as upstream resolves the include directories that it puts into flags.
    env.FLASHINFER_CSRC_DIR = (request.first_party / "csrc").resolve()
    env.FLASHINFER_INCLUDE_DIR = (request.first_party / "include").resolve()
    dirs = (
        env.FLASHINFER_CSRC_DIR,
        env.FLASHINFER_INCLUDE_DIR,
        *env.CUTLASS_INCLUDE_DIRS,
        *env.CCCL_INCLUDE_DIRS,
        env.SPDLOG_INCLUDE_DIR,
    )
    if missing := [str(path) for path in dirs if not path.is_dir()]:
        raise UpstreamError(
            f"missing {', '.join(missing)}; expected csrc/ and include/ in --first-party, and "
            "cutlass/, cccl/ and spdlog/ in --third-party"
        )
    roots: dict[str, Path] = {
        "csrc": env.FLASHINFER_CSRC_DIR,
        "include": env.FLASHINFER_INCLUDE_DIR,
        "generated": env.FLASHINFER_GEN_SRC_DIR,
        "cached_ops": env.FLASHINFER_JIT_DIR,
        **{name: request.third_party / name for name in ("cccl", "cutlass", "spdlog")},
        # Sources beside the Python code that launches them.
        "package": request.python_root / "flashinfer",
        "cubins": work / "cubins",
        **{f"{tree}/include": path for tree, path in request.provided.include_dirs.items()},
    }
    return aot, cpp_ext, Roots(tuple((name, os.path.normpath(root)) for name, root in roots.items()))


class CubinServer:
    """Answers for NVIDIA's cubin server, from a directory of its files if there is one.

    asked: what was asked of it since this was last cleared, if there is none.
    given: the sha256 of each file that was given from the directory.
    problems: what is wrong with the directory; with any, what upstream says of its modules is to be discarded.
    """

    def __init__(self, directory: Path | None, into: Path) -> None:
        """Args: directory, of the server's files; into, where upstream expects them."""
        self.asked: list[str] = []
        self.given: dict[str, str] = {}
        self.problems: dict[str, None] = {}
        self._directory = directory
        self._into = into

    def answers(self) -> dict[Any, Callable[..., Any]]:
        """What to call in place of upstream's functions."""
        loader: Any = importlib.import_module("flashinfer.jit.cubin_loader")
        metainfo: Any = importlib.import_module("flashinfer.jit.trtllm_gen_metainfo")
        if self._directory:
            return {loader.get_artifact: self._give, loader.ensure_symlink: self._copy}
        return {
            loader.get_artifact: self._note,
            loader.get_meta_hash: lambda *_, **__: "of-the-cubin-server",
            loader.verify_symlinked_headers: lambda *_, **__: None,
            metainfo.write_filtered_metainfo: lambda *_, **__: None,
        }

    def _note(self, file_name: str, *_: Any, **__: Any) -> bytes:
        self.asked.append(file_name)
        return b"of the cubin server\n"

    def _give(self, file_name: str, sha256: str, *_: Any, **__: Any) -> bytes:
        assert self._directory
        file_name = os.path.normpath(file_name)
        path = self._directory / file_name
        content = path.read_bytes() if path.is_file() else None
        found = "no such file" if content is None else hashlib.sha256(content).hexdigest()
        if content is None or found != sha256:
            problem = (
                f"{SETTINGS['cubins']}={self._directory} does not have {file_name} as FlashInfer pins it.\n"
                f"  expected: sha256 {sha256}\n"
                f"  found:    {found}\n"
                "  To do: fill the directory with `flashinfer download-cubin` of the same version of FlashInfer, with "
                "FLASHINFER_CUBIN_DIR set to it, or leave the setting out."
            )
            self.problems[problem] = None
            raise UpstreamError(problem)
        self.given[file_name] = sha256
        target = self._into / file_name
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(content)
        return content

    def _copy(self, link: Any, target: Any) -> None:
        """In place of a symbolic link, which would name a directory of this machine."""
        shutil.copytree(target, link, copy_function=shutil.copyfile, dirs_exist_ok=True)


def _replace_functions(answers: dict[Any, Callable[..., Any]]) -> None:
    """Calls other functions in place of upstream's, wherever these were imported."""
    for name, module in sorted(sys.modules.items()):
        if name.startswith("flashinfer."):
            for attribute, value in list(vars(module).items()):
                if isinstance(value, types.FunctionType) and value in answers:
                    setattr(module, attribute, answers[value])


def _answer_nvrtc() -> list[list[str]]:
    """Makes upstream's uses of NVRTC answer without compiling; returns where the options of one that says them are noted."""
    asked: list[list[str]] = []

    def compile_(*_: Any, options: Sequence[str] = (), **__: Any) -> bytes:
        asked.append(list(options))
        return _CUBIN

    for name, attribute in (("flash_kda_nvrtc", "_compile_cubin"), ("alphamoe_nvrtc", "nvrtc_compile")):
        try:
            module: Any = importlib.import_module(f"flashinfer.jit.{name}")
        except ImportError:
            continue  # of another version of upstream
        setattr(module, attribute, compile_)
        # Upstream refuses options with "o1" in them, also in the path of a directory. nvcc has the toolkit's by itself.
        if hasattr(module, "_cuda_include_dirs"):
            module._cuda_include_dirs = tuple
    return asked


def _isolate(
    function: Callable[..., Any], server: CubinServer, needing: dict[str, str], reason: str = ""
) -> Callable[..., Any]:
    """A generator whose failure costs its own modules only.

    Its modules are noted in `needing` if they asked the cubin server, or need what `reason` says.
    """

    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        server.asked.clear()
        try:
            result = function(*args, **kwargs)
            # A generator function runs where it is caught.
            result = list(result) if isinstance(result, (Iterator, list)) else result
        except Exception as error:
            words = [*map(repr, args), *(f"{key}={value!r}" for key, value in kwargs.items())]
            return _Failed(f"{function.__name__}({', '.join(words)})", error)
        if why := CUBIN_SERVER if server.asked else reason:
            needing.update((spec.name, why) for spec in (result if isinstance(result, list) else [result]))
        return result

    return call


def _generators(module: Any) -> Iterator[str]:
    """The names of the functions of a module that make specs."""
    for name, value in list(vars(module).items()):
        # Generator functions of aot itself (gen_attention) call others by these names.
        if (
            re.match("gen_(?!all_modules)|_gen_", name)
            and inspect.isroutine(inspect.unwrap(value))
            and not inspect.isgeneratorfunction(value)
        ):
            yield name


def generate(aot: Any, server: CubinServer, has_nccl: bool) -> tuple[list[Any], dict[str, str]]:
    """Runs upstream's gen_all_modules with its default configuration.

    Returns:
      the specs (a `_Failed` in place of those of a generator that raised), and why some can't be built, by name.
    """
    needing: dict[str, str] = {}
    # gen_all_modules imports some generators where it needs them.
    homes = [(aot, "")]
    nccl = "" if has_nccl else NCCL
    for name, reason in (("comm", ""), ("attention", ""), (".moe_ep.kernel_src.sm120.cake_mxfp4_megamoe", nccl)):
        try:
            homes.append((importlib.import_module(f".{name}", "flashinfer.jit"), reason))
        except ImportError:
            continue  # of another version of upstream; if it is needed, gen_all_modules says so
    _replace_functions(server.answers())
    for home, reason in homes:
        for name in _generators(home):
            setattr(home, name, _isolate(getattr(home, name), server, needing, reason))
    config = aot.get_default_config()
    arguments = {
        name: aot.detect_sm_capabilities() if name == "sm_capabilities" else config[name.rstrip("_")]
        for name in inspect.signature(aot.gen_all_modules).parameters
    }
    return aot.gen_all_modules(**arguments), needing


def sm_target(gencode: str) -> str:
    """`9.0a` for `-gencode=arch=compute_90a,code=sm_90a`; UpstreamError for any other form."""
    match = re.fullmatch(r"-gencode=arch=compute_(\w+),code=sm_(\d+)(\d)([af]?)", gencode)
    if not match or match[1] != match[2] + match[3] + match[4]:
        raise UpstreamError(
            f"flag {gencode!r}: expected -gencode=arch=compute_XY,code=sm_XY, since the build has no place for PTX; "
            "extend sm_target"
        )
    return f"{match[2]}.{match[3]}{match[4]}"


def split_flags(flags: Iterable[str], shared: Sequence[str] = ()) -> Flags:
    """Takes upstream's flags, which are shell text, apart. `--threads=` is dropped.

    Args:
      shared: the include directories that all modules have.
    Raises:
      UpstreamError: a flag of an unknown form, or one that names a directory of this machine.
    """
    copts: list[str] = []
    early: dict[str, None] = {}
    late: dict[str, None] = {}
    sm_targets: list[str] = []
    seen_shared = False
    for flag in flags:
        # Upstream writes `-isystem DIR` as one string, and does not quote DIR.
        if match := re.fullmatch(r"(?:-I|-isystem )(.+)", flag):
            directory = os.path.normpath(match[1])
            if directory not in shared:
                (late if seen_shared else early)[directory] = None
            seen_shared = seen_shared or flag == f"-I{shared[0] if shared else ''}"
        elif flag.startswith("-gencode"):
            sm_targets.append(sm_target(flag))
        elif re.match(r"-I|-isystem", flag) or re.search(r'(?:^|-L|[=,"])/', flag):
            raise UpstreamError(
                f"flag {flag!r}: expected an include directory in one string, and no other absolute paths; "
                "extend split_flags"
            )
        elif not flag.startswith("--threads="):
            copts.extend(shlex.split(flag))
    late_only = tuple(directory for directory in late if directory not in early)
    return Flags(tuple(copts), tuple(early), late_only, tuple(sm_targets))


def split_ldflags(flags: Iterable[str], provided: Sequence[str]) -> tuple[str, ...]:
    """Upstream's flags for the linker, with the libraries in the `provided` directories by name (`-lnccl`).

    Who loads a module has loaded these libraries before: where they lie here says nothing.
    Raises UpstreamError for a flag that names another directory of this machine.
    """
    kept = []
    for flag in flags:
        path = re.sub("^(-L|-Wl,-rpath,)", "", flag)
        if not path.startswith(tuple(f"{directory}/" for directory in provided)):
            kept.append(flag)
        elif match := re.fullmatch(r"lib(\w+)\.so(?:\.\d+)*", os.path.basename(flag)) if path == flag else None:
            kept.append(f"-l{match[1]}")
    return split_flags(kept).copts


def nvcc_flags(options: Iterable[str], cuda_home: str) -> Flags:
    """NVRTC's options, or nvcc's for one cubin, as flags of nvcc.

    - The toolkit's include directories are left out: nvcc has its own. It also includes cuda_runtime.h by itself, and lets
      the host's headers be found; __CUDACC_RTC__ is not defined.
    - -default-device is left out: nvcc has no such flag. A function without an annotation is then one of the host, and a
      kernel that calls it does not compile.
    - What nvcc does not know of the rest, it refuses.

    Raises UpstreamError if there is not exactly one SM target.
    """
    rest: list[str] = []
    for option in options:
        if match := re.fullmatch(r"--gpu-architecture=sm_(\d+[af]?)", option):
            rest.append(f"-gencode=arch=compute_{match[1]},code=sm_{match[1]}")
        elif match := re.fullmatch(r"--generate-code=(.*)", option):
            rest.append(f"-gencode={match[1]}")
        elif option not in ("-default-device", "-cubin") and not option.startswith(f"-I{cuda_home}/"):
            rest.append(option)
    flags = split_flags(rest)
    if len(flags.sm_targets) != 1:
        raise UpstreamError(
            f"embedded cubin with options {shlex.join(options)}: expected one SM target, found {list(flags.sm_targets)}; "
            "extend nvcc_flags"
        )
    return flags


class Describer:
    """Turns upstream's specs into Specs."""

    def __init__(self, cpp_ext: Any, roots: Roots, provided: Provided) -> None:
        self._cpp_ext = cpp_ext
        self._provided = provided
        self._roots = roots
        self._cuda_home = cpp_ext.get_cuda_path()
        self._nccl = os.environ["NCCL_HOME"]
        common = cpp_ext.build_common_cflags(self._cuda_home, None)
        dirs = (re.sub("^(-I|-isystem )", "", flag) for flag in common if re.match("-I|-isystem ", flag))
        self._shared = tuple(os.path.normpath(directory) for directory in dirs)
        self._nvrtc = _answer_nvrtc()
        # What upstream calls to compile the cubins of a module, by its name. They all are functools.partial.
        self._embedders: dict[str, Callable[[Any, Path], list[Embedded]]] = {
            "prepare_generated_flash_kda_cubin": self._flash_kda,
            "_prepare_cubins": self._alphamoe,
            "_compile_cubins": self._megamoe,
        }

    def _embedder(self, spec: Any) -> Callable[[Any, Path], list[Embedded]] | None:
        function = getattr(spec.embedded_cubin_factory, "func", None)
        return self._embedders.get(getattr(function, "__name__", ""))

    def _embedded(self, spec: Any) -> tuple[Embedded, ...]:
        """The cubins that a module embeds, sorted by name. Upstream's own factory is run, with nothing to compile with."""
        embedder = self._embedder(spec)
        if not embedder:
            return ()
        work = Path(os.environ["FLASHINFER_WORKSPACE_BASE"])
        header = Path(self._cuda_home) / "include" / "cuda_bf16.h"  # by which upstream knows the toolkit
        header.parent.mkdir(parents=True, exist_ok=True)
        header.touch()
        # Upstream remembers what it compiled, and would not say it again: a directory for each.
        build = Path(tempfile.mkdtemp(dir=work, prefix="embedded.")) / "build"
        build.mkdir()
        return tuple(sorted(embedder(spec.embedded_cubin_factory, build), key=lambda cubin: cubin.name))

    def _cubin(self, name: str, symbol: str, kernel: str, source: Path, options: Iterable[str]) -> Embedded:
        flags = nvcc_flags(options, self._cuda_home)
        src = self._roots.label(os.path.normpath(source))
        includes = tuple(self._roots.label(directory) for directory in flags.include_dirs)
        return Embedded(name, symbol, kernel, flags.sm_targets[0], Source(src, flags.copts, includes, ()))

    def _flash_kda(self, factory: Any, build: Path) -> list[Embedded]:
        """flashinfer/jit/flash_kda_nvrtc.py: one cubin, of the body that the factory was given."""
        self._nvrtc.clear()
        names = list(factory(build))
        asked = factory.keywords
        if len(names) != 1 or len(self._nvrtc) != 1:
            raise UpstreamError(
                f"expected one embedded cubin, compiled once, found {names}, compiled {len(self._nvrtc)} times; "
                "extend Describer._flash_kda"
            )
        symbol = f"__tvm_ffi__cubin_{names[0]}"
        return [self._cubin(names[0], symbol, asked["kernel_name"], asked["body_path"], self._nvrtc[0])]

    def _alphamoe(self, factory: Any, build: Path) -> list[Embedded]:
        """flashinfer/jit/alphamoe_nvrtc.py: many cubins, some of which it makes arrays of in a header.

        The header is replaced by one that declares the arrays. They are embedded like the others.
        """
        objects = factory(build)
        receipt = json.loads((build / "alphamoe_nvrtc_receipt.json").read_text(encoding="utf-8"))
        images: list[str] = receipt["image_header"]["images"]
        cubins, declared = [], set()
        for record in receipt["embedded_cubins"]:
            name, arch = record["module_ident"], record["arch"]
            if (name in objects) == (name in images) or not name.endswith(arch) or arch not in _ALPHAMOE_ARCHS:
                raise UpstreamError(
                    f"embedded cubin {name} for {arch}: expected an object or an image, for one of "
                    f"{', '.join(_ALPHAMOE_ARCHS)}; extend Describer._alphamoe"
                )
            symbol = f"{name}_image" if name in images else f"__tvm_ffi__cubin_{name}"
            if name in images:
                declared.add(name.removesuffix(arch))
            options = record["compile_options"]
            cubins.append(self._cubin(name, symbol, record["kernel_symbol"], Path(record["source_path"]), options))
        lines = [
            f"extern const unsigned char {n}{arch}_image[];\n" for n in sorted(declared) for arch in _ALPHAMOE_ARCHS
        ]
        Path(receipt["image_header"]["path"]).write_text(
            f'// Cubins that are linked in, written by upstream.py.\n#pragma once\nextern "C" {{\n{"".join(lines)}}}\n',
            encoding="utf-8",
        )
        return cubins

    def _megamoe(self, factory: Any, build: Path) -> list[Embedded]:
        """cake_mxfp4_megamoe/shim/cake_jit.py: cubins that nvcc compiles."""
        _Process.cubins.clear()
        outputs = {os.path.basename(path): name for name, path in factory(build).items()}
        instances = factory.func.__globals__["read_manifest"]()["device"]["instances"]
        kernels = {os.path.basename(instance["path"]): instance["symbol"] for instance in instances}
        cubins = []
        for words in _Process.cubins:
            # Its output is a temporary file, called after the cubin.
            at = words.index("-o")
            [name] = [name for file, name in outputs.items() if os.path.basename(words[at + 1]).startswith(f".{file}.")]
            [source] = [word for word in words if word.endswith(".cu")]
            options = [word for i, word in enumerate(words) if i not in (at, at + 1) and word != source]
            kernel = kernels[os.path.basename(source)]
            cubins.append(self._cubin(name, f"__tvm_ffi__cubin_{name}", kernel, Path(source), options))
        return cubins

    def command_line(self, spec: Any, source: Path) -> list[str]:
        """The flags that upstream's ninja file has for a source."""
        common = self._cpp_ext.build_common_cflags(self._cuda_home, spec.extra_include_dirs)
        if source.suffix == ".cu":
            extra = self._flags_by_source(spec).get(source.resolve(), spec.extra_cuda_cflags)
            lines = self._cpp_ext.build_cuda_cflags(common, extra)
        else:
            lines = self._cpp_ext.build_cflags(common, spec.extra_cflags)
        # "$common_cflags" is a variable of the ninja file.
        return [flag for line in lines for flag in (common if line == "$common_cflags" else [line])]

    @staticmethod
    def _flags_by_source(spec: Any) -> dict[Path, list[str]]:
        by_source = spec.extra_cuda_cflags_by_source or {}
        return {Path(source).resolve(): flags for source, flags in by_source.items()}

    def reasons(self, spec: Any) -> list[str]:
        """Why a module can't be built, as far as its own description says."""
        words = [
            *(str(path) for path in (*spec.sources, *(spec.extra_include_dirs or ()))),
            *(spec.extra_cflags or ()),
            *(spec.extra_cuda_cflags or ()),
            *(spec.extra_ldflags or ()),
        ]
        text = "\n".join(words)
        found = {
            TORCH: not self._provided.torch and _TORCH_ROOT in text,
            NCCL: not self._provided.nccl and self._nccl in text,
            EMBEDDED: bool(spec.embedded_cubin_factory) and not self._embedder(spec),
        }
        return [reason for reason, holds in found.items() if holds]

    def describe(self, spec: Any, needing: dict[str, str]) -> Spec:
        """A module's description, or the reason why it can't be built.

        Raises UpstreamError if the module needs something that has no place in a Spec.
        """
        if isinstance(spec, _Failed):
            return Spec(spec.name, f"upstream's generator raised {spec.error!r}")
        known = [needing[spec.name]] if spec.name in needing else []
        if reasons := dict.fromkeys([*known, *self.reasons(spec)]):
            return Spec(spec.name, "; ".join(reasons))
        if spec.toolchain != "nvcc" or spec.needs_device_linking:
            found = f"toolchain {spec.toolchain}, needs_device_linking {spec.needs_device_linking}"
            raise UpstreamError(f"expected a module of nvcc without device linking, found {found}; extend upstream.py")
        by_source = self._flags_by_source(spec)
        # Most sources of a module have the same flags.
        by_key: dict[tuple[str, Path | None], Flags] = {}
        sources = []
        sm_targets = set()
        for path in spec.sources:
            key = (path.suffix, path.resolve() if path.resolve() in by_source else None)
            if key not in by_key:
                by_key[key] = split_flags(self.command_line(spec, path), self._shared)
            flags = by_key[key]
            src = self._roots.label(os.path.normpath(path))
            if not path.is_file():
                raise UpstreamError(f"source {src} is missing; expected a file; check --first-party")
            if path.suffix == ".cu":
                sm_targets.add(flags.sm_targets)
            includes, late = (
                tuple(self._roots.label(directory) for directory in directories)
                for directories in (flags.include_dirs, flags.late_include_dirs)
            )
            sources.append(Source(src, flags.copts, includes, late))
        if len(sm_targets) > 1:
            raise UpstreamError(f"expected one list of SM targets for a module, found {sorted(sm_targets)}")
        linkopts = split_ldflags(spec.extra_ldflags or (), (self._nccl, _TORCH_ROOT))
        of_module = sm_targets.pop() if sm_targets else ()
        embedded = self._embedded(spec)
        if others := sorted({cubin.sm_target for cubin in embedded} - set(of_module)):
            raise UpstreamError(
                f"embeds cubins for {', '.join(others)}; expected cubins for the SM targets of its TUs, "
                f"{', '.join(of_module) or 'none'}; extend upstream.py"
            )
        return Spec(spec.name, "", of_module, linkopts, tuple(sources), embedded)

    def write_ninja(self, spec: Any, directory: Path) -> None:
        """Writes what upstream's ninja would read. Embedded cubins, which it would have to compile first, are left out."""
        text = self._cpp_ext.generate_ninja_build_for_op(
            name=spec.name,
            sources=spec.sources,
            extra_cflags=spec.extra_cflags,
            extra_cuda_cflags=spec.extra_cuda_cflags,
            extra_ldflags=spec.extra_ldflags,
            extra_include_dirs=spec.extra_include_dirs,
            needs_device_linking=spec.needs_device_linking,
            extra_cuda_cflags_by_source=spec.extra_cuda_cflags_by_source,
        )
        # A directory comes before one that it lies in.
        for name, root in sorted(self._roots.by_name, key=lambda item: -len(item[1])):
            text = re.sub(rf"{re.escape(root)}(?=[/\s]|$)", f"@{name}@", text)
        (directory / f"{spec.name}.ninja").write_text(text, encoding="utf-8")


def describe_all(request: Request, work: Path, read: set[str]) -> dict[str, Any]:
    """What upstream has, as specs.json says it.

    Args:
      read: collects the files that are opened.
    Raises:
      UpstreamError: upstream is not as expected; the message names the module.
    """
    aot, cpp_ext, roots = load_upstream(request, work)
    server = CubinServer(request.provided.cubins, work / "cubins")
    try:
        specs, needing = generate(aot, server, bool(request.provided.nccl))
    except Exception as error:
        raise UpstreamError(
            f"flashinfer.aot.gen_all_modules raised {error!r}; expected the modules of its default configuration; "
            "see whether it needs a package that is stubbed, or teach upstream.py"
        ) from error
    if server.problems:
        raise UpstreamError("\n".join(server.problems))
    describer = Describer(cpp_ext, roots, request.provided)
    described = []
    for spec in specs:
        try:
            described.append(describer.describe(spec, needing))
        except UpstreamError as error:
            raise UpstreamError(f"module {spec.name}: {error}") from error
        if request.ninja and not isinstance(spec, _Failed):
            request.ninja.mkdir(parents=True, exist_ok=True)
            describer.write_ninja(spec, request.ninja)
    root = f"{request.python_root}/"
    return {
        "cuda": request.cuda,
        "inputs": sorted(path.removeprefix(root) for path in read if path.startswith(root)),
        # Whoever reads this sees by it that something that was provided has changed.
        "provided": {
            **{tree: digest(tree, path) for tree, path in request.provided.include_dirs.items()},
            "cubins": server.given,
        },
        "modules": [asdict(spec) for spec in sorted(described, key=lambda spec: spec.name)],
    }


def write(specs: dict[str, Any], env: Any, out: Path) -> None:
    """Fills out, which must be new or empty, or leaves it as it was."""
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}.") as holder:
        stage = Path(holder) / "out"
        stage.mkdir()
        rendered = hashlib.sha256()
        trees = {
            "generated": env.FLASHINFER_GEN_SRC_DIR,
            "cached_ops": env.FLASHINFER_JIT_DIR,
            "cubins": env.FLASHINFER_CUBIN_DIR,
        }
        for name, source in trees.items():
            for path in sorted(source.rglob("*")):
                if path.is_file() and not path.is_symlink() and path.suffix != ".lock":
                    label = f"{name}/{path.relative_to(source)}"
                    rendered.update(f"{label}\n".encode() + path.read_bytes())
                    (stage / label).parent.mkdir(parents=True, exist_ok=True)
                    path.rename(stage / label)
        # Whoever reads this file sees by it that one of the others has changed.
        text = json.dumps({**specs, "rendered_sha256": rendered.hexdigest()}, separators=(",", ":"))
        (stage / "specs.json").write_text(text + "\n", encoding="utf-8")
        stage.rename(out)


def enumerate_one(request: Request) -> None:
    """Enumerates the modules of one cell; UpstreamError if upstream is not as expected. This process is spent then."""
    read: set[str] = set()

    def watch(event: str, args: tuple[Any, ...]) -> None:
        if event == "open" and isinstance(args[0], str):
            read.add(args[0])
        elif event.startswith(_REFUSED):
            raise UpstreamError(f"{event}{args}: upstream may use no network and run no program here")

    if request.out.exists() and any(request.out.iterdir()):
        raise UpstreamError(f"--out {request.out.parent}: expected a directory without {request.out.name}")
    # Beside the result, so that what upstream renders is moved and not copied.
    request.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=request.out.parent, prefix=".upstream.") as work:
        sys.addaudithook(watch)
        specs = describe_all(request, Path(work).resolve(), read)
        write(specs, sys.modules["flashinfer.jit.env"], request.out)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status. Each of several cells has a process of its own."""
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(description="Enumerates FlashInfer's modules, for each CUDA label.")
    for option, text in (
        ("--python-root", "directory that holds the package flashinfer/"),
        ("--first-party", "directory that holds csrc/ and include/"),
        ("--third-party", "directory that holds cutlass/, cccl/ and spdlog/"),
        ("--site", "directory that holds jinja2, markupsafe, packaging and filelock"),
        ("--out", "directory in which one is written for each cell"),
    ):
        parser.add_argument(option, type=lambda p: Path(p).resolve(), required=True, help=text)
    cell = 'a CUDA label, its version and SM targets: "cu130=13.0:8.0 9.0a"; may be repeated'
    parser.add_argument("--cell", action="append", dest="cells", required=True, help=cell)
    parser.add_argument("--ninja", type=lambda p: Path(p).resolve(), help="directory for upstream's ninja files")
    add_options(parser)
    options = vars(parser.parse_args(argv))
    cells = options.pop("cells")
    try:
        found = find_provided(**{option: options[option] for option in SETTINGS})
    except ProvidedError as error:
        print(f"upstream.py: error: {error}", file=sys.stderr)
        return 1
    if len(cells) == 1:
        label, _, rest = cells[0].partition("=")
        cuda, _, archs = rest.partition(":")
        options["out"] /= label
        for option in SETTINGS:
            del options[option]
        try:
            enumerate_one(Request(cuda=cuda, archs=archs, provided=found, **options))
        except UpstreamError as error:
            print(f"upstream.py: error: {label}: {error}", file=sys.stderr)
            return 1
        return 0
    words = [f"--{name.replace('_', '-')}={value}" for name, value in options.items() if value]
    command = [sys.executable, "-E", "-s", "-B", __file__, *words]
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        statuses = list(
            pool.map(lambda cell: subprocess.run([*command, "--cell", cell], check=False).returncode, cells)
        )
    return max(statuses)


if __name__ == "__main__":
    sys.exit(main())
