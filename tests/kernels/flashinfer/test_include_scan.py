"""Tests of kernels/flashinfer/include_scan.py on trees made for each test.

Needs that folder on the import path:
PYTHONPATH=kernels/flashinfer python3 -m unittest discover -s tests/kernels/flashinfer
"""

from __future__ import annotations

import tempfile
import unittest
from collections.abc import Mapping
from pathlib import Path

from include_scan import Closure, ScanError, Trees, scan


class ScanCase(unittest.TestCase):
    def setUp(self) -> None:
        holder = tempfile.TemporaryDirectory()
        self.addCleanup(holder.cleanup)
        self.root = Path(holder.name).resolve()
        self.trees = Trees(
            first_party={name: self.root / name for name in ("csrc", "include", "generated")},
            third_party={name: self.root / "3rd" / name for name in ("cccl", "cutlass", "spdlog")},
            third_party_dirs=tuple(self.root / "3rd" / path for path in ("cutlass/include", "cccl/cub", "spdlog")),
        )

    def scan(self, files: Mapping[str, str], src: str = "csrc/a.cu", **kwargs: object) -> Closure:
        for name, text in files.items():
            path = self.root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        return scan(self.root / src, self.trees, **kwargs)  # type: ignore[arg-type]


class HeadersTest(ScanCase):
    def test_follows_includes_through_all_search_directories(self) -> None:
        closure = self.scan(
            {
                "csrc/sub/a.cu": '#include "near.h"\n  #  include <lib/x.cuh>\n#include "made.inc"\n',
                "csrc/sub/near.h": '#include "../up.h"\n',
                "csrc/up.h": '#include "own.h"\n',
                "csrc/own_dir/own.h": '#include_next "last.h"\n#import "a.cu"\n',
                "csrc/last.h": "",
                "include/lib/x.cuh": "#include <vector>\n",
                "generated/made.inc": "",
                "csrc/unused.h": "",
            },
            "csrc/sub/a.cu",
            own_dirs=[self.root / "csrc/own_dir"],
        )
        self.assertEqual(
            closure.headers,
            (
                "csrc/last.h",
                "csrc/own_dir/own.h",
                "csrc/sub/near.h",
                "csrc/up.h",
                "generated/made.inc",
                "include/lib/x.cuh",
            ),
        )

    def test_takes_every_match_and_ignores_conditions(self) -> None:
        closure = self.scan(
            {
                "csrc/a.cu": "#if 0\n#include \\\n  <x.h>\n#endif\n",
                "csrc/x.h": "",
                "include/x.h": "",
            }
        )
        self.assertEqual(closure.headers, ("csrc/x.h", "include/x.h"))

    def test_cycles_end(self) -> None:
        closure = self.scan({"csrc/a.cu": '#include "x.h"', "csrc/x.h": '#include "x.h"'})
        self.assertEqual(closure.headers, ("csrc/x.h",))

    def test_bytes_that_are_not_utf8_are_no_obstacle(self) -> None:
        (self.root / "csrc").mkdir()
        (self.root / "csrc/x.h").write_bytes(b"// \xe9\n")
        self.assertEqual(self.scan({"csrc/a.cu": '#include "x.h"'}).headers, ("csrc/x.h",))

    def test_include_outside_the_trees_is_an_error(self) -> None:
        files = {"csrc/a.cu": '#include "../stray.h"', "stray.h": ""}
        with self.assertRaisesRegex(ScanError, r"stray\.h: expected a path in csrc, include, gen"):
            self.scan(files)


class MacroTest(ScanCase):
    def test_value_from_a_flag(self) -> None:
        closure = self.scan({"csrc/a.cu": "#include BODY\n", "csrc/body.inl": ""}, copts=['-DBODY="body.inl"'])
        self.assertEqual(closure.headers, ("csrc/body.inl",))

    def test_all_values_from_defines_found_late(self) -> None:
        closure = self.scan(
            {
                "csrc/a.cu": "#define FIRST <one.h>\n#include FIRST\n#include SECOND\n",
                "csrc/one.h": '#define SECOND "two.h"\n#define SECOND "three.h"\n',
                "csrc/two.h": '#define FIRST "four.h"\n',
                "include/three.h": "",
                "include/four.h": "",
            }
        )
        self.assertEqual(closure.headers, ("csrc/one.h", "csrc/two.h", "include/four.h", "include/three.h"))

    def test_macro_without_value_is_an_error(self) -> None:
        files = {"csrc/a.cu": '#include "x.h"', "csrc/x.h": "#include BODY(1)\n"}
        with self.assertRaisesRegex(
            ScanError, r"csrc/a\.cu: csrc/x\.h has `#include BODY`.*-DBODY=.*found values: none"
        ):
            self.scan(files)

    def test_macro_whose_file_is_missing_is_an_error(self) -> None:
        with self.assertRaisesRegex(ScanError, r"found values: gone\.h; leave"):
            self.scan({"csrc/a.cu": '#define BODY "gone.h"\n#include BODY\n'})

    def test_macros_of_third_party_trees_are_not_followed(self) -> None:
        files = {"csrc/a.cu": "#include <cub/x.h>", "3rd/cccl/cub/cub/x.h": "#include NAME\n"}
        self.assertEqual(self.scan(files).third_party, ("cccl",))


