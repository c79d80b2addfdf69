"""What an edit of a kernel rebuilds. The edits are made in a FlashInfer checkout, as a developer would."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from preprocessed import first_party
from test_sharing import SM_TARGETS, modules
from workspace import CACHE, Action, Workspace

CHECKOUT = CACHE / "elsewhere" / "flashinfer"


@pytest.fixture(scope="module")
def checkout(elsewhere: Workspace) -> Iterator[Workspace]:
    """The workspace elsewhere with a FlashInfer checkout in place of the pinned sources; all wheels are built."""
    elsewhere.bazel("build", "//wheels:cu130")
    pinned = elsewhere.repository("flashinfer_sources") / "files"
    shutil.rmtree(CHECKOUT, ignore_errors=True)
    # Its own copies of CUTLASS and the like are not needed: those are pinned in any case.
    third_party = {str(pinned / "flashinfer" / "data" / name) for name in ("cccl", "cutlass", "spdlog")}
    shutil.copytree(
        pinned / "flashinfer",
        CHECKOUT / "flashinfer",
        ignore=lambda directory, names: [name for name in names if f"{directory}/{name}" in third_party],
    )
    workspace = replace(elsewhere, flags=(*elsewhere.flags, f"--repo_env=FLASHINFER_CHECKOUT={CHECKOUT}"))
    compiled = [a for a in workspace.build("//wheels:cu130") if a.mnemonic.startswith("Cuda")]
    assert compiled == [], "the same sources by another way are the same sources"
    yield workspace
    shutil.rmtree(CHECKOUT)


def edit(workspace: Workspace, file: str, text: str, *targets: str) -> list[Action]:
    """Appends `text` to a file of the checkout and returns the actions that building `targets`, or all wheels, ran."""
    path = CHECKOUT / "flashinfer" / "data" / file
    before = path.read_text()
    targets = targets or ("//wheels:cu130",)
    try:
        path.write_text(before + text)
        return workspace.build(*targets)
    finally:
        path.write_text(before)
        workspace.bazel("build", *targets)


def labels(actions: list[Action], mnemonic: str) -> set[str]:
    """The target names of the actions of one mnemonic."""
    return {action.label.partition(":")[2] for action in actions if action.mnemonic == mnemonic}


def test_a_kernel(checkout: Workspace) -> None:
    """An edit of one .cu: its cubins, its host objects, its module, its members, the wheels. Nothing else."""
    actions = edit(checkout, "csrc/page.cu", "\n__global__ void smwheel_edit(int* p) { *p = 1; }\n")
    sms = {"page.csrc_page.sm_" + sm.replace(".", "") for sm in SM_TARGETS}
    assert labels(actions, "CudaPreprocess") == labels(actions, "CudaCubin") == sms
    assert labels(actions, "CudaHostFront") == labels(actions, "CudaHostCompile") == {"page.csrc_page.host"}
    assert labels(actions, "CudaFatbin") == labels(actions, "CudaLink") == {"page"}
    counts = Counter(action.mnemonic for action in actions)
    assert counts["CudaCubin"] == 9
    assert counts["CudaHostCompile"] == 2
    assert counts["CudaLink"] == counts["WheelMember"] == counts["WheelPack"] == counts["WheelCheck"] == 6


# What any header may have at its end, also one that is read twice.
CODE = "\nstruct smwheel_edit;\n"


def module_and_sm(name: str) -> tuple[str, str]:
    """Of `//kernels/flashinfer:norm.csrc_norm.sm_80`, or of `modules/rope:rope.sm_80` in another repository."""
    package, _, target = name.rpartition("/")[2].partition(":")
    return (target.partition(".")[0] if package == "flashinfer" else package, target.rpartition(".sm_")[2])


def including(workspace: Workspace, header: str, *targets: str) -> set[str]:
    """The (TU, SM target) pairs whose text comes from `header` among others, as the preprocessor says itself.

    They are called as `Action.label` is from its last slash on. The scan for headers has no say in this.
    """
    kernels = f"kind(cuda_library, deps({' + '.join(targets)}))"
    found = workspace.bazel("cquery", kernels, "--output=starlark", "--starlark:expr=str(target.label)").stdout.split()
    # A cache that has the cubins leaves out the texts, unless they are asked for.
    workspace.bazel("build", "--output_groups=preprocessed", *found)
    texts = workspace.files(" + ".join(found), "--output_groups=preprocessed")
    return {f"{path.parent.name}:{path.stem}" for path in texts if header in first_party(path.read_bytes())}


def scanned(workspace: Workspace, header: str) -> Counter[tuple[str, str]]:
    """How many TUs with device code include `header` according to the scan, by module and SM target."""
    return Counter(
        (name, sm.replace(".", ""))
        for name, module in modules(workspace).items()
        for tu in module["tus"]
        if tu["device_code"] and header in tu["hdrs"]
        for sm in module["sm_targets"]
    )


def check_edit_of_a_header(workspace: Workspace, header: str, pairs: int, *targets: str) -> None:
    """A line of code in a header: as many cubins are made as (TU, SM target) pairs include it, and those."""
    expected = including(workspace, header, *targets)
    assert len(expected) == pairs
    assert scanned(workspace, header) == Counter(map(module_and_sm, expected))
    actions = edit(workspace, header, CODE, *targets)
    for mnemonic in ("CudaPreprocess", "CudaCubin"):
        ran = [action.label.rpartition("/")[2] for action in actions if action.mnemonic == mnemonic]
        assert len(ran) == pairs
        assert set(ran) == expected


@pytest.mark.parametrize(
    ("header", "pairs"),
    [
        ("include/flashinfer/quantization.cuh", 9),
        ("include/flashinfer/activation.cuh", 27),
    ],
)
def test_a_header(checkout: Workspace, header: str, pairs: int) -> None:
    """An edit of one header: only the TUs that include it."""
    check_edit_of_a_header(checkout, header, pairs, "//wheels:cu130")


@pytest.mark.slow
def test_a_header_of_other_modules(checkout: Workspace) -> None:
    """The same for a header of modules that only `full` has, beside one that does not include it."""
    full = replace(checkout, flags=(*checkout.flags, "--config=full"))
    full.bazel("build", "@flashinfer//:modules.cu130.txt")
    header = "csrc/kda/cake_kda_binding_common.cuh"
    names = sorted({name for name, _ in scanned(full, header)})
    assert len(names) == 10
    asked = replace(full, flags=(*full.flags, f"--//kernels:modules={','.join([*names, 'silu_and_mul'])}"))
    groups = [f"//wheels:cu130_sm_{sm.replace('.', '')}" for sm in SM_TARGETS]
    asked.bazel("build", *groups)
    check_edit_of_a_header(asked, header, 10, *groups)


def test_a_comment(checkout: Workspace) -> None:
    """A comment is preprocessed, and nothing is compiled."""
    actions = edit(checkout, "csrc/page.cu", "\n// smwheel: a comment\n")
    assert {a.mnemonic for a in actions if a.mnemonic.startswith(("Cuda", "Wheel"))} == {
        "CudaPreprocess",
        "CudaHostFront",
    }


def test_a_new_include_is_found(checkout: Workspace) -> None:
    """An include that was not there before is declared by itself: the scan runs again."""
    actions = edit(checkout, "csrc/flashinfer_page_binding.cu", "\n#include <flashinfer/fastdiv.cuh>\n")
    assert labels(actions, "CudaHostFront") >= {"page.csrc_flashinfer_page_binding.host"}


@pytest.fixture
def beside(elsewhere: Workspace) -> Iterator[Path]:
    """An empty directory, not in /tmp, of which actions have one of their own."""
    path = elsewhere.path.parent / "beside"
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    yield path
    shutil.rmtree(path)


def test_a_checkout_may_be_deleted(elsewhere: Workspace, beside: Path) -> None:
    """A build of the pinned sources follows, also by a server that has just been started."""
    pinned = elsewhere.repository("flashinfer_sources") / "files" / "flashinfer"
    copy = beside / "checkout"
    shutil.copytree(pinned, copy / "flashinfer", ignore=shutil.ignore_patterns("cccl", "spdlog"))
    for restart in (False, True):
        moved = copy.rename(beside / f"checkout-{restart}")
        elsewhere.bazel("build", "--nobuild", "//wheels:cu130", f"--repo_env=FLASHINFER_CHECKOUT={moved}")
        if restart:
            elsewhere.bazel("shutdown")
        copy = moved.rename(beside / "checkout")
        elsewhere.bazel("build", "--nobuild", "//wheels:cu130")


def test_a_directory_that_is_no_checkout(elsewhere: Workspace, beside: Path) -> None:
    message = elsewhere.failure("//wheels:cu130_x86_64_sm12x", "--nobuild", f"--repo_env=FLASHINFER_CHECKOUT={beside}")
    for words in (f"FLASHINFER_CHECKOUT={beside} is no FlashInfer checkout", "expected: flashinfer/jit", "To do:"):
        assert words in message


def test_a_checkout_that_actions_would_not_see(elsewhere: Workspace) -> None:
    message = elsewhere.failure("//wheels:cu130_x86_64_sm12x", "--nobuild", "--repo_env=FLASHINFER_CHECKOUT=/tmp/there")
    for words in ("FLASHINFER_CHECKOUT=/tmp/there lies in /tmp", "expected: a directory elsewhere", "To do: move it"):
        assert words in message
