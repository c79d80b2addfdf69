"""Tests of kernels/flashinfer/upstream.py, against a FlashInfer of 120 lines.

Needs that folder on the import path:
PYTHONPATH=kernels/flashinfer python3 -m unittest discover -s tests/kernels/flashinfer
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import upstream

META = "// of the cubin server\n"
META_SHA256 = hashlib.sha256(META.encode()).hexdigest()

# What upstream.py uses of FlashInfer, in its shapes (0.7.4). ASKED names what gen_all_modules asks for.
FLASHINFER = {
    "flashinfer/jit/__init__.py": "import torch.library\nfrom . import cpp_ext, env\n",
    "flashinfer/jit/comm.py": "",
    "flashinfer/jit/attention.py": "",
    "flashinfer/jit/cubin_loader.py": """
def get_artifact(file_name, sha256): raise OSError("no network")
def get_meta_hash(checksums): return checksums.decode().split()[0]
def verify_symlinked_headers(*a): raise OSError("not what is pinned")
def ensure_symlink(link, target):
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(target)
""",
    "flashinfer/jit/trtllm_gen_metainfo.py": "def write_filtered_metainfo(dest, source): dest.write_bytes(source)\n",
    "flashinfer/jit/flash_kda_nvrtc.py": """
import os
def _compile_cubin(source, *, source_name, options): raise OSError("no NVRTC")
def _cuda_include_dirs(): raise RuntimeError("forbidden O1 option: -I/home/leo1/cuda/include")
def prepare_generated_flash_kda_cubin(build_dir, *, body_path, kernel_name, module_ident, options):
    known = os.path.join(os.environ["CUDA_HOME"], "include")
    assert os.path.exists(known + "/cuda_bf16.h") and build_dir.is_dir()
    cubin = build_dir.parent / "x.cubin"
    options = ("-default-device", *_cuda_include_dirs(), f"-I{known}", f"-I{known}/cccl", *options)
    cubin.write_bytes(_compile_cubin(body_path.read_bytes(), source_name="x", options=options))
    return {module_ident: cubin}
""",
    "flashinfer/jit/alphamoe_nvrtc.py": """
import json
def nvrtc_compile(source, **options): raise OSError("no NVRTC")
def _prepare_cubins(build_dir, *, source_dir, images_dir, arch):
    names = [f"{name}_{arch}" for name in ("one", "two")]
    images_dir.mkdir(parents=True)
    (images_dir / "images.h").write_bytes(nvrtc_compile("", name="x", arch=arch))
    records = [dict(module_ident=name, arch=arch, kernel_symbol="k_" + name, source_path=str(source_dir / "k.cu"),
        compile_options=[f"--gpu-architecture={arch}", "-default-device", "--use_fast_math"]) for name in names]
    receipt = {"embedded_cubins": records, "image_header": {"path": str(images_dir / "images.h"), "images": names[1:]}}
    (build_dir / "alphamoe_nvrtc_receipt.json").write_text(json.dumps(receipt))
    return {names[0]: build_dir / "x.cubin"}
""",
    "flashinfer/jit/megamoe.py": """
import os, subprocess
def read_manifest():
    return {"device": {"instances": [{"path": f"{name}.cu", "symbol": f"kernel_{name}"} for name in ("k", "l")]}}
def _compile_cubins(build_dir, *, source):
    out = build_dir / "m64.cubin"
    nvcc = os.environ["CUDA_HOME"] + "/bin/nvcc"
    flags = ["-cubin", "--generate-code=arch=compute_90a,code=sm_90a", "-DX=1", f"-I{source.parent}"]
    subprocess.run([nvcc, *flags, str(source), "-o", str(build_dir / ".m64.cubin.1.tmp")], check=True)
    os.replace(build_dir / ".m64.cubin.1.tmp", out)
    return {"m64": out}
""",
    "flashinfer/jit/env.py": """
