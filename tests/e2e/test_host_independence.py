"""Device code does not depend on the host CPU: why one cubin serves the wheels of both."""

from __future__ import annotations

from workspace import Workspace

SAMPLE = "//tests/e2e/samples:quantization"


def test_both_host_front_ends_give_the_same_device_code(here: Workspace) -> None:
    """One TU, preprocessed for both CPUs (`host_dependent = True`): the same cubin and the same host stub."""
    files = {}
    for cpu in ("x86_64", "aarch64"):
        flags = [f"--platforms=//toolchains/cc:{cpu}_linux"]
        here.bazel("build", SAMPLE, *flags, "--output_groups=+stub")
        [cubin] = here.files(SAMPLE, *flags)
        files[cpu] = (cubin, cubin.with_name(cubin.name.replace(".cubin", ".stub.c")))
    assert files["x86_64"][0] != files["aarch64"][0], "each CPU has a cubin of its own here"
    for one, other in zip(files["x86_64"], files["aarch64"], strict=True):
        assert one.read_bytes() == other.read_bytes()
