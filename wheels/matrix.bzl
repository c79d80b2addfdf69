"""The release matrix: what ships. Targets, names, checks and jobs are derived from these tables."""

load("//toolchains/cuda:sm_targets.bzl", "family_members", "runs_on", "sm_name", "sm_target_key", "toolkit_supports")

# The release of the kernels, and the distribution's name.
RELEASE = "0.7.4"
DISTRIBUTION = "flashinfer-jit-cache"

# A GitHub release asset must be smaller than this many bytes (GitHub docs, "About releases": under 2 GiB).
ASSET_LIMIT = 2147483648

# Percent by which a wheel may outgrow its baseline (wheels/baselines/<wheel>.json), where it has one.
GROWTH_LIMIT = "5"

# libdeflate's level of the members. docs/benchmarks.md has what each level, and each mode of fatbinary, weighs and costs.
COMPRESSION_LEVEL = 6

_MIB = 1024 * 1024

# SM targets that ship together.
#   majors  major compute capabilities of the family's own targets
#   base    targets of other majors that it carries too, where the cell has them
#   devices the GPUs that the family is for, by compute capability; a wheel promises those that its SM targets reach
#   budget  bytes that a wheel of the family must stay below
FAMILIES = {
    "sm9x": struct(
        majors = [7, 8, 9],
        base = [],
        devices = ["7.5", "8.0", "8.6", "8.9", "9.0"],
        budget = 4 * _MIB,
    ),
    "sm10x": struct(
        majors = [10, 11],
        base = ["8.0"],
        devices = ["10.0", "10.3", "10.7", "11.0"],
        budget = 4 * _MIB,
    ),
    "sm12x": struct(
        majors = [12],
        base = ["8.0"],
        devices = ["12.0", "12.1"],
        budget = 3 * _MIB,
    ),
}

_CU128 = ["7.5", "8.0", "8.9", "9.0a", "10.0a", "12.0a"]
_CU129 = ["7.5", "8.0", "8.9", "9.0a", "10.0a", "10.3a", "12.0f"]
_CU130 = ["7.5", "8.0", "8.9", "9.0a", "10.0a", "10.3a", "12.0f"]
_CU134 = ["7.5", "8.0", "8.9", "9.0a", "10.0a", "10.3a", "10.7a", "12.0f"]

def _minimum_driver(cuda_version, fatbin_compression):
    """The oldest driver that loads a wheel's modules.

    CUDA Toolkit release notes, "CUDA Toolkit and Minimum Required Driver Version for CUDA Minor Version Compatibility".
    Zstandard in fatbins (the modes `balance` and `size`) came with 12.4: drivers before its own can't read it.
    """
    if cuda_version.startswith("13."):
        return "580"
    return "550.54.14" if fatbin_compression in ["balance", "size"] else "525.60.13"

# CUDA label -> toolkit version, fatbinary's --compress-mode (the one in upstream's flags), SM targets of each CPU.
CELLS = {
    "cu128": struct(
        cuda_version = "12.8",
        fatbin_compression = "size",
        sm_targets = {
            "aarch64": _CU128,
            "x86_64": _CU128,
        },
    ),
    "cu129": struct(
        cuda_version = "12.9",
        fatbin_compression = "size",
        sm_targets = {
            "aarch64": _CU129 + ["12.1a"],
            "x86_64": _CU129,
        },
    ),
    "cu130": struct(
        cuda_version = "13.0",
        fatbin_compression = "size",
        sm_targets = {
            "aarch64": _CU130 + ["11.0a", "12.1a"],
            "x86_64": _CU130,
        },
    ),
    "cu134": struct(
        cuda_version = "13.4",
        fatbin_compression = "size",
        sm_targets = {
            "aarch64": _CU134 + ["11.0a", "12.1a"],
            "x86_64": _CU134,
        },
    ),
}

# CUDA label -> toolkit version.
CUDA_VERSIONS = {label: cell.cuda_version for label, cell in CELLS.items()}

def sm_targets_of_label(label):
    """All SM targets of a CUDA label, over its CPUs, in ascending order."""
    return sorted({sm: None for targets in CELLS[label].sm_targets.values() for sm in targets}, key = sm_target_key)

def _check(label, cell):
    """Fails if a cell asks for an SM target that its toolkit does not know. One that is not known here may pass."""
    for cpu, sm_targets in cell.sm_targets.items():
        for sm in sm_targets:
            if toolkit_supports(cell.cuda_version, sm) == False:
                fail(("%s, %s: the toolkit of CUDA %s does not know SM target %s.\n  expected: SM targets that it compiles for\n" +
                      "  To do: take %s out of the cell in wheels/matrix.bzl, or correct it; the releases that know it are in " +
                      "toolchains/cuda/private/sm_targets.bzl.") % (label, cpu, cell.cuda_version, sm, sm))
    return cell

def _wheel(label, cell, cpu, name, family):
    sm_targets = family_members(family.majors, family.base, cell.sm_targets[cpu])
    return struct(
        name = "%s_%s_%s" % (label, cpu, name),
        budget = family.budget,
        cpu = cpu,
        cuda_label = label,
        cuda_version = cell.cuda_version,
        devices = [d for d in family.devices if [sm for sm in sm_targets if runs_on(sm, d)]],
        distribution = DISTRIBUTION,
        family = name,
        fatbin_compression = cell.fatbin_compression,
        minimum_driver = _minimum_driver(cell.cuda_version, cell.fatbin_compression),
        sm_targets = sm_targets,
        tag = "cp39-abi3-manylinux_2_28_" + cpu,
        version = "%s+%s.%s" % (RELEASE, label, name),
    )

# One struct for each wheel. How a wheel is named is decided in _wheel alone.
WHEELS = [
    _wheel(label, _check(label, cell), cpu, name, family)
    for label, cell in CELLS.items()
    for cpu in sorted(cell.sm_targets)
    for name, family in FAMILIES.items()
]

# What wheels share: the cubins of each (CUDA label, SM target), the host objects of each (CUDA label, CPU).
CUBIN_GROUPS = [
    struct(
        name = "%s_%s" % (label, sm_name(sm)),
        cuda_label = label,
        cuda_version = cell.cuda_version,
        sm_target = sm,
    )
    for label, cell in CELLS.items()
    for sm in sm_targets_of_label(label)
]
HOST_GROUPS = [
    struct(
        name = "%s_%s_host" % (label, cpu),
        cpu = cpu,
        cuda_label = label,
        cuda_version = cell.cuda_version,
        sm_targets = cell.sm_targets[cpu],
    )
    for label, cell in CELLS.items()
    for cpu in sorted(cell.sm_targets)
]
