"""Unit tests of the nvcc step driver, on dry runs as real toolkits print them."""

import unittest

import nvcc_steps
from nvcc_steps import StepError

# What nvcc 13.0.88 prints for one SM target, shortened.
DRY_RUN = """#$ _NVVM_BRANCH_=nvvm
#$ TOP=cuda/bin/..
#$ CICC_PATH=cuda/bin/../nvvm/bin
#$ INCLUDES="-Icuda/bin/..//include"
#$ /tmp/s/cc -D__CUDA_ARCH_LIST__=900 -E -x c++ -D__CUDACC__ "-Icuda/bin/..//include" "tu.cu" -o "/tmp/a.ii"
#$ cudafe++ --m64 --gen_module_id_file --module_id_file_name "/tmp/m" "/tmp/a.ii"
#$ /tmp/s/cc -D__CUDA_ARCH__=900 -E -x c++ -DCUDA_DOUBLE_MATH_FUNCTIONS "tu.cu" -o "/tmp/b.ii"
#$ "$CICC_PATH/cicc" -arch compute_90a --stub_file_name "/tmp/s.c" "/tmp/b.ii" -o "/tmp/b.ptx"
#$ ptxas -arch=sm_90a "/tmp/b.ptx" -o "/tmp/b.cubin"
#$ rm /tmp/a.fatbin
"""


class DryRunTest(unittest.TestCase):
    def setUp(self) -> None:
        self.dry = nvcc_steps.parse_dry_run(DRY_RUN, "/tmp/s/cc", "external/cuda")

    def test_tools_are_named_and_removals_left_out(self) -> None:
        self.assertEqual([tool for tool, _ in self.dry.commands], ["cxx", "cudafe++", "cxx", "cicc", "ptxas"])

    def test_paths_of_the_toolkit_are_relative_to_it(self) -> None:
        self.assertIn("-Iexternal/cuda/include", self.dry.commands[0][1])

    def test_targets_directory_of_an_installed_toolkit_is_taken_out(self) -> None:
        text = DRY_RUN.replace("..//include", "../targets/x86_64-linux/include")
        dry = nvcc_steps.parse_dry_run(text, "/tmp/s/cc", "external/cuda")
        self.assertIn("-Iexternal/cuda/include", dry.commands[0][1])

    def test_find(self) -> None:
        self.assertIn("/tmp/b.ii", self.dry.find("cxx", "-E", "-DCUDA_DOUBLE_MATH_FUNCTIONS"))
        with self.assertRaisesRegex(StepError, "expected one cxx -E command in nvcc's dry run, found 2"):
            self.dry.find("cxx", "-E")

    def test_replace_after(self) -> None:
        self.assertEqual(nvcc_steps.replace_after(["a", "-o", "x", "b"], "-o", "y"), ["a", "-o", "y", "b"])
        with self.assertRaisesRegex(StepError, "has no --stub"):
            nvcc_steps.replace_after(["a"], "--stub", "y")


class MarkersTest(unittest.TestCase):
    def normalise(self, text: str) -> str:
        return "".join(nvcc_steps.normalise_markers(text.splitlines(keepends=True)))

    def test_a_comment_of_its_own_line_costs_nothing(self) -> None:
        # What the preprocessor leaves of a comment is a blank line or a marker with another line number.
        before = '# 1 "a.cu"\nint a;\nint b;\n'
        after = '# 1 "a.cu"\nint a;\n\n# 9 "a.cu"\nint b;\n'
        self.assertEqual(self.normalise(before), self.normalise(after))

    def test_flags_of_system_headers_stay(self) -> None:
        self.assertEqual(
            self.normalise('# 1 "a.cu"\n# 5 "/x.h" 1 3\nint x;\n# 7 "a.cu" 2\nint a;\n'),
            '# 1 "a.cu"\n# 1 "/x.h" 1 3\nint x;\n# 1 "a.cu" 2\nint a;\n',
        )

    def test_raw_strings_are_left_alone(self) -> None:
        # Source text for NVRTC, for example: its blank lines and its own directives are data.
        text = '# 1 "a.cu"\nauto s = R"x(a\n\n# 7 "b"\n)" )x", t = R"(\n\n)";\n\nint b;\n'
        self.assertEqual(self.normalise(text), text.replace(";\n\nint", ";\nint"))

    def test_markers_without_a_file_are_dropped(self) -> None:
        # As cudafe++ writes them.
        self.assertEqual(self.normalise('# 1 "a.cu"\n# 33\nint a;\n# 34\nint b;\n'), '# 1 "a.cu"\nint a;\nint b;\n')

    def test_code_is_not_touched(self) -> None:
        text = '  # pragma unroll\nchar* s = "# 3 \\"x\\"";\n'
        self.assertEqual(self.normalise(text), text)


class RepositoryNamesTest(unittest.TestCase):
    def test_every_way_of_naming_gives_the_same_text(self) -> None:
        for name in ("flashinfer", "_main~flashinfer~flashinfer", "smwheel~~ext~flashinfer", "+flashinfer+flashinfer"):
            line = f'check("external/{name}/csrc/a.cu", "external/{name}/b.h");'
            self.assertEqual(
                nvcc_steps.name_repositories(line), 'check("external/flashinfer/csrc/a.cu", "external/flashinfer/b.h");'
            )

    def test_other_text_is_left_alone(self) -> None:
        for line in ("int a = external/~b/c;", 'f("my_external/x~y/z");', "a ~b/c"):
            self.assertEqual(nvcc_steps.name_repositories(line), line)


class StubTest(unittest.TestCase):
    def test_local_variables_of_a_stub_are_numbered_anew(self) -> None:
        stub = "f(void *__T{}) {{ int *__T{}; use(__T{}, x__T3); }}"
        self.assertEqual(
            nvcc_steps.normalise_stub(stub.format(90, 91, 91)), nvcc_steps.normalise_stub(stub.format(12, 40, 40))
        )
        self.assertIn("use(__smwheel1, x__T3)", nvcc_steps.normalise_stub(stub.format(90, 91, 91)))


if __name__ == "__main__":
    unittest.main()