class ThirdPartyTest(ScanCase):
    def test_trees_are_found_through_each_other_but_not_listed(self) -> None:
        closure = self.scan(
            {
                "csrc/a.cc": "#include <cutlass/y.h>\n",
                "3rd/cutlass/include/cutlass/y.h": '#include <cub/x.h>\n#include "common.h"\n',
                "3rd/cccl/cub/cub/x.h": "",
                "csrc/common.h": "",
            },
            "csrc/a.cc",
        )
        self.assertEqual(closure.third_party, ("cccl", "cutlass"))
        self.assertEqual(closure.headers, ())

    def test_cuda_headers_need_cccl(self) -> None:
        for name, text, expected in (
            ("a.cu", "", ("cccl",)),
            ("b.cc", "", ()),
            ("c.cc", "#include <cuda_fp16.h>", ("cccl",)),
            ("d.cc", "#include <cooperative_groups/reduce.h>", ("cccl",)),
        ):
            with self.subTest(name):
                closure = self.scan({f"csrc/{name}": text}, f"csrc/{name}")
                self.assertEqual(closure.third_party, expected)
                self.assertFalse(closure.device_code)

    def test_python_is_needed_by_what_includes_its_header(self) -> None:
        files = {
            "csrc/a.cc": '#include "a.h"\n',
            "csrc/a.h": '#include "Python.h"\n',
            "csrc/b.cc": "#include <python.h>\n",
        }
        self.assertEqual(self.scan(files, "csrc/a.cc").third_party, ("python",))
        self.assertEqual(self.scan(files, "csrc/b.cc").third_party, ())

    def test_toolkit_components(self) -> None:
        closure = self.scan(
            {
                "csrc/a.cu": "#include <cublasLt.h>\n#include <cuda_runtime.h>\n#include <cub/x.h>",
                "3rd/cccl/cub/cub/x.h": "#include <curand_kernel.h>\n#include <cudaProfiler.h>",
            }
        )
        self.assertEqual(closure.toolkit_components, ("cublas", "curand", "profiler_api"))
        closure = self.scan({"csrc/b.cu": "#include <cudaProfilerTypedefs.h>\n"}, "csrc/b.cu")
        self.assertEqual(closure.toolkit_components, ())


class DeviceCodeTest(ScanCase):
    def test_text(self) -> None:
        for number, (text, expected) in enumerate(
            (
                ("__global__ void k();", True),
                ("f<<<1, 2>>>(x);", True),
                ("__constant__ int x[4];", True),
                ("__device__ int counter;", True),
                ("__device__ __align__(16) float table[] = {1};", True),
                ("static __device__ int x{0};", True),
                ("__device__ __forceinline__ float f(float x) { return x; }", False),
                ("TVM_FFI_DLL_EXPORT_TYPED_FUNC(f, f); std::cout << 1;", False),
            )
        ):
            with self.subTest(text):
                src = f"csrc/{number}.cu"
                self.assertEqual(self.scan({src: text}, src).device_code, expected)

    def test_closure(self) -> None:
        for include, files, expected in (
            ("own.h", {"csrc/own.h": "__global__ void k();"}, True),
            ("plain.h", {"csrc/plain.h": ""}, False),
            ("cub/x.h", {"3rd/cccl/cub/cub/x.h": ""}, True),
            ("cutlass/absent.h", {}, True),
            ("spdlog.h", {"3rd/spdlog/spdlog.h": "__global__"}, False),
        ):
            with self.subTest(include):
                src = f"csrc/includes_{include.replace('/', '_')}.cu"
                files = {src: f"#include <{include}>", **files}
                self.assertEqual(self.scan(files, src).device_code, expected)


if __name__ == "__main__":
    unittest.main()
