"""sm_targets_test: the Starlark algebra of SM targets, on the cases that the Python one is tested on."""

load("@rules_python//python:py_test.bzl", "py_test")
load("//toolchains/cuda:sm_targets.bzl", "DEVICES", "family_members", "parse_sm_target", "runs_on", "sm_target_key", "toolkit_supports")

def _failures(cases):
    """What is not as the cases say, a line each."""
    found = []
    for text, name in cases["names"].items():
        if parse_sm_target(text).name != name:
            found.append("%s is parsed as %s, not %s" % (text, parse_sm_target(text).name, name))
    for text in cases["invalid"]:
        if parse_sm_target(text, or_none = True):
            found.append("%r is parsed as %s" % (text, parse_sm_target(text).name))
    in_order = sorted(reversed(cases["sorted"]), key = sm_target_key)
    if in_order != cases["sorted"]:
        found.append("sorted: %s" % in_order)
    for image, device, expected in cases["runs_on"]:
        if runs_on(image, device) != expected:
            found.append("runs_on(%s, %s) is not %s" % (image, device, expected))
    for cuda, sm, expected in cases["toolkit_supports"]:
        if toolkit_supports(cuda, sm) != expected:
            found.append("toolkit_supports(%s, %s) is not %s" % (cuda, sm, expected))
    for cuda, supported in cases["toolkits"].items():
        every = [c + suffix for c in cases["compute_capabilities"] for suffix in ["", "a", "f"]]
        if [sm for sm in every if toolkit_supports(cuda, sm)] != supported:
            found.append("toolkit_supports(%s, ...) is true for %s" % (cuda, [sm for sm in every if toolkit_supports(cuda, sm)]))
    if DEVICES != cases["devices"]:
        found.append("DEVICES: %s" % DEVICES)
    for majors, base, sm_targets, expected in cases["family_members"]:
        if family_members(majors, base, sm_targets) != expected:
            found.append("family_members(%s, %s, %s) is not %s" % (majors, base, sm_targets, expected))
    return found

def _script_impl(ctx):
    program = ctx.actions.declare_file(ctx.label.name + ".py")
    ctx.actions.write(program, "import sys\n\nsys.exit(%r or None)\n" % "\n".join(ctx.attr.failures))
    return [DefaultInfo(files = depset([program]))]

_script = rule(
    implementation = _script_impl,
    attrs = {"failures": attr.string_list()},
)

def sm_targets_test(name, cases):
    """Declares a test that fails with every case that is not as it should be.

    Args:
        name: the test's name.
        cases: dict, what is in cases.json.
    """
    _script(
        name = name + "_script",
        failures = _failures(cases) or ([] if cases["runs_on"] else ["there are no cases"]),
        testonly = True,
    )
    py_test(
        name = name,
        size = "small",
        srcs = [":" + name + "_script"],
        main = name + "_script.py",
    )
