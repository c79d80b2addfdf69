"""Writes the GitHub workflow of a release from the resolved matrix. Needs PyYAML.

    workflow.py --matrix MATRIX.json --output WORKFLOW.yml [--check]

Same matrix, same bytes. With --check nothing is written: it fails if the file is not what would be written.
"""

from __future__ import annotations

import argparse
import difflib
import sys
from pathlib import Path
from typing import Any

import yaml

sys.path.append(str(Path(__file__).resolve().parents[1] / "wheel"))

from files import replace_file
from wheel_set import ARTIFACT_PREFIX, Matrix, MatrixError, read_matrix

REFRESH = (
    "./bazelw build //wheels:matrix.json && $(tests/environment)/bin/python tools/release/workflow.py"
    " --matrix bazel-bin/wheels/matrix.json --output .github/workflows/release.yml"
)
_HEAD = f"# Made by the next line, from wheels/matrix.bzl: do not edit.\n# {REFRESH}\n"

# Pinned by commit, since a tag can be moved.
_CHECKOUT = "actions/checkout@3d3c42e5aac5ba805825da76410c181273ba90b1"  # v7.0.1
_UPLOAD_ARTIFACT = "actions/upload-artifact@043fb46d1a93c77aae656e7c1c64a875d1fc6a0a"  # v7.0.1
_DOWNLOAD_ARTIFACT = "actions/download-artifact@3e5f45b2cfb9172054b4087a40e8e0b5a5461e7c"  # v8.0.1

# A job runs in Debian, whose mirror the pinned host compiler comes from (tools/fetch/debian.py): the runner's own apt
# knows none. Privileged, since Docker's default profile forbids the namespaces that bazelw and Bazel's sandbox make.
_MACHINE = {"runs-on": "ubuntu-24.04", "container": {"image": "debian:13", "options": "--privileged"}}

# Scripts get what GitHub knows through the environment alone: text that is pasted into a script would be run.
_TAG = "${{ inputs.tag || github.ref_name }}"

_CHECK_OUT = {
    "name": "Check out the tag",
    "uses": _CHECKOUT,
    "with": {"ref": "refs/tags/${{ env.TAG }}", "persist-credentials": False},
}

# The shared cache's address is a variable, so that a job's `if` can ask for it; without one, Bazel is given none. The
# credential is a secret, and is in no command line.
_CACHE_IS_SET = "vars.SMWHEEL_CACHE != ''"
_CACHE = {"CACHE": "${{ vars.SMWHEEL_CACHE }}"}
_CREDENTIAL = {
    "name": "Give Bazel the cache's credential",
    "env": {"AUTHORIZATION": "${{ secrets.SMWHEEL_CACHE_AUTHORIZATION }}"},
    "run": """\
if [[ -n $AUTHORIZATION ]]; then
  (umask 077 && printf 'common:cache --remote_header="Authorization=%s"\\n' "$AUTHORIZATION" >user.bazelrc)
fi
""",
}
_BUILD = './bazelw build --config=ci --remote_cache="$CACHE" "//wheels:$TARGET"'

# Jobs that were skipped, for want of a cache, are no failure; by default they would skip all that comes after them.
_NOTHING_FAILED = "!failure() && !cancelled()"

_COPY = """\
mkdir dist
./bazelw cquery "//wheels:$TARGET" --output=files | xargs cp -t dist
"""

_TOOLS = """\
apt-get -qq update
apt-get -qq install -y --no-install-recommends ca-certificates gh python3
"""

_CHECK = """\
python3 tools/release/completeness.py --matrix bazel-bin/wheels/matrix.json --artifacts artifacts --sha256sums SHA256SUMS
"""

# GitHub allows several drafts of one tag: uploads to the tag would go to any of them.
_DRAFT = """\
gh api "repos/$GH_REPO/releases" --paginate --jq '.[].tag_name' >tags
if grep -Fqx -e "$TAG" tags; then
  echo "error: there is a release or a draft of $TAG already. If it is a draft: gh release delete $TAG, and run this job again." >&2
  exit 1
fi
gh release create "$TAG" --draft --verify-tag --title "$TAG" --notes "SHA256SUMS has the digest of every wheel."
"""

# One at a time, each with a deadline: uploads in parallel stall, and trip GitHub's secondary rate limit.
_UPLOAD = """\
for file in artifacts/*/*.whl SHA256SUMS; do
  timeout 30m gh release upload "$TAG" "$file"
done
"""

# The digests are those that GitHub computed of what it got.
_VERIFY = """\
{ cat SHA256SUMS; sha256sum SHA256SUMS; } | sort >expected
gh api "repos/$GH_REPO/releases" --paginate --jq '
  .[] | select(.draft and .tag_name == env.TAG) | .assets[] | select(.state == "uploaded")
  | (.digest | ltrimstr("sha256:")) + "  " + .name' | sort >uploaded
if ! diff -U0 --label "what was checked" --label "what GitHub has" expected uploaded; then
  echo "error: the draft of $TAG is not what was checked, and stays a draft: gh release delete $TAG, and run this job again." >&2
  exit 1
fi
"""


