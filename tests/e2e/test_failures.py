"""What a person reads when a build can't be done. Each target here must not build."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from workspace import Workspace

# Target of tests/e2e/failures, more flags, and what the message must say.
CASES = [
    (
        "unknown_sm_target",
        [],
        ["fine.cu: the toolkit of CUDA 13.0 does not know SM target 13.7", "expected: one of 7.5, 8.0", "compute_137", "To do:", "wheels/matrix.bzl"],
    ),
    (
        "compile_error",
        [],
        ['identifier "there_is_no_such_name" is undefined', "compile error in tests/e2e/failures/compile_error.cu for SM target 9.0a (CUDA 13.0", "cicc failed"],
    ),
    (
        "header_of_the_machine",
        [],
        ["tests/e2e/failures/header_of_the_machine.cu for SM target 9.0a", "includes headers of this machine: /proc/self/environ", "expected: only headers of declared"],
    ),
    (
        "disagreeing_stubs",
        ["--//toolchains/cuda:sm_targets=8.0,9.0a"],
        ["only_on_hopper.cu: SM target 9.0a has kernels that the host code does not know", "expected: those of", "found besides: ", "only_on_hopper", "To do:", "__CUDA_ARCH__"],
    ),
    ("undeclared_device_code", [], ["fine.cu", "is declared as a TU without device code", "expected: device_code = True"]),
    (
        "fine",
        ["--//toolchains/cuda:sm_targets=9.0a"],
        ["none of the SM targets that this build asks for", "expected: at least one of 8.0", "--//toolchains/cuda:sm_targets=8.0,9.0a"],
    ),
    (
        "over_budget",
        [],
        ["failure-1.0+over.budget-cp39-abi3-manylinux_2_28_x86_64.whl is too large", "expected: under 1000 bytes, its budget", "found: ", "excess: ", "fine  8.0", "The ten largest"],
    ),
    ("over_limit", [], ["is too large", "expected: under 1000 bytes, the size at which a release asset is refused", "fine  8.0"]),
    ("broken_promise", [], ["promises GPUs that some of its modules do not run on", "two_targets has images for 8.0", "compute capability 9.0", "9.0a", "To do:"]),
    (
        "wrong_embedded_kernel",
        [],
        ["wrong_kernel, embedded cubin body is not what was built", "expected: SASS for 8.0 with kernel fine", "found:    SASS for 8.0 with kernels _Z4finePi", 'To do: correct its declaration (embedded_cubin), or declare the kernel extern "C"'],
    ),
    ("duplicate_module", [], ["module name 'fine' is given twice", "failures:fine and ", "failures:another_fine", "library_name"]),
]  # fmt: skip


@pytest.mark.parametrize(("target", "flags", "words"), CASES, ids=[case[0] for case in CASES])
def test_message(here: Workspace, target: str, flags: list[str], words: list[str]) -> None:
    message = here.failure(f"//tests/e2e/failures:{target}", *flags)
    for text in words:
        assert text in message


def test_fine_is_fine(here: Workspace) -> None:
    """The targets above fail for what they are there for: without it, the same module builds."""
    here.bazel("build", "//tests/e2e/failures:fine")


@contextmanager
def edited(path: Path, old: str, new: str) -> Iterator[None]:
    """A file with every match of a pattern replaced, for a while."""
    before = path.read_text()
    try:
        path.write_text(re.sub(old, new, before))
        yield
    finally:
        path.write_text(before)


RUNTIME = "@cuda_13_0_runtime_aarch64//:files/lib"


def test_hash_that_does_not_match(elsewhere: Workspace) -> None:
    with edited(
        elsewhere.path / "toolchains/cuda/locks/13.0.txt", "(cuda-runtime==[0-9.]+).*", rf"\1 --hash=sha256:{'0' * 64}"
    ):
        message = elsewhere.failure(RUNTIME)
    for words in (
        "nvidia-cuda-runtime 13.0.96",
        "not the pinned one",
        f"expected sha256: {'0' * 64}",
        "found sha256:",
        "13.0.txt",
    ):
        assert words in message
    elsewhere.bazel("build", RUNTIME)


def test_component_that_cannot_be_fetched(elsewhere: Workspace) -> None:
    """No network: nothing listens on port 9 (discard) of this machine."""
    offline = replace(
        elsewhere,
        environment={
            **elsewhere.environment,
            "PIP_CONFIG_FILE": "/dev/null",
            "PIP_FIND_LINKS": "",
            "PIP_INDEX_URL": "http://127.0.0.1:9/simple",
            "PIP_NO_CACHE_DIR": "1",
            "PIP_RETRIES": "0",
        },
    )
    with edited(elsewhere.path / "toolchains/cuda/locks/13.0.txt", "^#", "# fetched again\n#"):
        message = offline.failure(RUNTIME)
    for words in (
        "cuda_13_0_runtime_aarch64", "nvidia-cuda-runtime 13.0.96 could not be fetched", "sources tried: ", "127.0.0.1:9", "PIP_INDEX_URL",
    ):  # fmt: skip
        assert words in message
    elsewhere.bazel("build", RUNTIME)
