"""The flag that names the modules to build, and the lists of modules."""

visibility(["//kernels", "//kernels/flashinfer"])

AskedModulesInfo = provider(
    doc = "The modules that the build asks for.",
    fields = {"names": "list of strings; empty for all"},
)

modules_setting = rule(
    implementation = lambda ctx: [AskedModulesInfo(names = ctx.build_setting_value)],
    doc = "A flag whose value is a comma-separated list of modules, empty for all.",
    build_setting = config.string_list(flag = True),
)

def _asked_modules_impl(ctx):
    names = ctx.attr.setting[AskedModulesInfo].names
    for name in names:
        if name in ctx.attr.known:
            continue
        reason = ctx.attr.others.get(name)
        if reason:
            fail(("%s=%s: FlashInfer's module '%s' is not built here: %s.\n" +
                  "  expected: modules that are `built` in //kernels:modules.<label>.txt\n  To do: %s.") %
                 (ctx.attr.setting.label, ",".join(names), name, reason, "add --config=full" if reason.startswith("not in profile") else "leave the name out; docs/modules.md says more"))
        fail(("%s=%s: FlashInfer has no module '%s'.\n" +
              "  expected: names of //kernels:modules.<label>.txt, separated by commas\n  To do: correct the name, or leave it out.") %
             (ctx.attr.setting.label, ",".join(names), name))
    return [config_common.FeatureFlagInfo(value = "some" if names else "all")]

asked_modules = rule(
    implementation = _asked_modules_impl,
    doc = """Whether the build asks for `all` modules or for `some`, for config_setting's flag_values.

Errors: a name that no module has, or that none of the profile has.""",
    attrs = {
        "known": attr.string_list(doc = "The modules that there are."),
        "others": attr.string_dict(doc = "Modules that upstream has besides -> why they are not built."),
        "setting": attr.label(mandatory = True, providers = [AskedModulesInfo], doc = "The flag."),
    },
)

def _module_list_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.symlink(output = out, target_file = ctx.file.src)
    return [DefaultInfo(files = depset([out]))]

module_list = rule(
    implementation = _module_list_impl,
    doc = "A file of an external repository as an output of this package.",
    attrs = {"src": attr.label(mandatory = True, allow_single_file = True, doc = "The file.")},
)