def _compile(name: str, entries: list[dict[str, str]], **more: Any) -> dict[str, Any]:
    """A job for each entry, `target` among its keys, that compiles a target of //wheels. `more` goes before the steps."""
    return {
        "name": name,
        **more,
        **_MACHINE,
        "timeout-minutes": 120,
        "strategy": {"fail-fast": False, "matrix": {"include": entries}},
        "env": {"TARGET": "${{ matrix.target }}", **_CACHE},
        "steps": [_CHECK_OUT, _CREDENTIAL, {"name": "Build", "run": _BUILD}],
    }


def workflow(matrix: Matrix) -> dict[str, Any]:
    """The workflow: a job for each part that wheels share, one for each wheel, and one that releases them all or nothing."""
    device = [
        {"target": group.name, "cuda_label": group.cuda_label, "sm_target": group.sm_target}
        for group in matrix.cubin_groups
    ]
    host = [{"target": group.name, "cuda_label": group.cuda_label, "cpu": group.cpu} for group in matrix.host_groups]
    wheels = [{"target": wheel.name, "artifact": wheel.artifact} for wheel in matrix.wheels]
    build = _compile("wheel ${{ matrix.target }}", wheels, needs=["device", "host"], **{"if": _NOTHING_FAILED})
    build["steps"] += [
        {"name": "Copy the wheel", "run": _COPY},
        {
            "name": "Keep the wheel",
            "uses": _UPLOAD_ARTIFACT,
            "with": {
                "name": "${{ matrix.artifact }}",
                "path": "dist/*.whl",
                "if-no-files-found": "error",
                "compression-level": 0,
            },
        },
    ]
    token = {"GH_REPO": "${{ github.repository }}", "GH_TOKEN": "${{ github.token }}"}
    return {
        "name": "release",
        "on": {
            "push": {"tags": ["v*"]},
            "workflow_dispatch": {
                "inputs": {"tag": {"description": "The tag to release", "required": True, "type": "string"}}
            },
        },
        "permissions": {"contents": "read"},
        "concurrency": {"group": f"release-{_TAG}", "cancel-in-progress": False},
        "env": {"TAG": _TAG},
        "defaults": {"run": {"shell": "bash -euo pipefail {0}"}},
        "jobs": {
            "device": _compile(
                "cubins of ${{ matrix.cuda_label }} for SM target ${{ matrix.sm_target }}",
                device,
                **{"if": _CACHE_IS_SET},
            ),
            # After the cubins, with which host stubs are made: beside them, each job would compile a target's cubins again.
            "host": _compile(
                "host objects of ${{ matrix.cuda_label }} for ${{ matrix.cpu }}",
                host,
                needs="device",
                **{"if": _CACHE_IS_SET},
            ),
            "build": build,
            "release": {
                **_MACHINE,
                "needs": "build",
                "if": f"{_NOTHING_FAILED} && needs.build.result == 'success'",
                "timeout-minutes": 350,
                "permissions": {"contents": "write"},
                "steps": [
                    _CHECK_OUT,
                    {"name": "Install gh and Python", "run": _TOOLS},
                    {
                        "name": "Get the wheels",
                        "uses": _DOWNLOAD_ARTIFACT,
                        "with": {"pattern": f"{ARTIFACT_PREFIX}*", "path": "artifacts"},
                    },
                    {"name": "Resolve the matrix", "run": "./bazelw build //wheels:matrix.json"},
                    {"name": "Check that every wheel is there", "run": _CHECK},
                    {"name": "Create a draft", "env": token, "run": _DRAFT},
                    {"name": "Upload", "env": token, "run": _UPLOAD},
                    {"name": "Compare what was uploaded", "env": token, "run": _VERIFY},
                    {"name": "Publish", "env": token, "run": 'gh release edit "$TAG" --draft=false'},
                ],
            },
        },
    }


class _Dumper(yaml.SafeDumper):
    """Scripts as blocks, every other text on one line, and no references from one part to another."""

    def ignore_aliases(self, data: object) -> bool:
        return True


def _text(dumper: _Dumper, value: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", value, style="|" if "\n" in value else None)


_Dumper.add_representer(str, _text)


def render(matrix: Matrix) -> str:
    """The text of the workflow's file."""
    return _HEAD + yaml.dump(workflow(matrix), Dumper=_Dumper, sort_keys=False, width=1000)


def difference(path: Path, text: str) -> str | None:
    """The message that `path` does not have the content `text`, with a unified diff, or None."""
    found = path.read_text(encoding="utf-8") if path.is_file() else None
    if found == text:
        return None
    diff = difflib.unified_diff((found or "").splitlines(), text.splitlines(), "found", "expected", lineterm="")
    return "\n".join(
        [
            f"{path} is not the workflow of the matrix." if found is not None else f"{path} is missing.",
            *diff,
            f"  To do: {REFRESH}",
        ]
    )


def main() -> int:
    """Runs the command line; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--matrix", type=Path, required=True, help="//wheels:matrix.json")
    parser.add_argument("--output", type=Path, required=True, help="the workflow's file")
    parser.add_argument("--check", action="store_true", help="fail if the file is not current; write nothing")
    args = parser.parse_args()
    try:
        text = render(read_matrix(args.matrix))
    except MatrixError as error:
        print(f"error: {error}", file=sys.stderr)
        return 1
    if not args.check:
        replace_file(args.output, text)
    elif message := difference(args.output, text):
        print(f"error: {message}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
