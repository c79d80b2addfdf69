"""Device code depends on the host CPU in one point, so one cubin serves the wheels of both."""

from __future__ import annotations

from workspace import Workspace


def through_both_front_ends(workspace: Workspace, target: str) -> list[tuple[bytes, bytes]]:
    """The cubin and the host stub of a `host_dependent` target for x86_64 and for aarch64."""
    results = []
    for cpu in ("x86_64", "aarch64"):
        flags = [f"--platforms=//toolchains/cc:{cpu}_linux"]
        ran = workspace.build(target, *flags, "--output_groups=+stub")
        [cubin] = workspace.files(target, *flags)
        results.append((cubin.read_bytes(), cubin.with_name(cubin.name.replace(".cubin", ".stub.c")).read_bytes()))
    assert "CudaPreprocess" in {action.mnemonic for action in ran}, "the second CPU has a front end of its own"
    return results


def test_device_code_is_the_same_through_both_host_front_ends(here: Workspace) -> None:
    x86_64, aarch64 = through_both_front_ends(here, "//tests/e2e/samples:cascade")
    assert x86_64 == aarch64


def test_but_for_the_sign_of_plain_char(here: Workspace) -> None:
    """What `host_dependent = True` is for. Shared device code has the signed char of x86_64 on both CPUs."""
    x86_64, aarch64 = through_both_front_ends(here, "//tests/e2e/samples:plain_char")
    assert x86_64[0] != aarch64[0]
    assert x86_64[1] == aarch64[1], "the host stub is the same"
