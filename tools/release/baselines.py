"""Writes the baselines of wheels: their size reports as they are now, to which growth limits refer.

    python3 tools/release/baselines.py [--flag=--disk_cache=DIR] cu130_aarch64_sm12x...

A name may be that of a group, such as cu130. The wheels are built, and wheels/baselines/<wheel>.json is replaced. Do it
after a release, or when a growth is meant: the diff shows what grew.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path

from files import replace_file

_ROOT = Path(__file__).resolve().parents[2]
_BASELINES = _ROOT / "wheels/baselines"


def _bazel(*arguments: str) -> str:
    """What a Bazel command prints; exits with what it said if it fails."""
    result = subprocess.run([_ROOT / "bazelw", *arguments], cwd=_ROOT, stdout=subprocess.PIPE, text=True)
    if result.returncode:
        sys.exit(f"error: bazelw {' '.join(arguments)} failed; what it said is above. No baseline was written.")
    return result.stdout


def main() -> None:
    """Runs the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--flag", action="append", default=[], help="of Bazel's build command")
    parser.add_argument("wheel", nargs="+")
    args = parser.parse_args()
    wheels = f'kind("py_wheel", deps({" + ".join(f"//wheels:{name}" for name in args.wheel)}, 1))'
    names = _bazel("query", wheels).split()
    # A wheel that has outgrown its old baseline fails its validation.
    report = ["--output_groups=report", "--norun_validations"]
    _bazel("build", *args.flag, *report, *names)
    root = Path(_bazel("info", "execution_root").strip())
    files = _bazel("cquery", *args.flag, *report, " + ".join(names), "--output=files").split()
    for file in files:
        if file.endswith(".report.json"):
            target = _BASELINES / (Path(file).name.removesuffix(".report.json") + ".json")
            replace_file(target, (root / file).read_text())
            print(target.relative_to(_ROOT))


if __name__ == "__main__":
    main()
