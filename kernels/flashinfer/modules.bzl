"""Modules of FlashInfer, from the description that importer.py wrote of them."""

load("@flashinfer//:matrix.bzl", "sm_targets_of_label")
load("@flashinfer//:modules.bzl", _BY_LABEL = "MODULES")
load("//kernels:defs.bzl", "kernel_module", "kernel_tu")
load("//toolchains/cuda:sm_targets.bzl", "parse_sm_target", "runs_on")

def _images(asked, built):
    """For each SM target that a cell asks for, the one that upstream builds for it, if any.

    Upstream builds 10.0f in place of 10.7a for modules whose CUTLASS has no 10.7 (map_sm107_to_100f in
    flashinfer/compilation_context.py): what it builds and nobody asked for stands in.
    """
    images = {}
    for sm in asked:
        device = parse_sm_target(sm)
        standing_in = [b for b in built if b not in asked and runs_on(b, "%d.%d" % (device.major, device.minor))]
        if sm in built:
            images[sm] = sm
        elif standing_in:
            images[sm] = standing_in[0]
    return images

def _merge(by_label):
    """The modules of all CUDA labels. The TUs of a module are the same for every label that has it."""
    merged = {}
    for label, modules in by_label.items():
        for name, module in modules.items():
            entry = merged.setdefault(name, struct(tus = module["tus"], linkopts = module["linkopts"], images = {}))
            if entry.tus != module["tus"] or entry.linkopts != module["linkopts"]:
                fail("module %s of FlashInfer has other sources or flags for %s than for %s" % (name, label, ", ".join(entry.images)))
            entry.images[label] = _images(sm_targets_of_label(label), module["sm_targets"])
    return merged

# Name -> struct: tus, linkopts, images (CUDA label -> SM target asked for -> SM target built).
MODULES = _merge(_BY_LABEL)

def modules_for(cuda_label, sm_targets):
    """The modules of a wheel.

    Args:
        cuda_label: `cu130`.
        sm_targets: list of SM targets that the wheel asks for.

    Returns:
        list of labels: the modules that have an image for at least one of them.
    """
    return [
        "//kernels/flashinfer:" + name
        for name, module in MODULES.items()
        if [sm for sm in module.images.get(cuda_label, {}) if sm in sm_targets]
    ]

def flashinfer_tu(tu):
    """Describes one TU for `kernel_module`, from its entry in @flashinfer//:modules.bzl."""
    return kernel_tu(
        src = "@flashinfer//:" + tu["src"],
        hdrs = ["@flashinfer//:" + h for h in tu["hdrs"]],
        # The order is that of upstream's command line (flashinfer/jit/cpp_ext.py).
        deps = ["@flashinfer//:includes/" + d for d in tu["includes"]] +
               ["@flashinfer_sources//:" + t for t in tu["third_party"] if t == "cccl"] +
               ["//toolchains/cuda:" + c for c in tu["toolkit_components"]] +
               ["@tvm_ffi//:headers", "@flashinfer//:first_party"] +
               ["@flashinfer_sources//:" + t for t in tu["third_party"] if t != "cccl"],
        copts = tu["copts"],
        device_code = tu["device_code"],
    )

def flashinfer_module(name, module):
    """Declares one module.

    Args:
        name: the module's name, by which FlashInfer loads it.
        module: its entry in MODULES.
    """
    sm_targets = {}
    for images in module.images.values():
        sm_targets |= images
    kernel_module(
        name = name,
        linkopts = module.linkopts,
        sm_targets = sm_targets,
        tus = [flashinfer_tu(tu) for tu in module.tus],
        visibility = ["//visibility:public"],
    )
