"""The build settings of the CUDA rules, and the transitions that make device code shared.

A wheel sets the platform, the CUDA version and the SM targets. Device code depends on the version only, host code on
the platform and the version only; so their rules reset the rest to constants. All wheels then name the same configured
target, and Bazel runs its actions once.
"""

visibility(["//toolchains/cuda/...", "//wheels/..."])

VERSION = "//toolchains/cuda:version"
SM_TARGETS = "//toolchains/cuda:sm_targets"
PLATFORMS = "//command_line_option:platforms"

# The platform that device code is preprocessed on. It must be one constant: a wheel's own CPU would split the cubins.
_DEVICE_PLATFORM = str(Label("//toolchains/cc:x86_64_linux"))

device_transition = transition(
    implementation = lambda settings, attr: {
        PLATFORMS: settings[PLATFORMS] if attr.host_dependent else [_DEVICE_PLATFORM],
        SM_TARGETS: [],
    },
    inputs = [PLATFORMS],
    outputs = [PLATFORMS, SM_TARGETS],
)

host_transition = transition(
    implementation = lambda _settings, _attr: {SM_TARGETS: []},
    inputs = [],
    outputs = [SM_TARGETS],
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
