"""Tests of kernels/flashinfer/importer.py, on what upstream.py might have written.

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

FILES = {
    "flashinfer/ops/moe.cu": "__global__ void k();\n",
    "csrc/k.cu": "#include BODY\n__global__ void k();\n",
    "csrc/body.h": "",
    "csrc/own/own.h": "",
    "csrc/late/late.h": "",
    "csrc/host.cc": "#include <own.h>\n#include <spdlog.h>\n",
    "include/x.h": "",
    "cutlass/include/x.h": "",
    "cccl/cub/x.h": "",
    "spdlog/include/spdlog.h": "",
    "csrc/nccl.cu": "#include <nccl.h>\n__global__ void k();\n",
    "nccl/include/nccl.h": "#define NCCL_MAJOR 2\n#define NCCL_MINOR 30\n#define NCCL_PATCH 7\n#include <nccl_device.h>\n",
    "nccl/include/nccl_device.h": "#include <nccl_device/core.h>\n",
    "nccl/include/nccl_device/core.h": "#include <cublas_v2.h>\n",
    "nccl/include/of_another.h": "",
}


def source(src: str, *copts: str, includes: tuple[str, ...] = (), late: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"src": src, "copts": list(copts), "includes": list(includes), "late_includes": list(late)}


def spec(
    name: str, *sources: dict[str, Any], sm_targets: tuple[str, ...] = ("8.0",), reason: str = ""
) -> dict[str, Any]:
    linkopts = ["-lcuda"] if name == "plain" else []
    return {
        "name": name,
        "reason": reason,
        "sm_targets": list(sm_targets),
        "linkopts": linkopts,
        "sources": list(sources),
        "embedded": [],
    }


PLAIN = spec(
    "plain",
    source("csrc/k.cu", '-DBODY="body.h"', includes=("csrc/own",), late=("csrc/late",)),
    source("csrc/host.cc", "-O3", includes=("csrc/own",)),
    sm_targets=("8.0", "9.0a"),
)
MOE = spec("moe", source("package/ops/moe.cu"))
MADE = spec("made", source("generated/made/k.cu"), source("generated/made/part/k.cu"))
WITH_NCCL = spec("with_nccl", source("csrc/nccl.cu", includes=("nccl/include", "nccl/include/nccl_device")))
WITH_CUBINS = spec("with_cubins", source("csrc/k.cu", '-DBODY="meta.h"', includes=("cubins/x/include",)))
SERVED = spec("served", reason="needs NCCL")


class FunctionsTest(unittest.TestCase):
    def test_starlark(self) -> None:
        value = {"b": ("x", 'q"\\'), "a": {"t": True, "n": 1, "e": [], "d": {}}}
        expected = """{
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
}"""
        self.assertEqual(importer.starlark(value), expected)

    def test_profiles_of_another_form(self) -> None:
        with tempfile.TemporaryDirectory() as holder:
            path = Path(holder) / "p.json"
            for text in ("", "[]", "{}", '{"modules": "norm"}', '{"modules": [1]}', '{"modules": [], "module": []}'):
                path.write_text(text)
                message = r'p\.json: expected \{"modules": .*; correct the file'
                with self.subTest(text), self.assertRaisesRegex(importer.ImporterError, message):
                    importer.read_profile(path)

    def variant(self, name: str, *sources: str) -> importer.Variant:
        tus = tuple(importer.TranslationUnit(s, "cuda", True, (), (), (), (), ()) for s in sources)
        return importer.Variant(name, name, (), tus, {})

    def test_tu_names_are_as_short_as_they_can_be(self) -> None:
        names = importer.tu_names(self.variant("m", "csrc/a.cu", "csrc/b/c.cu", "csrc/d/c.cu", "csrc/c.cc"))
        self.assertEqual(names, ["a", "b_c", "d_c", "csrc_c"])

    def test_tu_names_that_are_too_long_or_equal(self) -> None:
        with self.assertRaisesRegex(
            importer.ImporterError, "module m: the name x+ has 250 characters, expected at most 2"
        ):
            importer.tu_names(self.variant("m", f"csrc/{'x' * 250}.cu"))
        with self.assertRaisesRegex(importer.ImporterError, "module m: two TUs have the name"):
            importer.tu_names(self.variant("m", "csrc/a.cu", "csrc/a.cc"))


class ProgramTest(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name).resolve()
        for name, text in FILES.items():
            path = self.root / "in" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        self.out = self.root / "out"

    def upstream(self, label: str, *specs: dict[str, Any], rendered: str = "__global__ void k();\n") -> None:
        directory = self.root / label
        for name in ("generated/made/k.cu", "generated/made/part/k.cu", "generated/unused.cu", "cached_ops/unused.cu"):
            (directory / name).parent.mkdir(parents=True, exist_ok=True)
            (directory / name).write_text(rendered, encoding="utf-8")
        (directory / "specs.json").write_text(json.dumps({"modules": specs}), encoding="utf-8")

    deviations: dict[str, Any] = {"sources": {}, "fewer_kernels": {}, "not_built": {}}

    def run_importer(
        self,
        labels: tuple[str, ...],
        patterns: list[str],
        core: tuple[str, ...] = (),
        options: tuple[str, ...] = (),
        **env: str,
    ) -> Any:
        (self.root / "deviations.json").write_text(json.dumps(self.deviations), encoding="utf-8")
        for name, modules in (("profile", patterns), ("core", list(core))):
            (self.root / f"{name}.json").write_text(json.dumps({"modules": modules}), encoding="utf-8")
        root = self.root / "in"
        command = [sys.executable, "-B", importer.__file__, f"--python-root={root}", f"--first-party={root}"]
        command += [
            f"--third-party={root}",
            f"--profile={self.root / 'profile.json'}",
            f"--core={self.root / 'core.json'}",
            f"--deviations={self.root / 'deviations.json'}",
        ]
        command += ["--module-bzl=@@//:module.bzl", "--defs-bzl=@@//:defs.bzl", f"--out={self.out}", *options]
        command += [f"--specs={self.root / label}" for label in labels]
        return subprocess.run(command, env={**os.environ, **env}, capture_output=True, text=True, check=False)

    def imported(self, *args: Any, **kwargs: Any) -> None:
        result = self.run_importer(*args, **kwargs)
        self.assertEqual(result.returncode, 0, result.stderr)

    def assert_fails(self, message: str, *args: Any, **kwargs: Any) -> None:
        result = self.run_importer(*args, **kwargs)
        self.assertEqual(result.returncode, 1, result.stderr)
        self.assertRegex(result.stderr, "^importer.py: error: .*" + message)
        self.assertNotIn("Traceback", result.stderr)
        self.assertFalse(self.out.exists())
        self.assertFalse(list(self.root.glob(".*")), "something was left behind")

    def constants(self, file: str) -> dict[str, Any]:
        tree = ast.parse((self.out / file).read_text(encoding="utf-8"))
        assigned = [node for node in tree.body if isinstance(node, ast.Assign)]
        return {
            node.targets[0].id: ast.literal_eval(node.value)
            for node in assigned
            if isinstance(node.targets[0], ast.Name)
        }

    def test_deviations(self) -> None:
        like = {"add": ["csrc/m.cc"], "like": PLAIN["sources"][0]["src"], "reason": "it calls it"}
        self.deviations = {
            "sources": {"plain": like},
            "fewer_kernels": {"plain": {"csrc/k.cu 8.0": "needs 9.0"}},
            "not_built": {},
        }
        (self.root / "in" / "csrc" / "m.cc").write_text("")
        self.upstream("cu130", PLAIN)
        self.imported(("cu130",), ["*"], ("plain",))
        [module] = self.constants("core.bzl")["MODULES"].values()
        self.assertEqual(module["fewer_kernels"], {"csrc/k.cu 8.0": "needs 9.0"})
        self.assertEqual([tu["src"] for tu in module["tus"]][-1], "csrc/m.cc")
        self.assertEqual(module["tus"][-1]["copts"], module["tus"][0]["copts"])

    def test_a_deviation_that_does_not_hold_any_more(self) -> None:
        like = {"add": [PLAIN["sources"][0]["src"]], "like": PLAIN["sources"][0]["src"], "reason": "it calls it"}
        self.deviations = {"sources": {"plain": like}, "fewer_kernels": {}, "not_built": {}}
        self.upstream("cu130", PLAIN)
        self.assert_fails("module plain: expected .* take the module out of the file", ("cu130",), ["*"])

    def test_what_is_not_built_here(self) -> None:
        self.deviations = {"sources": {}, "fewer_kernels": {}, "not_built": {"m*": "too large"}}
        self.upstream("cu130", PLAIN, MADE, SERVED)
        self.imported(("cu130",), ["*"])
        statuses = (self.out / "modules.cu130.txt").read_text()
        self.assertEqual(statuses, "made\ttoo large\nplain\tbuilt\nserved\tneeds NCCL\n")

    def test_deviations_of_another_form(self) -> None:
        self.deviations = {"sources": []}
        self.upstream("cu130", PLAIN)
        self.assert_fails("--deviations .*: expected sources, fewer_kernels and not_built", ("cu130",), ["*"])

    def test_description(self) -> None:
        self.upstream("cu130", PLAIN, SERVED)
        self.imported(("cu130",), ["*"])
        expected = {
            "embedded": [],
            "fewer_kernels": {},
            "linkopts": ["-lcuda"],
            "sm_targets": ["8.0", "9.0a"],
            "tus": [
                {
                    "src": "csrc/k.cu",
                    "lang": "cuda",
                    "device_code": True,
                    "copts": ['-DBODY="body.h"'],
                    "includes": ["csrc/own"],
                    "hdrs": ["csrc/body.h"],
                    "third_party": ["cccl"],
                    "toolkit_components": [],
                    "late_includes": ["csrc/late"],
                },
                {
                    "src": "csrc/host.cc",
                    "lang": "c++",
                    "device_code": False,
                    "copts": ["-O3"],
                    "includes": ["csrc/own"],
                    "hdrs": ["csrc/own/own.h"],
                    "third_party": ["spdlog"],
                    "toolkit_components": [],
                    "late_includes": [],
                },
            ],
        }
        del expected["fewer_kernels"]
        self.assertEqual(json.loads((self.out / "cu130" / "modules.json").read_text()), {"plain": expected})
        build = (self.out / "modules" / "plain" / "BUILD.bazel").read_text()
        self.assertTrue(build.startswith('load("@@//:module.bzl", "flashinfer_module")'))
        for words in ('"name": "host"', '"name": "k"', '"cu130": [', '"-lcuda"'):
            self.assertIn(words, build)
        root = (self.out / "BUILD.bazel").read_text()
        for words in ('"csrc/body.h"', '"modules.cu130.txt"', '"csrc/late"'):
            self.assertIn(words, root)
        read = ["csrc/body.h", "csrc/host.cc", "csrc/k.cu", "csrc/own/own.h"]
        self.assertEqual(json.loads((self.out / "sources.json").read_text()), read)

    def test_embedded_cubins(self) -> None:
        def cubin(name: str) -> dict[str, Any]:
            words = {"name": name, "symbol": f"{name}_start", "kernel": "k", "sm_target": "8.0"}
            return {**words, "source": source("csrc/k.cu", '-DBODY="body.h"')}

        self.upstream("cu130", {**MOE, "embedded": [cubin("body")]})
        self.imported(("cu130",), ["*"])
        [embedded] = json.loads((self.out / "cu130" / "modules.json").read_text())["moe"]["embedded"]
        tu = embedded.pop("tu")
        self.assertEqual(embedded, {"name": "body", "symbol": "body_start", "kernel": "k", "sm_target": "8.0"})
        self.assertEqual((tu["src"], tu["hdrs"]), ("csrc/k.cu", ["csrc/body.h"]))
        self.assertIn('"symbol": "body_start"', (self.out / "modules" / "moe" / "BUILD.bazel").read_text())
        for file in ("BUILD.bazel", "sources.json"):
            self.assertIn('"csrc/body.h"', (self.out / file).read_text())
        self.out = self.root / "out2"
        self.upstream("cu130", {**MOE, "embedded": [cubin("x" * 250)]})
        self.assert_fails(r"module moe: the name embedded\.x+ has 259 characters", ("cu130",), ["*"])

    def test_sources_beside_python_code(self) -> None:
        self.upstream("cu130", MOE)
        self.imported(("cu130",), ["*"])
        self.assertIn('"package/ops/moe.cu"', (self.out / "BUILD.bazel").read_text())
        self.assertEqual(json.loads((self.out / "sources.json").read_text()), ["flashinfer/ops/moe.cu"])

    def test_headers_that_are_provided(self) -> None:
        self.upstream("cu130", WITH_NCCL)
        self.imported(("cu130",), ["*"], options=(f"--nccl={self.root / 'in' / 'nccl'}",))
        [tu] = json.loads((self.out / "cu130" / "modules.json").read_text())["with_nccl"]["tus"]
        self.assertEqual(tu["includes"], ["nccl/include", "nccl/include/nccl_device"])
        # A header of NCCL's that one of NCCL's includes is followed.
        self.assertEqual((tu["hdrs"], tu["third_party"], tu["toolkit_components"]), ([], ["cccl"], ["cublas"]))
        headers = sorted(str(path.relative_to(self.out)) for path in (self.out / "nccl").rglob("*.h"))
        names = ["nccl.h", "nccl_device.h", "nccl_device/core.h"]
        self.assertEqual(headers, [f"nccl/include/{name}" for name in names])
        root = (self.out / "BUILD.bazel").read_text()
        self.assertIn('hdrs = [directory.split("/")[0] + "/include"]', root)
        self.assertLess(root.index("that a person provides"), root.index('"nccl/include/nccl_device"'))

    def test_headers_that_no_module_of_the_profile_needs_are_left_out(self) -> None:
        self.upstream("cu130", PLAIN, WITH_NCCL)
        self.imported(("cu130",), ["plain"], options=(f"--nccl={self.root / 'in' / 'nccl'}",))
        self.assertFalse((self.out / "nccl").exists())

    def test_headers_that_are_missing(self) -> None:
        self.upstream("cu130", WITH_NCCL)
        self.assert_fails("modules in --specs search nccl/include; expected --nccl", ("cu130",), ["*"])
        message = "FLASHINFER_NCCL=.*/csrc does not have what it is given for"
        self.assert_fails(message, ("cu130",), ["*"], options=(f"--nccl={self.root / 'in' / 'csrc'}",))

    def test_files_of_the_cubin_server_are_taken_over(self) -> None:
        self.upstream("cu130", WITH_CUBINS)
        for name in ("cubins/x/include/meta.h", "cubins/x/include/unused.h"):
            (self.root / "cu130" / name).parent.mkdir(parents=True, exist_ok=True)
            (self.root / "cu130" / name).write_text("")
        self.imported(("cu130",), ["*"])
        [tu] = json.loads((self.out / "cu130" / "modules.json").read_text())["with_cubins"]["tus"]
        self.assertEqual(tu["hdrs"], ["cubins/x/include/meta.h"])
        files = [str(path.relative_to(self.out)) for path in (self.out / "cubins").rglob("*.h")]
        self.assertEqual(files, ["cubins/x/include/meta.h"])
        self.assertEqual(json.loads((self.out / "sources.json").read_text()), ["csrc/k.cu"])

    def test_lists_say_of_every_module_what_it_is(self) -> None:
        self.upstream("cu128", PLAIN, SERVED)
        self.upstream("cu130", PLAIN, MOE, SERVED)
        self.imported(("cu128", "cu130"), ["pl*", "served"])
        self.assertEqual((self.out / "modules.cu128.txt").read_text(), "plain\tbuilt\nserved\tneeds NCCL\n")
        lines = "moe\tnot in profile profile\nplain\tbuilt\nserved\tneeds NCCL\n"
        self.assertEqual((self.out / "modules.cu130.txt").read_text(), lines)
        index = self.constants("index.bzl")
        self.assertEqual(index["MODULES"], {"plain": {"cu128": ("plain", 0), "cu130": ("plain", 0)}})
        self.assertEqual(index["NOT_BUILT"], {label: {"served": "needs NCCL"} for label in ("cu128", "cu130")})
        self.assertEqual(index["OTHERS"], {"moe": "not in profile profile", "served": "needs NCCL"})
        self.assertEqual((index["PROFILE"], index["SM_TARGETS"]), ("profile", [["8.0", "9.0a"]]))

    def test_core_modules_have_no_package(self) -> None:
        self.upstream("cu130", PLAIN, MOE)
        self.imported(("cu130",), ["*"], ("plain",))
        self.assertEqual([p.name for p in (self.out / "modules").iterdir()], ["moe"])
        self.assertEqual(list(self.constants("core.bzl")["MODULES"]), ["plain"])
        self.assertEqual(self.constants("index.bzl")["MODULES"]["plain"]["cu130"][0], "")

    def test_a_module_that_differs_for_a_label_has_a_package_for_it(self) -> None:
        self.upstream("cu128", spec("moe", source("package/ops/moe.cu", "-DOLD")))
        self.upstream("cu130", MOE)
        self.imported(("cu128", "cu130"), ["*"])
        self.assertEqual(sorted(p.name for p in (self.out / "modules").iterdir()), ["moe", "moe.cu128"])
        packages = {label: package for label, (package, _) in self.constants("index.bzl")["MODULES"]["moe"].items()}
        self.assertEqual(packages, {"cu128": "moe.cu128", "cu130": "moe"})
        self.out = self.root / "out2"
        message = "module moe of the core profile has other sources or flags for cu128 than for cu130"
        self.assert_fails(message, ("cu128", "cu130"), ["*"], ("moe",))

    def test_rendered_sources_are_taken_over_and_all_bytes_are_reproducible(self) -> None:
        self.upstream("cu128", MADE)
        self.upstream("cu130", MADE, PLAIN)
        outputs = []
        for seed in ("1", "2"):
            self.out = self.root / f"out{seed}"
            self.imported(("cu128", "cu130"), ["*"], PYTHONHASHSEED=seed)
            files = sorted(path for path in self.out.rglob("*") if path.is_file())
            outputs.append({str(p.relative_to(self.out)): p.read_bytes() for p in files})
        rendered = [name for name in outputs[0] if name.startswith(("generated", "cached_ops"))]
        self.assertEqual(rendered, ["generated/made/k.cu", "generated/made/part/k.cu"])
        self.assertEqual(outputs[0], outputs[1])

    def test_rendered_sources_that_differ(self) -> None:
        self.upstream("cu128", MADE)
        self.upstream("cu130", MADE, rendered="__global__ void other();\n")
        self.assert_fails("upstream renders .* differently .*cu128.*cu130", ("cu128", "cu130"), ["*"])

    def test_pattern_that_matches_nothing(self) -> None:
        self.upstream("cu130", PLAIN)
        message = r"profile\.json: pattern 'no\*' matches no module; expected .* of cu130, .*--config=full"
        self.assert_fails(message, ("cu130",), ["plain", "no*"])

    def test_unresolved_macro_include(self) -> None:
        self.upstream("cu130", PLAIN)
        (self.root / "in/csrc/body.h").unlink()
        self.assert_fails(r"module plain of cu130: .*`#include BODY`.*found values: body\.h", ("cu130",), ["*"])

    def test_specs_that_are_not_there(self) -> None:
        self.assert_fails("--specs .*/cu130: expected specs.json as upstream.py writes it", ("cu130",), ["*"])

    def test_out_that_holds_something(self) -> None:
        self.out.mkdir()
        (self.out / "kept").touch()
        result = self.run_importer(("cu130",), ["*"])
        self.assertRegex(result.stderr, "--out .*/out: expected a new or empty directory")


if __name__ == "__main__":
    unittest.main()
