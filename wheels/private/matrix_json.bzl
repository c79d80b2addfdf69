"""matrix_json: the resolved matrix as a file, for programs that are not Starlark."""

visibility(["//wheels"])

def _matrix_json_impl(ctx):
    out = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(out, ctx.attr.content)
    return [DefaultInfo(files = depset([out]))]

matrix_json = rule(
    implementation = _matrix_json_impl,
    doc = "Writes the resolved matrix: an object with the limit of an asset and a list of wheels.",
    attrs = {"content": attr.string(mandatory = True, doc = "The text.")},
)