import os, pathlib
FLASHINFER_DATA = pathlib.Path(__file__).parents[1] / "data"
CUTLASS_INCLUDE_DIRS = [FLASHINFER_DATA / "cutlass" / "include"]
CCCL_INCLUDE_DIRS = [FLASHINFER_DATA / "cccl" / "cub"]
SPDLOG_INCLUDE_DIR = FLASHINFER_DATA / "spdlog" / "include"
FLASHINFER_GEN_SRC_DIR = pathlib.Path(os.environ["FLASHINFER_WORKSPACE_BASE"]) / "x" / "generated"
FLASHINFER_JIT_DIR = pathlib.Path(os.environ["FLASHINFER_WORKSPACE_BASE"]) / "x" / "cached_ops"
FLASHINFER_CUBIN_DIR = pathlib.Path(os.environ["FLASHINFER_CUBIN_DIR"])
""",
    "flashinfer/jit/cpp_ext.py": """
import os, subprocess, sysconfig
import torch, tvm_ffi
from . import env
def get_cuda_path():
    return os.environ["CUDA_HOME"]
def build_common_cflags(cuda_home, extra_include_dirs=None):
    own = [f"-I{d.resolve()}" for d in extra_include_dirs or ()]
    cccl = [f"-I{d}" for d in env.CCCL_INCLUDE_DIRS]
    limited = [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["-DPy_LIMITED_API=0x03090000"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
    return [*limited, abi, *own, *cccl, f"-isystem {tvm_ffi.libinfo.find_include_path()}"]
def build_cflags(common, extra=None):
    return ["$common_cflags", "-fPIC", *extra]
def build_cuda_cflags(common, extra=None):
    nvcc = [os.path.join(get_cuda_path(), "bin", "nvcc")]
    asked = [subprocess.check_output(nvcc + [f], text=True) for f in ("--version", "--list-gpu-arch")]
    assert "release 13.0," in asked[0] and "compute_90" in asked[1]
    archs = [a.replace(".", "") for a in os.environ["FLASHINFER_CUDA_ARCH_LIST"].split(" ")]
    gencode = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in archs]
    return ["$common_cflags", *gencode, "--threads=1", *extra]
""",
    "flashinfer/aot.py": """
import functools, os, pathlib, socket, subprocess, types
import pynvml, requests, torch
from torch.utils.cpp_extension import include_paths
from .jit import alphamoe_nvrtc, env, flash_kda_nvrtc, megamoe
from .jit.cubin_loader import ensure_symlink, get_artifact, get_meta_hash
from .jit.trtllm_gen_metainfo import write_filtered_metainfo
CSRC = env.FLASHINFER_CSRC_DIR if hasattr(env, "FLASHINFER_CSRC_DIR") else None
@torch.library.custom_op("x")
def decorated(x: torch.Tensor | None): ...
def spec(name, sources, **fields):
    defaults = dict(toolchain="nvcc", extra_cflags=["-O3"], extra_cuda_cflags=["-O2"],
        extra_ldflags=None, extra_include_dirs=None, extra_cuda_cflags_by_source=None,
        needs_device_linking=False, embedded_cubin_factory=None)
    return types.SimpleNamespace(name=name, sources=sources, **{**defaults, **fields})
def gen_plain_module():
    csrc = env.FLASHINFER_CSRC_DIR
    return spec("plain", [csrc / "k.cu", csrc / "host.cc"], extra_ldflags=["-lcuda"], extra_include_dirs=[csrc / "own"],
        extra_cuda_cflags_by_source={csrc / "k.cu": ['-DBODY=\\\\"body.h\\\\"', f"-I{csrc}/late", "-Xptxas -v"]})
def gen_rendered_modules(names):
    env.FLASHINFER_GEN_SRC_DIR.mkdir(parents=True, exist_ok=True)
    for name in names.split():
        (env.FLASHINFER_GEN_SRC_DIR / f"{name}.cu").write_text("__global__ void k();")
    return [spec(name, [env.FLASHINFER_GEN_SRC_DIR / f"{name}.cu"]) for name in names.split()]
def gen_dtype_module():
    return spec(f"a_{torch.half}_{torch.float8_e4m3fn.itemsize}_{torch.version.cuda}", [env.FLASHINFER_CSRC_DIR / "k.cu"])
def gen_served_module():
    meta_hash = get_meta_hash(get_artifact("x/checksums.txt", "CHECKSUMS_SHA256"))
    metainfo = get_artifact("x/include/meta.h", meta_hash)
    own = env.FLASHINFER_GEN_SRC_DIR / "export" / "served"
    ensure_symlink(own / "include", env.FLASHINFER_CUBIN_DIR / "x" / "include")
    write_filtered_metainfo(own / "meta.h", metainfo)
    return spec("served", [env.FLASHINFER_CSRC_DIR / "k.cu"], extra_include_dirs=[own, env.FLASHINFER_CUBIN_DIR / "x"],
        extra_cuda_cflags=[f'-DMETA_HASH=\\\\"{meta_hash}\\\\"'])
def gen_torch_module():
    ldflags = ["-L/needs/torch/lib", "-lc10"]
    dirs = [pathlib.Path(path) for path in include_paths(device_type="cuda")]
    return spec("with_torch", [env.FLASHINFER_CSRC_DIR / "k.cu"], extra_include_dirs=dirs, extra_ldflags=ldflags)
def gen_nccl_module():
    home = pathlib.Path(os.environ["NCCL_HOME"])
    ldflags = ["-lcuda", str(home / "lib" / "libnccl.so.2"), f"-Wl,-rpath,{home / 'lib'}"]
    dirs = [home / "include", home / "include" / "nccl_device"]
    return spec("with_nccl", [env.FLASHINFER_CSRC_DIR / "k.cu"], extra_include_dirs=dirs, extra_ldflags=ldflags)
def gen_unknown_module(): return spec("unknown", [], embedded_cubin_factory=print)
def gen_embedded_module(factory, **keywords):
    names = {name: env.FLASHINFER_CSRC_DIR / path for name, path in keywords.items() if name in ("body_path", "source_dir", "source")}
    if "images_dir" in keywords:
        names["images_dir"] = env.FLASHINFER_GEN_SRC_DIR / keywords["images_dir"]
    sources = [env.FLASHINFER_CSRC_DIR / "k.cu"]
    return spec("embedded", sources, embedded_cubin_factory=functools.partial(factory, **{**keywords, **names}))
def gen_absent_module(): return spec("absent", [env.FLASHINFER_CSRC_DIR / "absent.cu"])
def gen_linked_module(): return spec("linked", [], needs_device_linking=True)
def gen_texts_module(): return spec(f"a_{torch.nothing}", [])
def gen_failing_module(x): raise OSError("broken")
def gen_socket_module(): socket.create_connection(("localhost", 1))
def gen_program_module(): subprocess.run(["make"])
def get_default_config(): return {"asked": ASKED}
def detect_sm_capabilities(): return {}
def gen_all_modules(asked_, sm_capabilities):
    specs = []
    for call in asked_:
        result = eval(call, globals())
        specs.extend(result) if isinstance(result, list) else specs.append(result)
    return specs
""",
    "data/csrc/k.cu": "",
    "provided/nccl/include/nccl.h": "#define NCCL_MAJOR 2\n#define NCCL_MINOR 30\n#define NCCL_PATCH 7\n",
    "provided/nccl/include/nccl_device.h": "",
    "provided/nccl/include/nccl_device/core.h": "",
    "provided/torch/include/torch/library.h": "",
    "provided/torch/include/torch/csrc/api/include/torch/all.h": "",
    "provided/torch/include/c10/cuda/impl/cuda_cmake_macros.h": "",
    "provided/cubins/x/checksums.txt": f"{META_SHA256}  include/meta.h\n",
    "provided/cubins/x/include/meta.h": META,
    "data/csrc/own/own.h": "",
    "data/csrc/late/late.h": "",
    "data/csrc/host.cc": "",
    "data/include/x.h": "",
    "data/cutlass/include/x.h": "",
    "data/cccl/cub/x.h": "",
    "data/spdlog/include/spdlog.h": "",
    "packaging/__init__.py": "",
    "packaging/version.py": "class Version: ...\n",
}


class FunctionsTest(unittest.TestCase):
    def test_sm_target(self) -> None:
        for text, target in (("75", "7.5"), ("90a", "9.0a"), ("100a", "10.0a"), ("120f", "12.0f")):
            self.assertEqual(upstream.sm_target(f"-gencode=arch=compute_{text},code=sm_{text}"), target)
        for code in ("compute_90", "sm_80", "[sm_90,sm_90]", "sm_90x"):
            with self.subTest(code), self.assertRaisesRegex(upstream.UpstreamError, "no place for PTX; extend"):
                upstream.sm_target(f"-gencode=arch=compute_90,code={code}")

    def test_split_flags(self) -> None:
        flags = upstream.split_flags(
            [
                *("-std=c++17", "-I/b/../c", "-I/cccl", "-isystem /tvm", "-I/late dir/x", "-I/c", "--threads=4"),
                *("-gencode=arch=compute_80,code=sm_80", r"-DPATH=\"sub/dir\"", "-Xptxas -v"),
            ],
            shared=("/cccl", "/tvm"),
        )
        self.assertEqual(flags.copts, ("-std=c++17", '-DPATH="sub/dir"', "-Xptxas", "-v"))
        self.assertEqual(flags.include_dirs, ("/c",))
        self.assertEqual(flags.late_include_dirs, ("/late dir/x",))
        self.assertEqual(flags.sm_targets, ("8.0",))

    def test_split_flags_rejects_paths_of_this_machine(self) -> None:
        for flag in ("-L/opt/lib", "-Wl,-rpath,/opt", "/opt/x.so", r"-DX=\"/opt\"", "-I", "-isystem"):
            with self.subTest(flag), self.assertRaisesRegex(upstream.UpstreamError, "expected an include directory"):
                upstream.split_flags([flag])

    def test_roots(self) -> None:
        roots = upstream.Roots((("csrc", "/a/csrc"), ("package", "/a")))
        self.assertEqual(
            [roots.label(p) for p in ("/a/csrc/x.cu", "/a/csrc", "/a/y")], ["csrc/x.cu", "csrc", "package/y"]
        )
        with self.assertRaisesRegex(
            upstream.UpstreamError, "/b: expected a path in csrc, package; check --first-party"
        ):
            roots.label("/b")


class ProgramTest(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name).resolve()
        for name, text in FLASHINFER.items():
            path = self.root / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        checksums = (self.root / "in/provided/cubins/x/checksums.txt").read_bytes()
        self.pinned = hashlib.sha256(checksums).hexdigest()
        self.out = self.root / "out"

    def run_program(
        self,
        *calls: str,
        cells: tuple[str, ...] = ("cu130=13.0:8.0 9.0a",),
        provided: tuple[str, ...] = (),
        **env: str,
    ) -> Any:
        """Runs the program; gen_all_modules asks for what `calls` say."""
        aot = self.root / "in" / "flashinfer" / "aot.py"
        text = FLASHINFER["flashinfer/aot.py"].replace("CHECKSUMS_SHA256", self.pinned)
        aot.write_text(text + f"ASKED = {list(calls)!r}\n", encoding="utf-8")
        root = str(self.root / "in")
        command = [sys.executable, "-B", upstream.__file__, "--python-root", root, "--first-party", root + "/data"]
        command += ["--third-party", root + "/data", "--site", root, "--out", str(self.out)]
        for cell in cells:
            command += ["--cell", cell]
        for option in provided:
            command += [f"--{option}", f"{root}/provided/{option}"]
        return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)

    def specs(self, *calls: str, **kwargs: Any) -> dict[str, Any]:
        result = self.run_program(*calls, **kwargs)
        self.assertEqual(result.returncode, 0, result.stderr)
        specs = json.loads((self.out / "cu130" / "specs.json").read_text(encoding="utf-8"))
        return {spec["name"]: spec for spec in specs["modules"]}

    def assert_fails(self, message: str, *calls: str, provided: tuple[str, ...] = ()) -> None:
        result = self.run_program(*calls, provided=provided)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, "(?s)^upstream.py: error: cu130: .*" + message)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(list(self.out.iterdir()), [], "something was left behind")

    def test_module_with_own_flags_per_source(self) -> None:
        common = ["-DPy_LIMITED_API=0x03090000", "-D_GLIBCXX_USE_CXX11_ABI=1"]
        self.assertEqual(
            self.specs("gen_plain_module()")["plain"],
            {
                "name": "plain",
                "reason": "",
                "sm_targets": ["8.0", "9.0a"],
                "linkopts": ["-lcuda"],
                "sources": [
                    {
                        "src": "csrc/k.cu",
                        "copts": [*common, '-DBODY="body.h"', "-Xptxas", "-v"],
                        "includes": ["csrc/own"],
                        "late_includes": ["csrc/late"],
                    },
                    {
                        "src": "csrc/host.cc",
                        "copts": [*common, "-fPIC", "-O3"],
                        "includes": ["csrc/own"],
                        "late_includes": [],
                    },
                ],
                "embedded": [],
            },
        )

    KDA = "gen_embedded_module(flash_kda_nvrtc.prepare_generated_flash_kda_cubin, body_path='k.cu', kernel_name='run', module_ident='body'"

    def cubin(self, name: str, symbol: str, kernel: str, sm: str, *copts: str, includes: tuple[str, ...] = ()) -> Any:
        source = {"src": "csrc/k.cu", "copts": list(copts), "includes": list(includes), "late_includes": []}
        return {"name": name, "symbol": symbol, "kernel": kernel, "sm_target": sm, "source": source}

    def test_a_cubin_that_nvrtc_would_compile(self) -> None:
        call = self.KDA + ", options=('--gpu-architecture=sm_90a', '-std=c++17', '-DKNOB=1'))"
        [cubin] = self.specs(call)["embedded"]["embedded"]
        self.assertEqual(cubin, self.cubin("body", "__tvm_ffi__cubin_body", "run", "9.0a", "-std=c++17", "-DKNOB=1"))

    def test_cubins_in_objects_and_in_a_header(self) -> None:
        call = "gen_embedded_module(alphamoe_nvrtc._prepare_cubins, source_dir='', images_dir='moe', arch='sm_100a')"
        embedded = self.specs(call, cells=("cu130=13.0:9.0a 10.0a 10.3a",))["embedded"]["embedded"]
        flag = "--use_fast_math"
        self.assertEqual(
            embedded,
            [
                self.cubin("one_sm_100a", "__tvm_ffi__cubin_one_sm_100a", "k_one_sm_100a", "10.0a", flag),
                self.cubin("two_sm_100a", "two_sm_100a_image", "k_two_sm_100a", "10.0a", flag),
            ],
        )
        # The same for every CUDA label, whatever SM targets it has.
        header = (self.out / "cu130" / "generated" / "moe" / "images.h").read_text(encoding="utf-8")
        for arch in ("sm_100a", "sm_103a"):
            self.assertIn(f"extern const unsigned char two_{arch}_image[];\n", header)
        self.assertNotIn("one_", header)

    def test_a_cubin_that_nvcc_would_compile(self) -> None:
        [cubin] = self.specs("gen_embedded_module(megamoe._compile_cubins, source='k.cu')")["embedded"]["embedded"]
        self.assertEqual(
            cubin, self.cubin("m64", "__tvm_ffi__cubin_m64", "kernel_k", "9.0a", "-DX=1", includes=("csrc",))
        )

    def test_cubins_that_have_no_place(self) -> None:
        self.assert_fails("module embedded: .*expected one SM target, found .*nvcc_flags", self.KDA + ", options=())")
        other = ", options=('--gpu-architecture=sm_100a',))"
        self.assert_fails(r"module embedded: embeds cubins for 10\.0a; expected .*8\.0, 9\.0a", self.KDA + other)
        call = "gen_embedded_module(alphamoe_nvrtc._prepare_cubins, source_dir='', images_dir='moe', arch='sm_90a')"
        self.assert_fails("module embedded: embedded cubin one_sm_90a for sm_90a: expected .*_alphamoe", call)

    def test_what_is_missing_is_named_with_its_reason(self) -> None:
        calls = [f"gen_{name}_module()" for name in ("served", "torch", "nccl", "unknown", "plain")]
        specs = self.specs(*calls, "gen_failing_module(1)")
        self.assertEqual(
            {name: spec["reason"] for name, spec in specs.items()},
            {
                "served": "needs files of NVIDIA's cubin server",
                "with_torch": "needs the headers and libraries of CUDA's torch",
                "with_nccl": "needs NCCL",
                "unknown": "embeds cubins that are compiled apart, in a way that is not known here",
                "plain": "",
                "gen_failing_module(1)": "upstream's generator raised OSError('broken')",
            },
        )

    def test_nccl_that_is_provided(self) -> None:
        spec = self.specs("gen_nccl_module()", "gen_torch_module()", provided=("nccl",))
        self.assertEqual(spec["with_nccl"]["reason"], "")
        self.assertEqual(spec["with_nccl"]["linkopts"], ["-lcuda", "-lnccl"])
        self.assertEqual(spec["with_nccl"]["sources"][0]["includes"], ["nccl/include", "nccl/include/nccl_device"])
        self.assertEqual(spec["with_torch"]["reason"], "needs the headers and libraries of CUDA's torch")

    def test_torch_that_is_provided(self) -> None:
        spec = self.specs("gen_nccl_module()", "gen_torch_module()", provided=("torch",))
        self.assertEqual(spec["with_torch"]["reason"], "")
        self.assertEqual(spec["with_torch"]["linkopts"], ["-lc10"])
        includes = ["torch/include", "torch/include/torch/csrc/api/include"]
        self.assertEqual(spec["with_torch"]["sources"][0]["includes"], includes)
        self.assertEqual(spec["with_nccl"]["reason"], "needs NCCL")

    def test_files_of_the_cubin_server_that_are_provided(self) -> None:
        spec = self.specs("gen_served_module()", provided=("cubins",))["served"]
        self.assertEqual(spec["reason"], "")
        self.assertEqual(spec["sources"][0]["includes"], ["generated/export/served", "cubins/x"])
        self.assertIn(f'-DMETA_HASH="{META_SHA256}"', spec["sources"][0]["copts"])
        out = self.out / "cu130"
        for file in (
            "generated/export/served/meta.h",
            "generated/export/served/include/meta.h",
            "cubins/x/include/meta.h",
        ):
            self.assertEqual((out / file).read_text(), META)
        given = json.loads((out / "specs.json").read_text(encoding="utf-8"))["provided"]["cubins"]
        self.assertEqual(given, {"x/checksums.txt": self.pinned, "x/include/meta.h": META_SHA256})
        written = [path for path in (self.root / "in/provided/cubins").rglob("*") if path.is_file()]
        self.assertEqual(len(written), 2, "the directory that was provided was written to")

    def test_where_provided_directories_lie_says_nothing(self) -> None:
        calls = [f"gen_{name}_module()" for name in ("served", "torch", "nccl")]
        outputs = []
        for home in ("here", "somewhere/else"):
            self.out = self.root / f"out of {home}".replace("/", " ")
            (self.root / home).parent.mkdir(exist_ok=True)
            (self.root / "in").rename(self.root / home)
            (self.root / "in").symlink_to(self.root / home)
            self.specs(*calls, provided=("cubins", "nccl", "torch"))
            (self.root / "in").unlink()
            (self.root / home).rename(self.root / "in")
            files = sorted(path for path in self.out.rglob("*") if path.is_file())
            outputs.append({str(p.relative_to(self.out)): p.read_bytes() for p in files})
        self.assertEqual(outputs[0], outputs[1])
        self.assertFalse([name for name, content in outputs[0].items() if str(self.root).encode() in content])

    def test_files_of_the_cubin_server_that_are_not_as_pinned(self) -> None:
        cubins = self.root / "in/provided/cubins"
        (cubins / "x/include/meta.h").write_text("another")
        other = hashlib.sha256(b"another").hexdigest()
        words = rf"FLASHINFER_CUBINS={cubins} does not have x/include/meta\.h as FlashInfer pins it.*"
        words += f"expected: sha256 {META_SHA256}.*found: +{other}.*To do: .*download-cubin"
        self.assert_fails(words, "gen_served_module()", provided=("cubins",))
        (cubins / "x/checksums.txt").unlink()
        words = r"does not have x/checksums\.txt as FlashInfer pins it.*found: +no such file"
        self.assert_fails(words, "gen_served_module()", "gen_plain_module()", provided=("cubins",))

    def test_no_program_and_no_network(self) -> None:
        reasons = [s["reason"] for s in self.specs("gen_program_module()", "gen_socket_module()").values()]
        self.assertRegex(reasons[0], "`make`: upstream may run no program here")
        self.assertRegex(reasons[1], r"socket\..*upstream may use no network")

    def test_dtypes_have_names_and_sizes(self) -> None:
        self.assertEqual(list(self.specs("gen_dtype_module()")), ["a_torch.float16_1_13.0"])

    def test_text_of_a_stub(self) -> None:
        [spec] = self.specs("gen_texts_module()").values()
        self.assertRegex(spec["reason"], r"raised TypeError.*torch\.nothing is stubbed")

    def test_all_bytes_are_reproducible(self) -> None:
        outputs = []
        for seed in ("1", "2"):
            self.out = self.root / f"out{seed}"
            cells = ("cu130=13.0:8.0 9.0a", "again=13.0:8.0 9.0a")
            self.specs(
                "gen_rendered_modules('b a')", "gen_plain_module()", cells=cells, PYTHONHASHSEED=seed, CC="other"
            )
            files = sorted(path for path in self.out.rglob("*") if path.is_file())
            outputs.append({str(p.relative_to(self.out)): p.read_bytes() for p in files})
        one = ["generated/a.cu", "generated/b.cu", "specs.json"]
        self.assertEqual(list(outputs[0]), [f"{label}/{name}" for label in ("again", "cu130") for name in one])
        self.assertEqual(outputs[0], outputs[1])
        self.assertFalse(list((self.root / "in").rglob("__pycache__")))

    def test_inputs_are_what_was_read(self) -> None:
        self.specs("gen_plain_module()")
        inputs = json.loads((self.out / "cu130" / "specs.json").read_text(encoding="utf-8"))["inputs"]
        self.assertIn("flashinfer/aot.py", inputs)
        self.assertIn("flashinfer/jit/cpp_ext.py", inputs)
        self.assertNotIn("data/csrc/k.cu", inputs)

    def test_missing_source(self) -> None:
        self.assert_fails(r"module absent: source csrc/absent\.cu is missing.*--first-party", "gen_absent_module()")

    def test_module_that_needs_more_than_a_compiler(self) -> None:
        self.assert_fails(r"module linked: expected .*without device linking", "gen_linked_module()")

    def test_gen_all_modules_that_raises(self) -> None:
        self.assert_fails(r"gen_all_modules raised NameError.*teach upstream\.py", "no_such_name")

    def test_missing_tree(self) -> None:
        (self.root / "in/data/spdlog/include/spdlog.h").unlink()
        (self.root / "in/data/spdlog/include").rmdir()
        self.assert_fails(r"missing .*/spdlog/include; expected.*--third-party", "gen_plain_module()")

    def test_upstream_that_does_not_import(self) -> None:
        (self.root / "in/flashinfer/jit/__init__.py").write_text("import no_such_package\n")
        self.assert_fails(r"cannot import flashinfer\.aot: .*no_such_package.*--site", "gen_plain_module()")

    def test_out_that_holds_something(self) -> None:
        (self.out / "cu130").mkdir(parents=True)
        (self.out / "cu130" / "kept").touch()
        result = self.run_program("gen_plain_module()")
        self.assertRegex(result.stderr, "--out .*/out: expected a directory without cu130")


if __name__ == "__main__":
    unittest.main()
