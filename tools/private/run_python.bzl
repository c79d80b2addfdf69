"""run_python and execute_python: Python programs as build actions, and in repository rules."""

visibility(["//tools"])

# Not the person's environment, site packages or byte code.
_ISOLATED = ["-E", "-s", "-B"]

def run_python(ctx, *, program, arguments, inputs, outputs, **kwargs):
    """Runs a Python program as a build action.

    It runs on the Python that is there, 3.10 or newer. Paths of outputs are stripped of the configuration's name, in
    inputs and command lines alike, so that cache keys do not depend on how a target was reached.

    Args:
        ctx: the rule context.
        program: File, the program.
        arguments: list of Args.
        inputs: depset of Files; the program itself is added.
        outputs: list of Files.
        **kwargs: of ctx.actions.run.
    """
    interpreter = ctx.actions.args()
    interpreter.add_all(_ISOLATED)
    interpreter.add(program)
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = [interpreter] + arguments,
        inputs = depset([program], transitive = [inputs]),
        outputs = outputs,
        execution_requirements = {"supports-path-mapping": "1"},
        **kwargs
    )

def execute_python(rctx, program, arguments):
    """Runs a Python program in a repository rule, which fails with what it said if it does.

    Args:
        rctx: the repository context.
        program: label of the program; the rule runs again when it changes.
        arguments: list of strings and paths.
    """
    python = rctx.which("python3")
    if not python:
        fail("%s: no python3 on PATH. Install Python 3.10 or newer, with pip." % rctx.name)
    result = rctx.execute([python] + _ISOLATED + [rctx.path(program)] + arguments, timeout = 3600)
    if result.return_code:
        fail("%s: %s" % (rctx.name, (result.stderr or result.stdout).strip()))
