"""The algebra of SM targets, for the build. See //toolchains/cuda:sm_targets.bzl."""

visibility(["//toolchains/cuda/..."])

_EXPECTED = "expected an SM target such as 8.0, 9.0a or 12.0f (also 90a, sm_90a, compute_90), found %r"

# Compute capability -> first toolkit that compiles for it, and the first that no longer does (CUDA Toolkit release
# notes). Thor was 10.1 up to 12.9, and has been 11.0 since 13.0.
_SINCE = {
    (5, 0): ((6, 5), (13, 0)),
    (6, 0): ((8, 0), (13, 0)),
    (7, 0): ((9, 0), (13, 0)),
    (7, 5): ((10, 0), None),
    (8, 0): ((11, 0), None),
    (8, 6): ((11, 1), None),
    (8, 7): ((11, 4), None),
    (8, 8): ((13, 0), None),
    (8, 9): ((11, 8), None),
    (9, 0): ((11, 8), None),
    (10, 0): ((12, 8), None),
    (10, 1): ((12, 8), (13, 0)),
    (10, 3): ((12, 9), None),
    (10, 7): ((13, 4), None),
    (11, 0): ((13, 0), None),
    (12, 0): ((12, 8), None),
    (12, 1): ((12, 9), None),
}

# Compute capabilities of the GPUs that people have (NVIDIA's "CUDA GPU Compute Capability" page).
DEVICES = ["7.5", "8.0", "8.6", "8.9", "9.0", "10.0", "10.3", "10.7", "11.0", "12.0", "12.1"]

# First toolkit with the suffix, and the first major compute capability that has it.
_SUFFIX_SINCE = {"a": ((12, 0), 9), "f": ((12, 9), 10)}

def parse_sm_target(text, or_none = False):
    """Parses an SM target.

    Args:
        text: `8.0`, `9.0a`, `12.0f`, `90`, `100a`, `sm_120f`, `compute_90a`.
        or_none: return None for anything else instead of failing.

    Returns:
        struct: major, minor (ints), suffix (`a`, `f` or empty), ptx (bool), name (`9.0a`).
    """
    number = text.removeprefix("compute_").removeprefix("sm_") if text.startswith(("compute_", "sm_")) else text
    prefixed = number != text
    suffix = number[-1:] if number[-1:] in ("a", "f") and len(number) > 1 else ""
    digits = number[:len(number) - len(suffix)]
    major, dot, minor = digits.partition(".")
    if not dot:
        major, minor = digits[:-1], digits[-1:]
    if not (major.isdigit() and minor.isdigit() and len(minor) == 1 and len(major) <= 2 and not major.startswith("0")) or (prefixed and dot):
        if or_none:
            return None
        fail(_EXPECTED % text)
    return struct(
        major = int(major),
        minor = int(minor),
        name = "%s.%s%s" % (major, minor, suffix),
        ptx = text.startswith("compute_"),
        suffix = suffix,
    )

def sm_target_key(text):
    """The key by which SM targets are sorted: by major, minor, suffix."""
    sm = parse_sm_target(text)
    return (sm.major, sm.minor, sm.suffix)

def sm_name(text):
    """The name of an SM target in targets and in nvcc's flags: `sm_90a` for `9.0a`."""
    return "sm_" + parse_sm_target(text).name.replace(".", "")

def runs_on(image, device):
    """Whether an image runs on a device.

    SASS for X.Y runs on X.Z with Z >= Y; with suffix `a` on exactly X.Y; with `f` on the family of X.Y: the same major
    and an equal or higher minor. PTX for X.Y runs on that and all later devices; with a suffix, where SASS of it does.

    Args:
        image: SM target: `9.0a` or `sm_90a` for SASS, `compute_90` for PTX.
        device: compute capability, `9.0`.

    Returns:
        bool.
    """
    sm = parse_sm_target(image)
    gpu = parse_sm_target(device)
    if sm.suffix == "a":
        return (sm.major, sm.minor) == (gpu.major, gpu.minor)
    if sm.ptx and not sm.suffix:
        return (sm.major, sm.minor) <= (gpu.major, gpu.minor)
    return sm.major == gpu.major and sm.minor <= gpu.minor

def toolkit_supports(cuda_version, sm_target):
    """Whether a toolkit compiles for an SM target.

    Args:
        cuda_version: `13.0`.
        sm_target: `9.0a`.

    Returns:
        bool, or None for a compute capability that is not known here: ask the toolkit.
    """
    major, _, minor = cuda_version.partition(".")
    version = (int(major), int(minor))
    sm = parse_sm_target(sm_target)
    if (sm.major, sm.minor) not in _SINCE:
        return None
    since, until = _SINCE[(sm.major, sm.minor)]
    if version < since or (until and version >= until):
        return False
    if sm.suffix:
        since, first = _SUFFIX_SINCE[sm.suffix]
        return version >= since and sm.major >= first
    return True

def family_members(majors, base, sm_targets):
    """The SM targets that a family takes of a list.

    Args:
        majors: list of int, the major compute capabilities that are its own.
        base: list of SM targets of other majors that it carries too.
        sm_targets: list of SM targets.

    Returns:
        list of SM targets, in ascending order.
    """
    return sorted(
        [sm for sm in sm_targets if sm in base or parse_sm_target(sm).major in majors],
        key = sm_target_key,
    )
