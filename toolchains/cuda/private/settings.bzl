"""The build settings of the CUDA rules, and the transitions that make device code shared.

A wheel sets the platform, the CUDA version, the SM targets and how fatbins are compressed. Device code depends on the version only, host code on
the platform and the version only; so their rules reset the rest to constants. All wheels then name the same configured
target, and Bazel runs its actions once.
"""

visibility(["//toolchains/cuda/...", "//wheels/..."])

VERSION = "//toolchains/cuda:version"
SM_TARGETS = "//toolchains/cuda:sm_targets"
FATBIN_COMPRESSION = "//toolchains/cuda:fatbin_compression"
PLATFORMS = "//command_line_option:platforms"

# The platform that device code is preprocessed on. It must be one constant: a wheel's own CPU would split the cubins.
_DEVICE_PLATFORM = str(Label("//toolchains/cc:x86_64_linux"))

device_transition = transition(
    implementation = lambda settings, attr: {
        PLATFORMS: settings[PLATFORMS] if attr.host_dependent else [_DEVICE_PLATFORM],
        SM_TARGETS: [],
        FATBIN_COMPRESSION: "",
    },
    inputs = [PLATFORMS],
    outputs = [PLATFORMS, SM_TARGETS, FATBIN_COMPRESSION],
)

host_transition = transition(
    implementation = lambda _settings, _attr: {SM_TARGETS: [], FATBIN_COMPRESSION: ""},
    inputs = [],
    outputs = [SM_TARGETS, FATBIN_COMPRESSION],
)

def _version_setting_impl(ctx):
    if ctx.build_setting_value not in ctx.attr.versions:
        fail(("there is no toolkit of CUDA '%s'.\n  expected: one of %s\n  found: %s=%s\n" +
              "  To do: choose one of these, or add the toolkit to toolchains/cuda/private/toolkits.bzl.") %
             (ctx.build_setting_value, ", ".join(ctx.attr.versions), ctx.label, ctx.build_setting_value))
    return []

version_setting = rule(
    implementation = _version_setting_impl,
    doc = "A flag whose value is one of the toolkits' versions.",
    attrs = {"versions": attr.string_list(mandatory = True, doc = "The versions that there are.")},
    build_setting = config.string(flag = True),
)

string_list_setting = rule(
    implementation = lambda _ctx: [],
    doc = "A flag whose value is a comma-separated list of strings.",
    build_setting = config.string_list(flag = True),
)

FatbinCompressionInfo = provider(
    doc = "How the images in fatbins are compressed.",
    fields = {"mode": "string: fatbinary's --compress-mode, or empty for what the TUs' own flags say"},
)

# nvcc's manual, "--compress-mode". `default` is left out: it is another mode in every toolkit.
COMPRESSION_MODES = ["", "none", "speed", "balance", "size"]

def _fatbin_compression_setting_impl(ctx):
    if ctx.build_setting_value not in COMPRESSION_MODES:
        fail("%s: expected one of %s, or nothing for what the TUs' flags say; found '%s'. To do: choose one of these." %
             (ctx.label, ", ".join(COMPRESSION_MODES[1:]), ctx.build_setting_value))
    return [FatbinCompressionInfo(mode = ctx.build_setting_value)]

fatbin_compression_setting = rule(
    implementation = _fatbin_compression_setting_impl,
    doc = "A flag whose value is a mode of fatbinary's --compress-mode, or empty.",
    build_setting = config.string(flag = True),
)
