"""kernel_module: the targets of one module."""

load("@rules_cc//cc:cc_library.bzl", "cc_library")
load("//toolchains/cuda:defs.bzl", "cuda_embedded_cubin", "cuda_library", "cuda_object", "cuda_shared_library")
load("//toolchains/cuda:sm_targets.bzl", "sm_name", "sm_target_key")

visibility(["//kernels"])

def kernel_tu(src, hdrs = [], deps = [], copts = [], device_code = True, host_dependent = False, name = None):
    """Describes one TU of a module.

    Args:
        src: label of the TU. `.cu` is compiled by nvcc's steps, anything else as ordinary C++.
        hdrs: labels of the headers that it includes itself. An edit to one of them rebuilds this TU.
        deps: `cuda_headers` or `cc_library` targets, whose include directories are searched in this order.
        copts: flags, without include directories and without SM targets.
        device_code: False for a `.cu` that neither has nor launches a kernel: it needs no cubin. The build checks it.
        host_dependent: True if the device code depends on the host CPU: cubins are then made for each.
        name: the TU's name within its module's targets. Default: made of its path.

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
        name = name or _stem(str(src)),
    )

def embedded_cubin(name, src, sm_target, symbol, kernel, hdrs = [], deps = [], copts = []):
    """Describes a cubin that a module has in its read-only data and loads itself, with the driver's or the runtime's API.

    Args:
        name: an identifier, by which targets and messages call it.
        src: label of a `.cu` with the kernel.
        sm_target: the one SM target that it is for.
        symbol: where host code finds its bytes: `extern "C" const char <symbol>[], <symbol>_end[];`. In a build that does
            not ask for the SM target it finds 64 zeros there, which no driver takes for a cubin.
        kernel: the kernel that host code asks it for. Wheels refuse a cubin that lacks it.
        hdrs: labels of the headers that it includes itself.
        deps: `cuda_headers` or `cc_library` targets, whose include directories are searched in this order.
        copts: flags, without include directories and without SM targets.

    Returns:
        struct for `kernel_module(embedded = [...])`.
    """
    return struct(
        name = name,
        src = src,
        sm_target = sm_target,
        symbol = symbol,
        kernel = kernel,
        hdrs = hdrs,
        deps = deps,
        copts = copts,
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

def _any_setting(name, settings):
    """A setting that is true where one of `settings` is."""
    for i, setting in enumerate(settings[:-1]):
        rest = settings[-1] if i == len(settings) - 2 else "%s_%d" % (name, i + 1)
        native.alias(
            name = "%s_%d" % (name, i) if i else name,
            actual = select({setting: setting, "//conditions:default": rest}),
        )
    return name if len(settings) > 1 else settings[0]

def _stem(src):
    """A TU's name within its module's targets."""
    return src.split("//")[-1].removeprefix(":").replace(":", "/").rpartition(".")[0].replace("/", "_").strip("_")

def kernel_module(
        name,
        tus,
        sm_targets,
        library_name = None,
        linkopts = [],
        embedded = [],
        fewer_kernels = {},
        stubs = [],
        versions = {},
        settings = {},
        tu_prefix = None,
        visibility = None):
    """Declares one module: device code per (TU, SM target), host code per TU, and the shared library.

    Targets (all `manual`, so that a wildcard does not compile kernels):

    - `<name>`: the shared library, with the SM targets that the build asks for
    - `<name>.<tu>.sm_<target>`: the cubin of a TU for an SM target
    - `<name>.<tu>.host`: the host object of a TU
    - `<name>.embedded.<cubin>`: the object with an embedded cubin
    - `<name>.embedded.<cubin>.sm_<target>`: the cubin itself
    - `<name>.cubins.sm_<target>`: the cubins that are embedded where a build asks for an SM target
    - `<name>.hosts`: the host objects

    Args:
        name: the target's name.
        tus: list of `kernel_tu(...)`.
        sm_targets: every SM target that the module can be built for: `["8.0", "9.0a"]`. A build embeds those of them
            that it asks for. A dict gives what is built in place of what is asked for: `{"10.7a": "10.0f"}`.
        library_name: the name that the runtime loads the module by. Default: `name`.
        linkopts: flags for the linker.
        embedded: list of `embedded_cubin(...)`, for SM targets that are built.
        fewer_kernels: why the image of a TU for an SM target may lack kernels that another image of the TU has, by
            `TU SM target`: `{"a/b.cu 7.5": "needs cp.async"}`. Wheels refuse any other image that does.
        stubs: libraries of CUDA that it is linked to: `["//toolchains/cuda:stub_cuda"]`.
        versions: SM targets that are built, by CUDA version, if not all are with every version: `{"12.8": ["8.0"]}`.
        settings: SM target -> config_setting that is true where a build asks for it. Default: made in this package.
        tu_prefix: what the names of the TUs' targets begin with. Default: `<name>.`
        visibility: of `<name>`, `<name>.cubins.sm_<target>` and `<name>.hosts`.
    """
    images = sm_targets if type(sm_targets) == type({}) else {sm: sm for sm in sm_targets}
    built = sorted({image: None for image in images.values()}, key = sm_target_key)
    tu_prefix = name + "." if tu_prefix == None else tu_prefix
    cubins = {sm: [] for sm in built}
    objects = []
    cc_deps = []

    # Host code is compiled with the stub of one target. It must not be the choice of a family, or wheels would not
    # share host objects; 8.0 where it is there, since it ships in most families.
    canonical = {version: "8.0" if "8.0" in of_version else of_version[0] for version, of_version in versions.items() if of_version}
    default = "8.0" if "8.0" in built else built[0] if built else None
    if len({sm: None for sm in canonical.values()}) == 1:
        default = canonical.values()[0]
    has_device_code = bool(embedded) or bool([tu for tu in tus if tu.device_code and str(tu.src).endswith(".cu")])
    names = {}
    for tu in tus:
        prefix = tu_prefix + tu.name
        if prefix in names:
            fail("kernel_module %s: %s and %s get the same target name; rename one of the files" % (name, tu.src, names[prefix]))
        names[prefix] = tu.src
        if not str(tu.src).endswith(".cu"):
            # As textual headers, whatever their extension: .cuh is none of C++.
            cc_library(name = prefix + ".host", srcs = [tu.src], copts = tu.copts, textual_hdrs = tu.hdrs, deps = tu.deps, tags = ["manual"])
            cc_deps.append(prefix + ".host")
            continue
        common = dict(src = tu.src, hdrs = tu.hdrs, deps = tu.deps, copts = tu.copts, tags = ["manual"])
        canonical_cubin = None
        if tu.device_code:
            for sm in built:
                cubin = prefix + "." + sm_name(sm)
                cuda_library(name = cubin, sm_target = sm, host_dependent = tu.host_dependent, **common)
                cubins[sm].append(cubin)
            canonical_cubin = _by_version(
                {version: prefix + "." + sm_name(sm) for version, sm in canonical.items() if sm != default},
                prefix + "." + sm_name(default),
            )
        cuda_object(
            name = prefix + ".host",
            canonical = canonical_cubin,
            sm_targets = built,
            **common
        )
        objects.append(prefix + ".host")

    embedded_cubins = {sm: [] for sm in built}
    embedded_objects = {sm: [] for sm in built}
    for e in embedded:
        if e.sm_target not in built:
            fail("kernel_module %s: embedded cubin %s is for SM target %s; expected one of %s, for which the module is built" % (name, e.name, e.sm_target, ", ".join(built)))
        prefix = tu_prefix + "embedded." + e.name
        cubin = prefix + "." + sm_name(e.sm_target)
        cuda_library(name = cubin, src = e.src, hdrs = e.hdrs, deps = e.deps, copts = e.copts, sm_target = e.sm_target, tags = ["manual"])
        cuda_embedded_cubin(name = prefix, cubin = cubin, cubin_name = e.name, kernel = e.kernel, symbol = e.symbol, tags = ["manual"])
        cuda_embedded_cubin(name = prefix + ".absent", cubin_name = e.name, kernel = e.kernel, symbol = e.symbol, tags = ["manual"])
        embedded_cubins[e.sm_target].append(cubin)
        embedded_objects[e.sm_target].append(prefix)

    selected = []
    selected_embedded = []
    for sm in built if has_device_code else []:
        asking = [settings.get(asked) or _sm_setting(asked) for asked, image in images.items() if image == sm]
        asked = _any_setting("_asks_for_image_%s_of_%s" % (sm, name), asking)
        selected += select({asked: cubins[sm], "//conditions:default": []})
        if embedded_objects[sm]:
            selected_embedded += select({
                asked: embedded_objects[sm],
                "//conditions:default": [object + ".absent" for object in embedded_objects[sm]],
            })
    for asked, image in images.items():
        native.filegroup(name = "%s.cubins.%s" % (name, sm_name(asked)), srcs = cubins[image] + embedded_cubins[image], tags = ["manual"], visibility = visibility)
    native.filegroup(name = name + ".hosts", srcs = objects + cc_deps, tags = ["manual"], visibility = visibility)
    cuda_shared_library(
        name = name,
        cubins = selected,
        deps = cc_deps,
        embedded = selected_embedded,
        fewer_kernels = fewer_kernels,
        library_name = library_name or name,
        linkopts = linkopts,
        objects = objects,
        # What has no device code has no image for any GPU, and lacks none.
        sm_targets = _by_version({version: sms for version, sms in versions.items() if sms != built}, built) if has_device_code else [],
        stubs = stubs,
        tags = ["manual"],
        visibility = visibility,
    )

def _by_version(by_version, default):
    """A value that depends on the CUDA version: `by_version`, else `default`."""
    if not by_version:
        return default
    return select({Label("//toolchains/cuda:is_" + version): value for version, value in by_version.items()} | {"//conditions:default": default})
