"""What the host compiler of one CPU produces and reads.

The BUILD file names the files and the CPU in the environment.
"""

from __future__ import annotations

import os
import re
import struct
import subprocess
import tempfile
import unittest
from pathlib import Path

CPU = os.environ["CPU"]
TRIPLE = f"{CPU}-linux-gnu"
HELLO = Path(os.environ["HELLO"]).absolute()
LIBSTDCXX = Path(os.environ["LIBSTDCXX"]).absolute()
COMPILED = {Path(path).suffix: Path(path) for path in os.environ["COMPILED"].split()}
BIN = next(Path(path).parent for path in os.environ["TOOLS"].split() if path.endswith("-g++"))

# e_machine of the ELF header and the dynamic loader, as the psABI of each CPU has them.
MACHINE = {"x86_64": 62, "aarch64": 183}[CPU]
LOADER = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}[CPU]


def tool(name: str, *arguments: str | Path, cwd: str = ".", **environment: str) -> str:
    """What one of the repository's tools prints. It is called by an absolute path."""
    result = subprocess.run(
        [(BIN / f"{TRIPLE}-{name}").absolute(), *arguments],
        cwd=cwd,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert result.returncode == 0, result.stdout
    return result.stdout


def machine(elf: Path) -> int:
    """e_machine of an ELF file."""
    value: int = struct.unpack_from("<H", elf.read_bytes(), 18)[0]
    return value


class Products(unittest.TestCase):
    """What a build leaves behind."""

    def test_machine(self) -> None:
        for elf in (HELLO, COMPILED[".o"], COMPILED[".so"]):
            self.assertEqual(machine(elf), MACHINE, elf)

    def test_loader(self) -> None:
        headers = tool("readelf", "-lW", HELLO)
        self.assertIn(f"[Requesting program interpreter: {LOADER}]", headers)

    def test_dependencies_are_relative(self) -> None:
        text = COMPILED[".d"].read_text().replace("\\\n", " ")
        paths = text.split(":", 1)[1].split()
        self.assertGreater(len(paths), 100)
        places = rf"external/[^/]*smwheel_gcc/{CPU}/usr/|(external/[^/]+/)?tests/toolchains/cc/"
        strangers = [path for path in paths if not re.match(places, path) or ".." in path]
        self.assertEqual(strangers, [])

    def test_line_markers_are_relative(self) -> None:
        files = set(re.findall(r'^# \d+ "([^"<]+)"', COMPILED[".ii"].read_text(), re.M))
        self.assertGreater(len(files), 100)
        self.assertEqual([file for file in files if file.startswith("/") or ".." in file], [])

    def test_no_trace_of_the_place_of_the_build(self) -> None:
        # Debug information is in the object, so that the check below is about something.
        self.assertIn(b"/proc/self/cwd", COMPILED[".o"].read_bytes())
        for file in (COMPILED[".o"], COMPILED[".so"], HELLO):
            for trace in (b"/execroot/", b"/sandbox/", b"/tmp/", b"/home/", b"/root/"):
                self.assertNotIn(trace, file.read_bytes(), file)

    def test_static_library(self) -> None:
        self.assertIn("sstream-inst.o", tool("ar", "t", LIBSTDCXX).split())


class Compiler(unittest.TestCase):
    """What the compiler reads."""

    def test_few_inputs(self) -> None:
        # Its trees are thousands of files: as single inputs they would slow every action down.
        self.assertLess(len(COMPILED[".files"].read_text().splitlines()), 20)

    def test_reads_its_own_tree_only(self) -> None:
        programs = ("as", "ld", "nm", "strip", "cc1plus", "collect2")
        files = ("crt1.o", "crtbegin.o", "libc.so", "libm.so", "libgcc.a", "libstdc++.so")
        said = [tool("g++", f"-print-prog-name={name}").strip() for name in programs]
        said += [tool("g++", f"-print-file-name={name}").strip() for name in files]
        search = tool("g++", "-v", "-E", "-x", "c++", "/dev/null").split("search starts here:")[-1]
        directories = search.split("End of search list")[0].split()
        self.assertGreater(len(directories), 4)
        tree = os.path.realpath(BIN.parent / CPU) + "/"
        strangers = [p for p in said + directories if not os.path.realpath(p).startswith(tree)]
        self.assertEqual(strangers, [])

    def test_works_from_any_directory(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            source = "#include <vector>\nint main() { return std::vector<int>().size(); }\n"
            Path(directory, "a.cpp").write_text(source)
            tool("g++", "a.cpp", "-o", "a", cwd=directory)
            self.assertEqual(machine(Path(directory, "a")), MACHINE)

    def test_ignores_the_machines_settings(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            Path(directory, "vector").write_text("#error the machine's header\n")
            Path(directory, "as").write_text("#!/bin/sh\nexit 1\n")
            Path(directory, "as").chmod(0o755)
            Path(directory, "a.cpp").write_text("#include <vector>\n")
            paths = ("CPATH", "CPLUS_INCLUDE_PATH", "COMPILER_PATH", "LIBRARY_PATH", "PATH")
            settings = dict.fromkeys(paths, f"{directory}:/usr/bin:/bin")
            tool("g++", "-c", "a.cpp", cwd=directory, **settings)


if __name__ == "__main__":
    unittest.main()
