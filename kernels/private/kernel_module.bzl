"""kernel_module: the targets of one module."""

load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("//toolchains/cuda:defs.bzl", "cuda_library", "cuda_object", "cuda_shared_library")
load("//toolchains/cuda:sm_targets.bzl", "sm_name", "sm_target_key")

visibility(["//kernels"])

def kernel_tu(src, hdrs = [], deps = [], copts = [], device_code = True, host_dependent = False):
    """Describes one TU of a module.

    Args:
        src: label of the TU. `.cu` is compiled by nvcc's steps, anything else as ordinary C++.
        hdrs: labels of the headers that it includes itself. An edit to one of them rebuilds this TU.
        deps: `cuda_headers` or `cc_library` targets, whose include directories are searched in this order.
        copts: flags, without include directories and without SM targets.
        device_code: False for a `.cu` that neither has nor launches a kernel: it needs no cubin. The build checks it.
        host_dependent: True if the device code depends on the host CPU: cubins are then made for each.

    Returns:
        struct for `kernel_module(tus = [...])`.
    """
    return struct(
        src = src,
        hdrs = hdrs,
        deps = deps,
        copts = copts,
        device_code = device_code,
        host_dependent = host_dependent,
    )

def _sm_setting(sm_target):
    """The setting that is true where a build asks for an SM target, made once a package."""
    name = "_asks_for_sm_" + sm_target
    if not native.existing_rule(name):
        native.config_setting(
            name = name,
            flag_values = {str(Label("//toolchains/cuda:sm_targets")): sm_target},
        )
    return name

def _stem(src):
    """A TU's name within its module's targets."""
    return src.split("//")[-1].removeprefix(":").replace(":", "/").rpartition(".")[0].replace("/", "_").strip("_")

def kernel_module(name, tus, sm_targets, library_name = None, linkopts = [], fewer_kernels = {}, visibility = None):
    """Declares one module: device code per (TU, SM target), host code per TU, and the shared library.

    Targets (all `manual`, so that a wildcard does not compile kernels):

    - `<name>`: the shared library, with the SM targets that the build asks for
    - `<name>.sm_<target>`: the cubins that a build embeds which asks for the SM target
    - `<name>.hosts`: the host objects
    - `<name>.<tu>.sm_<target>`: the cubin of a TU for an SM target
    - `<name>.<tu>.host`: the host object of a TU

    Args:
        name: the target's name.
        tus: list of `kernel_tu(...)`.
        sm_targets: every SM target that the module can be built for: `["8.0", "9.0a"]`. A build embeds those of them
            that it asks for. A dict gives what is built in place of what is asked for: `{"10.7a": "10.0f"}`.
        library_name: the name that the runtime loads the module by. Default: `name`.
        linkopts: flags for the linker.
        fewer_kernels: why the image of a TU for an SM target may lack kernels that another image of the TU has, by
            `TU SM target`: `{"a/b.cu 7.5": "needs cp.async"}`. Wheels refuse any other image that does.
        visibility: of `<name>`, `<name>.sm_<target>` and `<name>.hosts`.
    """
    images = sm_targets if type(sm_targets) == type({}) else {sm: sm for sm in sm_targets}
    built = sorted({image: None for image in images.values()}, key = sm_target_key)
    cubins = []
    objects = []
    cc_deps = []

    # Host code is compiled with the stub of one target. It must not be the choice of a family, or wheels would not
    # share host objects; 8.0 where it is there, since it ships in most families.
    canonical = "8.0" if "8.0" in built else built[0]
    names = {}
    for tu in tus:
        prefix = "%s.%s" % (name, _stem(str(tu.src)))
        if prefix in names:
            fail("kernel_module %s: %s and %s get the same target name; rename one of the files" % (name, tu.src, names[prefix]))
        names[prefix] = tu.src
        if not str(tu.src).endswith(".cu"):
            cc_library(name = prefix + ".host", srcs = [tu.src] + tu.hdrs, copts = tu.copts, deps = tu.deps, tags = ["manual"])
            cc_deps.append(prefix + ".host")
            continue
        common = dict(src = tu.src, hdrs = tu.hdrs, deps = tu.deps, copts = tu.copts, tags = ["manual"])
        if tu.device_code:
            for sm in built:
                cubin = prefix + "." + sm_name(sm)
                cuda_library(name = cubin, sm_target = sm, host_dependent = tu.host_dependent, **common)
                cubins.append((sm, cubin))
        cuda_object(
            name = prefix + ".host",
            canonical = prefix + "." + sm_name(canonical) if tu.device_code else None,
            sm_targets = built,
            **common
        )
        objects.append(prefix + ".host")

    selected = []
    for asked, image in images.items():
        embedded = [cubin for sm, cubin in cubins if sm == image]
        native.filegroup(name = name + "." + sm_name(asked), srcs = embedded, tags = ["manual"], visibility = visibility)
        selected += select({
            _sm_setting(asked): embedded,
            "//conditions:default": [],
        })
    native.filegroup(name = name + ".hosts", srcs = objects + cc_deps, tags = ["manual"], visibility = visibility)
    cuda_shared_library(
        name = name,
        cubins = selected,
        deps = cc_deps,
        fewer_kernels = fewer_kernels,
        library_name = library_name or name,
        linkopts = linkopts,
        objects = objects,
        sm_targets = built,
        tags = ["manual"],
        visibility = visibility,
    )
