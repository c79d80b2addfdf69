"""Tests of kernels/flashinfer/importer.py, against a FlashInfer of 40 lines.

Needs that folder on the import path:
PYTHONPATH=kernels/flashinfer python3 -m unittest discover -s tests/kernels/flashinfer
"""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

import importer

# What importer.py uses of upstream, in upstream's shapes (flashinfer 0.7.4).
UPSTREAM = {
    "flashinfer/jit/__init__.py": "import torch.library\nfrom . import cpp_ext, env\n",
    "flashinfer/jit/env.py": """
import os, pathlib
FLASHINFER_DATA = pathlib.Path(__file__).parents[1] / "data"
CUTLASS_INCLUDE_DIRS = [FLASHINFER_DATA / "cutlass" / "include"]
CCCL_INCLUDE_DIRS = [FLASHINFER_DATA / "cccl" / "cub"]
SPDLOG_INCLUDE_DIR = FLASHINFER_DATA / "spdlog" / "include"
FLASHINFER_GEN_SRC_DIR = pathlib.Path(os.environ["FLASHINFER_WORKSPACE_BASE"]) / "x" / "generated"
""",
    "flashinfer/jit/cpp_ext.py": """
import os, subprocess, sysconfig
import torch, tvm_ffi
from . import env
def get_cuda_path():
    return os.environ["CUDA_HOME"]
def build_common_cflags(cuda_home, extra_include_dirs=None):
    own = [f"-I{d.resolve()}" for d in extra_include_dirs or ()]
    limited = [] if sysconfig.get_config_var("Py_GIL_DISABLED") else ["-DPy_LIMITED_API=0x03090000"]
    abi = f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"
    return [*limited, abi, *own, f"-isystem {tvm_ffi.libinfo.find_include_path()}"]
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
    "flashinfer/jit/demo.py": """
import types
import pynvml, requests, torch
from . import env
@torch.library.custom_op("x")
def decorated(x: torch.Tensor | None): ...
def spec(name, sources, **fields):
    defaults = dict(toolchain="nvcc", extra_cflags=["-O3"], extra_cuda_cflags=["-O2"],
        extra_ldflags=None, extra_include_dirs=None, extra_cuda_cflags_by_source=None,
        needs_device_linking=False, embedded_cubin_factory=None)
    return types.SimpleNamespace(name=name, sources=sources, **{**defaults, **fields})
def plain():
    csrc = env.FLASHINFER_CSRC_DIR
    return spec("plain", [csrc / "k.cu", csrc / "host.cc"], extra_ldflags=["-lcuda"],
        extra_include_dirs=[csrc / "own"],
        extra_cuda_cflags_by_source={csrc / "k.cu": ['-DBODY=\\\\"body.h\\\\"', "-Xptxas -v"]})
def rendered(names):
    env.FLASHINFER_GEN_SRC_DIR.mkdir(parents=True, exist_ok=True)
    specs = []
    for name in names.split():
        path = env.FLASHINFER_GEN_SRC_DIR / f"{name}.cu"
        path.write_text("__global__ void k();")
        specs.append(spec(name, [path]))
    return specs
def absent(): return spec("absent", [env.FLASHINFER_CSRC_DIR / "absent.cu"])
def linked(): return spec("linked", [], needs_device_linking=True)
def texts(): return spec(f"a_{torch.float16}", [])
def raises(): raise OSError("no network")
""",
    "data/csrc/k.cu": "#include BODY\n__global__ void k();\n",
    "data/csrc/body.h": "",
    "data/csrc/own/own.h": "",
    "data/csrc/host.cc": "#include <own.h>\n#include <spdlog.h>\n",
    "data/include/x.h": "",
    "data/cutlass/include/x.h": "",
    "data/cccl/cub/x.h": "",
    "data/spdlog/include/spdlog.h": "",
}


class FunctionsTest(unittest.TestCase):
    def test_sm_target(self) -> None:
        for text, target in (("75", "7.5"), ("90a", "9.0a"), ("100a", "10.0a"), ("120f", "12.0f")):
            flag = f"-gencode=arch=compute_{text},code=sm_{text}"
            self.assertEqual(importer.sm_target(flag), target)
        for code in ("compute_90", "sm_80", "[sm_90,sm_90]", "sm_90x"):
            with self.subTest(code), self.assertRaisesRegex(importer.ImporterError, "no place for"):
                importer.sm_target(f"-gencode=arch=compute_90,code={code}")

    def test_split_flags(self) -> None:
        flags = importer.split_flags(
            [
                "-std=c++17",
                "-isystem /a dir/x",
                "-I/b/../c",
                "--threads=4",
                "-gencode=arch=compute_80,code=sm_80",
                r"-DPATH=\"sub/dir\"",
                "-Xptxas -v",
            ]
        )
        self.assertEqual(flags.copts, ("-std=c++17", '-DPATH="sub/dir"', "-Xptxas", "-v"))
        self.assertEqual(flags.include_dirs, ("/a dir/x", "/c"))
        self.assertEqual(flags.sm_targets, ("8.0",))

    def test_split_flags_rejects_paths_of_this_machine(self) -> None:
        for flag in (
            "-L/opt/lib",
            "-Wl,-rpath,/opt",
            "/opt/x.so",
            r"-DX=\"/opt\"",
            "-I",
            "-isystem",
        ):
            with (
                self.subTest(flag),
                self.assertRaisesRegex(importer.ImporterError, "expected an inc"),
            ):
                importer.split_flags([flag])

    def test_starlark(self) -> None:
        value = {"b": ("x", 'q"\\'), "a": {"t": True, "n": 1, "e": [], "d": {}}}
        self.assertEqual(
            importer.starlark(value),
            """{
    "a": {
        "d": {},
        "e": [],
        "n": 1,
        "t": True,
    },
    "b": [
        "x",
        "q\\"\\\\",
    ],
}""",
        )

    def test_profiles_of_another_form(self) -> None:
        with tempfile.TemporaryDirectory() as holder:
            path = Path(holder) / "p.json"
            for text in ("", "[]", "{}", '{"generators": [{}]}', '{"generators": [{"arg": [1]}]}'):
                path.write_text(text)
                with (
                    self.subTest(text),
                    self.assertRaisesRegex(
                        importer.ImporterError,
                        r'p\.json: expected \{"generators".*; correct the file',
                    ),
                ):
                    importer.read_profile(path)

    def test_where(self) -> None:
        with tempfile.TemporaryDirectory() as holder:
            path = Path(holder) / "p.json"
            path.write_text(
                '{"generators": [{"generator": "a:b", "args": [1], "where": "10.7a"}, {"generator": "a:c"}]}'
            )
            self.assertEqual([(g.args, g.where) for g in importer.read_profile(path)], [((1,), "10.7a"), ((), "")])


class ProgramTest(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name).resolve()
        for name, text in UPSTREAM.items():
            path = self.root / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.out = self.root / "out"
        (self.root / "tmp").mkdir()
        (self.root / "profile.json").touch()

    def run_importer(
        self, *functions: str, module: str = "flashinfer.jit.demo", **env: str
    ) -> subprocess.CompletedProcess[str]:
        """Runs the program on generators written as `name` or `name:argument`."""
        entries = []
        for name, *args in (function.split(":") for function in functions):
            entries.append({"generator": f"{module}:{name}", "args": args})
        profile = self.root / "profile.json"
        profile.write_text(json.dumps({"generators": entries}))
        root = str(self.root / "in")
        options = {
            "--python-root": root,
            "--first-party": root + "/data",
            "--third-party": root + "/data",
            "--site": root,
            "--profile": str(profile),
            "--cuda": "13.0",
            "--archs": "8.0 9.0a",
            "--out": str(self.out),
        }
        command = [sys.executable, "-B", importer.__file__]
        for option, value in options.items():
            command += [option, value]
        environment = {**os.environ, "TMPDIR": str(self.root / "tmp"), **env}
        return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)

    def modules(self) -> dict[str, Any]:
        docstring, _, literal = (self.out / "modules.bzl").read_text("utf-8").partition("MODULES = ")
        self.assertRegex(docstring, '^""".*"""\n\n$')
        modules: dict[str, Any] = ast.literal_eval(literal)
        return modules

    def assert_fails(self, message: str, *functions: str, **kwargs: str) -> None:
        before = sorted(self.root.rglob("*"))
        result = self.run_importer(*functions, **kwargs)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, "^importer.py: error: .*" + message)
        self.assertNotIn("Traceback", result.stderr)
        self.assertEqual(sorted(self.root.rglob("*")), before, "something was left behind")

    def test_module_with_own_flags_per_source(self) -> None:
        result = self.run_importer("plain")
        self.assertEqual(result.returncode, 0, result.stderr)
        common = ["-DPy_LIMITED_API=0x03090000", "-D_GLIBCXX_USE_CXX11_ABI=1"]
        self.assertEqual(
            self.modules(),
            {
                "plain": {
                    "sm_targets": ["8.0", "9.0a"],
                    "linkopts": ["-lcuda"],
                    "tus": [
                        {
                            "src": "csrc/k.cu",
                            "lang": "cuda",
                            "device_code": True,
                            "copts": [*common, '-DBODY="body.h"', "-Xptxas", "-v"],
                            "includes": ["csrc/own"],
                            "hdrs": ["csrc/body.h"],
                            "third_party": ["cccl"],
                            "toolkit_components": [],
                        },
                        {
                            "src": "csrc/host.cc",
                            "lang": "c++",
                            "device_code": False,
                            "copts": [*common, "-fPIC", "-O3"],
                            "includes": ["csrc/own"],
                            "hdrs": ["csrc/own/own.h"],
                            "third_party": ["spdlog"],
                            "toolkit_components": [],
                        },
                    ],
                }
            },
        )
        modules = json.loads((self.out / "modules.json").read_text(encoding="utf-8"))
        self.assertEqual(modules, self.modules())
        self.assertEqual([p.name for p in (self.root / "tmp").iterdir()], [])

    def test_rendered_sources_are_copied_and_all_bytes_are_reproducible(self) -> None:
        outputs = []
        for seed in ("1", "2"):
            self.out = self.root / f"out{seed}"
            (self.root / f"tmp{seed}").mkdir()
            result = self.run_importer(
                "rendered:b a",
                "plain",
                PYTHONHASHSEED=seed,
                TMPDIR=str(self.root / f"tmp{seed}"),
                CC="other",
                FLASHINFER_NVCC_THREADS="8",
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            files = sorted(path for path in self.out.rglob("*") if path.is_file())
            outputs.append({str(p.relative_to(self.out)): p.read_bytes() for p in files})
        self.assertEqual(list(outputs[0]), ["generated/a.cu", "generated/b.cu", "modules.bzl", "modules.json"])
        self.assertEqual(outputs[0], outputs[1])
        self.assertEqual(list(self.modules()), ["a", "b", "plain"])
        self.assertEqual(self.modules()["a"]["tus"][0]["src"], "generated/a.cu")
        self.assertFalse(list((self.root / "in").rglob("__pycache__")))

    def test_unknown_generator(self) -> None:
        self.assert_fails(r"unknown generator flashinfer\.jit\.demo:nothing\(\).*aot\.py", "nothing")
        self.assert_fails(
            r"unknown generator flashinfer\.jit\.gone:x\(\): No module.*correct the profile",
            "x",
            module="flashinfer.jit.gone",
        )

    def test_generator_that_raises(self) -> None:
        self.assert_fails(r"generator flashinfer\.jit\.demo:raises\(\).*no network", "raises")
        self.assert_fails(r"plain\('x'\) raised TypeError.*compare its arguments", "plain:x")

    def test_text_of_a_stub(self) -> None:
        self.assert_fails(r"texts\(\) raised TypeError.*torch\.float16 is stubbed", "texts")

    def test_missing_source(self) -> None:
        self.assert_fails(r"module absent of .*absent\.cu is missing.*--first-party", "absent")

    def test_unresolved_macro_include(self) -> None:
        (self.root / "in/data/csrc/body.h").unlink()
        self.assert_fails(r"module plain .*`#include BODY`.*found values: body\.h", "plain")

    def test_duplicate_module(self) -> None:
        self.assert_fails(
            r"duplicate module a, .*found another: .*rendered\('a b'\); remove one",
            "rendered:a",
            "rendered:a b",
        )

    def test_module_that_needs_more_than_a_compiler(self) -> None:
        self.assert_fails(r"module linked .*without needs_device_linking", "linked")

    def test_missing_tree(self) -> None:
        (self.root / "in/data/spdlog/include/spdlog.h").unlink()
        (self.root / "in/data/spdlog/include").rmdir()
        self.assert_fails(r"missing .*/spdlog/include; expected.*--third-party", "plain")

    def test_upstream_that_does_not_import(self) -> None:
        (self.root / "in/flashinfer/jit/__init__.py").write_text("import no_such_package\n")
        self.assert_fails(r"cannot import flashinfer\.jit: .*no_such_package.*--site", "plain")

    def test_out_that_holds_something(self) -> None:
        self.out.mkdir()
        (self.out / "kept").touch()
        self.assert_fails(r"--out .*/out: expected a new or empty directory", "plain")


if __name__ == "__main__":
    unittest.main()
