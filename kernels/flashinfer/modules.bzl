"""Which modules of FlashInfer there are, and what a wheel takes of them."""

load("@flashinfer//:core.bzl", _CORE = "MODULES")
load("@flashinfer//:index.bzl", "NOT_BUILT", "SM_TARGETS", _INDEX = "MODULES")
load("@flashinfer//:matrix.bzl", "CUDA_VERSIONS")
load(":module.bzl", "flashinfer_module", "images_of")

# Name -> description of a module of the core profile: tus, linkopts, sm_targets.
MODULES = _CORE

# CUDA label -> for each of SM_TARGETS the SM targets asked for of which a module with these has an image. They are few.
_ASKED = {
    label: [images_of(label, built).keys() for built in SM_TARGETS]
    for label in CUDA_VERSIONS
}

def _target(name, package, part = ""):
    return str(Label("@flashinfer//modules/%s:%s%s" % (package, name, part)) if package else Label("//kernels/flashinfer:%s%s" % (name, part)))

def modules_for(cuda_label, sm_targets, part = ""):
    """The modules of a wheel, or parts of them, of those that the build asks for with --//kernels:modules.

    Args:
        cuda_label: `cu130`.
        sm_targets: list of SM targets that the wheel asks for.
        part: `.hosts`, or `.cubins.sm_90a`, which modules of host code only do not have. Default: whole modules.

    Returns:
        labels: the modules that have an image for at least one of them, or host code only.
    """
    wanted = [
        (not built and not part.startswith(".cubins")) or bool([sm for sm in asked if sm in sm_targets])
        for asked, built in zip(_ASKED[cuda_label], SM_TARGETS)
    ]
    chosen = {}
    for name, by_label in _INDEX.items():
        package, number = by_label.get(cuda_label, (None, None))
        if package != None and wanted[number]:
            chosen[name] = _target(name, package, part)
    modules = select({
        Label("//kernels/flashinfer:_all_modules"): chosen.values(),
        "//conditions:default": [],
    })
    for name, target in chosen.items():
        modules += select({
            Label("//kernels/flashinfer:_only_" + name): [target],
            "//conditions:default": [],
        })
    return modules

def not_built_for(cuda_label):
    """The modules of the profile that can't be built for a CUDA label: a dict of name -> reason."""
    return NOT_BUILT[cuda_label]

def declare_modules(name = "flashinfer"):
    """Declares the modules of the core profile, and an alias of every other one that the profile has.

    Args:
        name: not used; that of the macro's targets are the modules'.
    """
    for module, description in _CORE.items():
        flashinfer_module(name = module, own_package = False, **description)
    for module, by_label in _INDEX.items():
        native.config_setting(
            name = "_only_" + module,
            flag_values = {"//kernels:modules": module},
        )
        packages = {label: package for label, (package, _) in by_label.items()}
        targets = {label: _target(module, package) for label, package in packages.items()}
        if module in _CORE:
            continue
        main = _target(module, module) if module in packages.values() else targets.values()[0]
        others = {
            Label("//toolchains/cuda:is_" + CUDA_VERSIONS[label]): target
            for label, target in targets.items()
            if target != main
        }
        native.alias(
            name = module,
            actual = select(others | {"//conditions:default": main}) if others else main,
            tags = ["manual"],
            visibility = ["//visibility:public"],
        )
