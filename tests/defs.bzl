"""unit_tests: Python's own unittest files, each a test."""

load("@rules_python//python:py_test.bzl", "py_test")

def unit_tests(deps, **kwargs):
    """Declares a py_test for every test_*.py of the package.

    Args:
        deps: what the tests import.
        **kwargs: of py_test.
    """
    for file in native.glob(["test_*.py"]):
        py_test(
            name = file.removesuffix(".py"),
            size = "small",
            srcs = [file],
            deps = deps,
            **kwargs
        )
