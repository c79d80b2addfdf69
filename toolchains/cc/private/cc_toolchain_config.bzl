"""cc_toolchain_config: how Bazel calls the wrappers of the repository @smwheel_gcc."""

load("@rules_cc//cc:action_names.bzl", "ACTION_NAMES", "ALL_CC_COMPILE_ACTION_NAMES", "ALL_CC_LINK_ACTION_NAMES", "ALL_CPP_COMPILE_ACTION_NAMES")
load(
    "@rules_cc//cc:cc_toolchain_config_lib.bzl",
    "action_config",
    "feature",
    "flag_group",
    "flag_set",
    "tool",
    "tool_path",
    "with_feature_set",
)
load("@rules_cc//cc/common:cc_common.bzl", "cc_common")

# Used by the BUILD file of @smwheel_gcc, which no narrower visibility can name.
visibility("public")

_TOOLS = ["ar", "cpp", "ld", "nm", "objcopy", "objdump", "strip"]

def _flags(actions, flags, mode = None):
    """A set of flags for `actions`; only in compilation mode `mode` (a feature's name), if given."""
    return flag_set(
        actions = actions,
        flag_groups = [flag_group(flags = flags)],
        with_features = [with_feature_set(features = [mode])] if mode else [],
    )

def _cc_toolchain_config_impl(ctx):
    cpu = ctx.attr.cpu
    features = [
        feature(name = "dbg"),
        feature(name = "fastbuild"),
        feature(name = "opt"),
        feature(name = "supports_dynamic_linker", enabled = True),
        feature(name = "supports_pic", enabled = True),
        feature(
            name = "default_compile_flags",
            enabled = True,
            flag_sets = [
                _flags(ALL_CC_COMPILE_ACTION_NAMES, ["-Wall", "-fstack-protector-strong", "-fno-omit-frame-pointer"]),
                _flags(ALL_CC_COMPILE_ACTION_NAMES, ["-O2", "-DNDEBUG", "-ffunction-sections", "-fdata-sections"], "opt"),
                _flags(ALL_CC_COMPILE_ACTION_NAMES, ["-g"], "dbg"),
                _flags(ALL_CPP_COMPILE_ACTION_NAMES, ["-std=c++17"]),
            ],
        ),
        feature(
            name = "default_link_flags",
            enabled = True,
            flag_sets = [
                _flags(ALL_CC_LINK_ACTION_NAMES, ["-Wl,--build-id=none", "-Wl,-z,relro,-z,now"]),
                _flags(ALL_CC_LINK_ACTION_NAMES, ["-Wl,--gc-sections"], "opt"),
            ],
        ),
        # After the user's flags, which can't bring the time back in.
        feature(
            name = "unfiltered_compile_flags",
            enabled = True,
            flag_sets = [_flags(ALL_CC_COMPILE_ACTION_NAMES, [
                "-Wno-builtin-macro-redefined",
                "-D__DATE__=\"redacted\"",
                "-D__TIME__=\"redacted\"",
                "-D__TIMESTAMP__=\"redacted\"",
            ])],
        ),
    ]
    return cc_common.create_cc_toolchain_config_info(
        ctx = ctx,
        # The compiler of the toolchain is the C++ driver: nvcc calls it, and links are C++. It would read C as C++.
        action_configs = [action_config(
            action_name = ACTION_NAMES.c_compile,
            enabled = True,
            tools = [tool(tool = ctx.file.gcc)],
        )],
        compiler = "gcc",
        # Relative, as the compiler prints them.
        cxx_builtin_include_directories = ["%workspace%/" + ctx.file.tree.path],
        features = features,
        target_cpu = cpu,
        target_libc = "glibc",
        target_system_name = cpu + "-linux-gnu",
        tool_paths = [tool_path(name = "gcc", path = "bin/%s-linux-gnu-g++" % cpu)] +
                     [tool_path(name = name, path = "bin/%s-linux-gnu-%s" % (cpu, name)) for name in _TOOLS],
        toolchain_identifier = "smwheel_gcc_" + cpu,
    )

cc_toolchain_config = rule(
    implementation = _cc_toolchain_config_impl,
    doc = "The configuration of the C++ toolchain for one target CPU.",
    attrs = {
        "cpu": attr.string(mandatory = True, doc = "The target CPU: `x86_64` or `aarch64`."),
        "gcc": attr.label(mandatory = True, allow_single_file = True, doc = "The C driver."),
        "tree": attr.label(mandatory = True, allow_single_file = True, doc = "The directory with the compiler's headers."),
    },
    provides = [CcToolchainConfigInfo],
)
