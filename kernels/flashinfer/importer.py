"""Describes FlashInfer's modules for Bazel, from what upstream.py found for each CUDA label.

Writes OUT/BUILD.bazel, a package OUT/modules/<name>/ for every module that a profile names (but for those of the core
profile, which are in OUT/core.bzl), OUT/index.bzl, OUT/<label>/modules.json and OUT/modules.<label>.txt, and takes over
the sources that upstream rendered. Run it with `python3 -B`; see --help.
"""

from __future__ import annotations

import argparse
import filecmp
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from include_scan import ScanError, Trees, scan
from provided import SETTINGS, TREES, Provided, ProvidedError, add_options, copy_headers, find_provided

# Trees of sources that upstream renders or takes from NVIDIA's cubin server, and those that lie beside its Python code. They
# are no include directories.
RENDERED = ("generated", "cached_ops", "cubins")
PACKAGE = "package"

# File names that Bazel makes of a module's or a TU's name end in at most this many more characters.
_LONGEST_SUFFIX = len(".sm_120f.canonical.stub.c")
_LONGEST_NAME = 255  # NAME_MAX of Linux's file systems

_PROVIDED = tuple(f"{tree}/" for tree in TREES)

Json = dict[str, Any]


class ImporterError(Exception):
    """Upstream's modules, the profile or the command line are not as expected."""


@dataclass(frozen=True)
class TranslationUnit:
    """One source of a module; files are named `csrc/…`, `include/…`, `generated/…`, `cached_ops/…` or `package/…`.

    includes: directories of the module's own, searched before CCCL's; late_includes: after them.
    """

    src: str
    lang: str
    device_code: bool
    copts: tuple[str, ...]
    includes: tuple[str, ...]
    hdrs: tuple[str, ...]
    third_party: tuple[str, ...]
    toolkit_components: tuple[str, ...]
    late_includes: tuple[str, ...] = ()


@dataclass(frozen=True)
class EmbeddedCubin:
    """A cubin that a module has in itself; see upstream.Embedded."""

    name: str
    symbol: str
    kernel: str
    sm_target: str
    tu: TranslationUnit


@dataclass(frozen=True)
class Module:
    """One shared library that FlashInfer's runtime loads by name."""

    sm_targets: tuple[str, ...]
    linkopts: tuple[str, ...]
    tus: tuple[TranslationUnit, ...]
    embedded: tuple[EmbeddedCubin, ...] = ()


@dataclass
class Upstream:
    """What upstream has for one CUDA label: its modules by name, or the reason why one can't be built."""

    directory: Path
    modules: dict[str, Json] = field(default_factory=dict)
    reasons: dict[str, str] = field(default_factory=dict)

    @property
    def names(self) -> list[str]:
        """Of all modules, sorted."""
        return sorted([*self.modules, *self.reasons])


def read_upstream(directory: Path) -> Upstream:
    """Reads what upstream.py wrote; ImporterError if that is not there."""
    try:
        specs = json.loads((directory / "specs.json").read_text(encoding="utf-8"))["modules"]
    except (OSError, ValueError, KeyError) as error:
        raise ImporterError(
            f"--specs {directory}: expected specs.json as upstream.py writes it, found {error!r}"
        ) from error
    upstream = Upstream(directory)
    for spec in specs:
        if spec["reason"]:
            upstream.reasons[spec["name"]] = spec["reason"]
        else:
            upstream.modules[spec["name"]] = spec
    return upstream


def read_profile(path: Path) -> tuple[str, ...]:
    """The patterns of module names of a profile; ImporterError if the file has another form."""
    try:
        profile = json.loads(path.read_text(encoding="utf-8"))
        if unknown := sorted(set(profile) - {"about", "modules"}):
            raise ValueError(f"unknown keys {unknown}")
        patterns = profile["modules"]
        if not isinstance(patterns, list) or not all(isinstance(pattern, str) for pattern in patterns):
            raise ValueError(f"modules: {patterns!r}")
        return tuple(patterns)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ImporterError(
            f'profile {path}: expected {{"modules": ["norm", "batch_decode_*", ...]}}, found {error!r}; correct the file'
        ) from error


def select(patterns: Iterable[str], profile: Path, upstreams: Mapping[str, Upstream]) -> frozenset[str]:
    """The names that match a pattern of the profile. ImporterError if a pattern matches none of any label."""
    names = {name for upstream in upstreams.values() for name in upstream.names}
    selected: set[str] = set()
    for pattern in patterns:
        matching = {name for name in names if fnmatchcase(name, pattern)}
        if not matching:
            raise ImporterError(
                f"profile {profile}: pattern {pattern!r} matches no module; expected the name of a module of "
                f"{', '.join(upstreams)}, with * for any characters; take it out or correct it "
                "(--config=full builds all, and //kernels:modules.<label>.txt lists them)"
            )
        selected |= matching
    return frozenset(selected)


@dataclass(frozen=True)
class Deviations:
    """Where what is built is not what upstream says: deviations.json.

    sources: module -> the TUs to add, and the one that they are compiled like.
    fewer_kernels: module -> `TU SM target` -> why its image may lack kernels that others have.
    not_built: pattern of modules' names -> why they can't be built, though upstream builds them.
    """

    sources: Mapping[str, tuple[tuple[str, ...], str]]
    fewer_kernels: Mapping[str, Mapping[str, str]]
    not_built: Mapping[str, str]

    def leave_out(self, upstream: Upstream) -> None:
        """Moves modules that can't be built to those with a reason."""
        for pattern, reason in self.not_built.items():
            for name in [name for name in upstream.modules if fnmatchcase(name, pattern)]:
                del upstream.modules[name]
                upstream.reasons[name] = reason

    def complete(self, name: str, sources: list[Json]) -> list[Json]:
        """The sources of a module with those that upstream's list lacks. ImporterError if that is not so any more."""
        if name not in self.sources:
            return sources
        add, like = self.sources[name]
        model = [source for source in sources if source["src"] == like]
        found = sorted({source["src"] for source in sources} & set(add))
        if len(model) != 1 or found:
            raise ImporterError(
                f"deviations.json: module {name}: expected {like} among upstream's sources and not {', '.join(add)}, found "
                f"{', '.join(source['src'] for source in sources)}; take the module out of the file, or correct it"
            )
        return [*sources, *({**model[0], "src": src} for src in add)]


def read_deviations(path: Path) -> Deviations:
    """Reads deviations.json; ImporterError if the file has another form."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        sources = {name: (tuple(entry["add"]), str(entry["like"])) for name, entry in content["sources"].items()}
        fewer_kernels = {name: dict(entry) for name, entry in content["fewer_kernels"].items()}
        return Deviations(sources, fewer_kernels, dict(content["not_built"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ImporterError(
            f"--deviations {path}: expected sources, fewer_kernels and not_built by module, found {error!r}; correct the file"
        ) from error


class Scanner:
    """Describes TUs. What one was scanned for is remembered: most are the same for every CUDA label."""

    def __init__(self, trees: Trees) -> None:
        self._trees = trees
        self._known: dict[str, TranslationUnit] = {}

    def _path(self, label: str) -> Path:
        root, _, rest = label.partition("/")
        tree = {**self._trees.first_party, **self._trees.third_party}[root]
        return tree / rest if rest else tree

    def describe(self, source: Json) -> TranslationUnit:
        """One TU of upstream's description. ScanError if the scan can't follow an include."""
        key = json.dumps(source)
        if key not in self._known:
            self._known[key] = self._describe(source)
        return self._known[key]

    def _describe(self, source: Json) -> TranslationUnit:
        path = self._path(source["src"])
        directories = [self._path(label) for label in (*source["includes"], *source["late_includes"])]
        closure = scan(path, self._trees, directories, source["copts"])
        lang = "cuda" if path.suffix == ".cu" else "c++"
        return TranslationUnit(
            src=source["src"],
            lang=lang,
            device_code=lang == "cuda" and closure.device_code,
            copts=tuple(source["copts"]),
            includes=tuple(source["includes"]),
            hdrs=closure.headers,
            # What is provided is searched by the modules that name it, and by them alone.
            third_party=tuple(tree for tree in closure.third_party if tree not in TREES),
            toolkit_components=closure.toolkit_components,
            late_includes=tuple(source["late_includes"]),
        )


def describe(
    upstream: Upstream, selected: frozenset[str], scanner: Scanner, deviations: Deviations
) -> dict[str, Module]:
    """The selected modules of one CUDA label that can be built. ImporterError names the one that can't be described."""
    modules = {}
    for name, spec in upstream.modules.items():
        if name in selected:
            try:
                tus = tuple(scanner.describe(source) for source in deviations.complete(name, spec["sources"]))
                embedded = tuple(
                    EmbeddedCubin(c["name"], c["symbol"], c["kernel"], c["sm_target"], scanner.describe(c["source"]))
                    for c in spec["embedded"]
                )
            except ScanError as error:
                raise ImporterError(f"module {name} of {upstream.directory.name}: {error}") from error
            modules[name] = Module(tuple(spec["sm_targets"]), tuple(spec["linkopts"]), tus, embedded)
    return modules


@dataclass(frozen=True)
class Variant:
    """A module as some CUDA labels have it: the same TUs, and embedded cubins, for all of them.

    package: the directory below modules/, or empty for a module of the core profile.
    """

    name: str
    package: str
    linkopts: tuple[str, ...]
    tus: tuple[TranslationUnit, ...]
    sm_targets: dict[str, tuple[str, ...]]
    embedded: tuple[EmbeddedCubin, ...] = ()

    def all_tus(self) -> list[TranslationUnit]:
        """With those of the embedded cubins."""
        return [*self.tus, *(cubin.tu for cubin in self.embedded)]


def merge(by_label: Mapping[str, Mapping[str, Module]], core: frozenset[str]) -> list[Variant]:
    """The modules of all labels, sorted. A module that is another for some labels is a variant for each.

    The variant that the last label has is called as the module; others have a label's name in theirs.
    Raises ImporterError for a module of the core profile with two variants.
    """
    variants: dict[tuple[Any, ...], Variant] = {}
    taken: dict[str, str] = {}
    for label in reversed(list(by_label)):
        for name, module in by_label[label].items():
            key = (name, module.linkopts, module.tus, module.embedded)
            if key not in variants:
                if name in taken and name in core:
                    raise ImporterError(
                        f"module {name} of the core profile has other sources or flags for {label} than for {taken[name]}; "
                        "expected the same for all; take it out of core.json"
                    )
                package = "" if name in core else f"{name}.{label}" if name in taken else name
                variants[key] = Variant(name, package, module.linkopts, module.tus, {}, module.embedded)
                taken.setdefault(name, label)
            variants[key].sm_targets[label] = module.sm_targets
    return sorted(variants.values(), key=lambda variant: (variant.name, variant.package))


def tu_names(variant: Variant) -> list[str]:
    """A short name for each TU, by which its targets are called: of the file, with as much of its path as it takes.

    Raises ImporterError for one that is too long for a file's name.
    """
    paths = [tu.src.rpartition(".")[0].split("/") for tu in variant.tus]
    names = [""] * len(paths)
    length = 1
    while pending := [i for i, name in enumerate(names) if not name]:
        candidates = ["_".join(path[-length:]) for path in paths]
        for i in pending:
            if candidates.count(candidates[i]) == 1 or length >= len(paths[i]):
                names[i] = candidates[i]
        length += 1
    for name in (variant.name, *names, *(f"embedded.{cubin.name}" for cubin in variant.embedded)):
        if len(name) + _LONGEST_SUFFIX > _LONGEST_NAME:
            raise ImporterError(
                f"module {variant.name}: the name {name} has {len(name)} characters, expected at most "
                f"{_LONGEST_NAME - _LONGEST_SUFFIX}, since files are called after it; teach tu_names to shorten it"
            )
    if len(set(names)) != len(names):
        raise ImporterError(f"module {variant.name}: two TUs have the name of {sorted(names)}; expected one each")
    return names


def starlark(value: Any, indent: int = 0) -> str:
    """The Starlark literal of dicts, sequences, strings, ints and bools; keys are sorted."""
    if isinstance(value, (bool, int)):
        return str(value)
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, Mapping):
        opening, closing = "{}"
        items = [f"{starlark(k)}: {starlark(value[k], indent + 4)}" for k in sorted(value)]
    else:
        opening, closing = "[]"
        items = [starlark(item, indent + 4) for item in value]
    lines = "".join(f"{' ' * (indent + 4)}{item},\n" for item in items)
    return f"{opening}\n{lines}{' ' * indent}{closing}" if items else opening + closing


def package_file(variant: Variant, module_bzl: str, deviations: Deviations) -> str:
    """The BUILD file of a module's own package."""
    fewer = deviations.fewer_kernels.get(variant.name, {})
    tus = [{**asdict(tu), "name": name} for tu, name in zip(variant.tus, tu_names(variant), strict=True)]
    embedded = [asdict(cubin) for cubin in variant.embedded]
    return (
        f'load("{module_bzl}", "flashinfer_module")\n\n'
        f"flashinfer_module(\n    name = {starlark(variant.name)},\n"
        f"    embedded = {starlark(embedded, 4)},\n    fewer_kernels = {starlark(fewer, 4)},\n"
        f"    linkopts = {starlark(variant.linkopts, 4)},\n"
        f"    sm_targets = {starlark(variant.sm_targets, 4)},\n    tus = {starlark(tus, 4)},\n)\n"
    )


def root_file(tus: Iterable[TranslationUnit], labels: Iterable[str], defs_bzl: str) -> str:
    """The BUILD file of the sources, the lists, and the include directories that only some modules have."""
    files = {f"modules.{label}.txt" for label in labels}
    directories: set[str] = set()
    for tu in tus:
        files.update((tu.src, *tu.hdrs))
        directories.update((*tu.includes, *tu.late_includes))
    provided = sorted(d for d in directories if d.startswith(_PROVIDED))
    return f"""load("{defs_bzl}", "cuda_headers")

package(default_visibility = ["//visibility:public"])

exports_files({starlark(sorted(files))})

# Directories only: each TU names the headers that it includes.
cuda_headers(name = "first_party", system_includes = ["include", "csrc"])

# Include directories that only some modules have.
[cuda_headers(name = "includes/" + directory, includes = [directory]) for directory in {starlark(sorted(directories.difference(provided)))}]

# The same, of headers that a person provides.
[
    cuda_headers(name = "includes/" + directory, hdrs = [directory.split("/")[0] + "/include"], includes = [directory])
    for directory in {starlark(provided)}
]
"""


def statuses(upstream: Upstream, selected: frozenset[str], profile: str) -> dict[str, str]:
    """For every module of a label `built`, or why it is not."""
    return {
        name: upstream.reasons.get(name) or ("built" if name in selected else f"not in profile {profile}")
        for name in upstream.names
    }


def index_file(
    variants: Iterable[Variant], by_label: Mapping[str, Mapping[str, str]], selected: frozenset[str], profile: str
) -> str:
    """index.bzl: which modules there are, where, and for what. Lists of SM targets are few, and are referred to by number."""
    sets: dict[tuple[str, ...], int] = {}
    modules: dict[str, dict[str, tuple[str, int]]] = {}
    for variant in variants:
        for label, sm_targets in variant.sm_targets.items():
            entry = (variant.package, sets.setdefault(sm_targets, len(sets)))
            modules.setdefault(variant.name, {})[label] = entry
    lines = "".join(f"    {starlark(name)}: {{{_entries(modules[name])}}},\n" for name in sorted(modules))
    not_built = {
        label: {name: status for name, status in by_name.items() if name in selected and status != "built"}
        for label, by_name in by_label.items()
    }
    statuses = {name: status for by_name in by_label.values() for name, status in by_name.items()}
    others = {name: status for name, status in statuses.items() if name not in modules}
    return (
        '"""FlashInfer\'s modules by name, written by kernels/flashinfer/importer.py."""\n\n'
        f"PROFILE = {starlark(profile)}\n\n"
        f"SM_TARGETS = {starlark(list(sets))}\n\n"
        "# Name -> CUDA label -> the module's package below modules/ (empty for one of the core profile), its SM_TARGETS.\n"
        f"MODULES = {{\n{lines}}}\n\n"
        "# CUDA label -> modules of the profile that can't be built -> why.\n"
        f"NOT_BUILT = {starlark(not_built)}\n\n"
        "# Modules of upstream's that are not among MODULES -> why.\n"
        f"OTHERS = {starlark(others)}\n"
    )


def _entries(by_label: Mapping[str, tuple[str, int]]) -> str:
    return ", ".join(
        f"{starlark(label)}: ({starlark(by_label[label][0])}, {by_label[label][1]})" for label in sorted(by_label)
    )


def core_file(variants: Iterable[Variant], deviations: Deviations) -> str:
    """core.bzl: the modules of the core profile, whose targets are in //kernels/flashinfer."""
    modules = {
        variant.name: {
            "embedded": [asdict(cubin) for cubin in variant.embedded],
            "fewer_kernels": deviations.fewer_kernels.get(variant.name, {}),
            "linkopts": variant.linkopts,
            "sm_targets": variant.sm_targets,
            "tus": [asdict(tu) for tu in variant.tus],
        }
        for variant in variants
        if not variant.package
    }
    return (
        '"""The modules of FlashInfer\'s core profile, written by kernels/flashinfer/importer.py."""\n\n'
        f"MODULES = {starlark(modules)}\n"
    )


def take_rendered(upstreams: Iterable[Upstream], stage: Path) -> None:
    """Puts the sources that upstream rendered for all labels into one place; ImporterError if they differ."""
    origin: dict[str, Path] = {}
    for upstream in upstreams:
        for tree in RENDERED:
            for directory, _, files in os.walk(upstream.directory / tree):
                for file in files:
                    path = Path(directory, file)
                    name = str(path.relative_to(upstream.directory))
                    if name not in origin:
                        origin[name] = path
                        (stage / name).parent.mkdir(parents=True, exist_ok=True)
                        shutil.copyfile(path, stage / name)
                    elif not filecmp.cmp(origin[name], path, shallow=False):
                        raise ImporterError(
                            f"upstream renders {name} differently for two CUDA versions ({origin[name]} and {path}); "
                            "expected the same, since modules of all versions share their sources; compare the two"
                        )


def take_provided(
    upstreams: Iterable[Upstream], selected: frozenset[str], provided: Provided, stage: Path
) -> list[str]:
    """Copies the headers that a person provides and a selected module searches; returns the names of their trees."""
    searched = {
        directory
        for upstream in upstreams
        for name, spec in upstream.modules.items()
        if name in selected
        for source in spec["sources"]
        for directory in (*source["includes"], *source["late_includes"])
    }
    trees = [tree for tree in TREES if any(directory.startswith(f"{tree}/") for directory in searched)]
    for tree in trees:
        if tree not in provided.include_dirs:
            raise ImporterError(
                f"modules in --specs search {tree}/include; expected --{tree} as upstream.py was given it"
            )
        copy_headers(tree, provided.include_dirs[tree], stage / tree / "include")
    return trees


def drop_unused(stage: Path, used: frozenset[str]) -> None:
    """Removes the rendered files that no TU reads, and directories that are empty then and no TU searches."""
    for tree in RENDERED:
        for directory, _, files in os.walk(stage / tree, topdown=False):
            for file in files:
                if os.path.relpath(os.path.join(directory, file), stage) not in used:
                    os.unlink(os.path.join(directory, file))
            if not os.listdir(directory) and os.path.relpath(directory, stage) not in used:
                os.rmdir(directory)


def fill(
    stage: Path,
    upstreams: Mapping[str, Upstream],
    profile: Path,
    core: Path,
    deviations: Deviations,
    roots: Mapping[str, Path],
    provided: Provided,
    bzl: tuple[str, str],
) -> None:
    """Writes everything into an empty directory.

    Args:
      roots: `csrc`, `include`, `package` and `third_party`: the directories with that.
      bzl: labels of the .bzl of flashinfer_module and of cuda_headers.
    Raises:
      ImporterError: see the functions above.
    """
    selected = select(read_profile(profile), profile, upstreams)
    core_names = select(read_profile(core), core, upstreams)
    take_rendered(upstreams.values(), stage)
    taken = take_provided(upstreams.values(), selected, provided, stage)
    names = ("cccl", "cutlass", "spdlog")
    third = roots["third_party"]
    dirs = ("cutlass/include", "cutlass/tools/util/include", "cccl/cub", "cccl/libcudacxx/include", "cccl/thrust")
    trees = Trees(
        first_party={
            "csrc": roots["csrc"],
            "include": roots["include"],
            **{tree: stage / tree for tree in RENDERED},
            PACKAGE: roots[PACKAGE],
        },
        third_party={**{name: third / name for name in names}, **{tree: stage / tree for tree in taken}},
        third_party_dirs=tuple(third / path for path in (*dirs, "spdlog/include")),
        unsearched=frozenset({PACKAGE, "cached_ops", "cubins"}),
        followed_dirs=tuple(stage / tree / "include" for tree in taken),
    )
    scanner = Scanner(trees)
    for upstream in upstreams.values():
        deviations.leave_out(upstream)
    modules = {label: describe(upstream, selected, scanner, deviations) for label, upstream in upstreams.items()}
    variants = merge(modules, core_names)
    tus = [tu for variant in variants for tu in variant.all_tus()]
    used = frozenset(path for tu in tus for path in (tu.src, *tu.hdrs, *tu.includes, *tu.late_includes))
    drop_unused(stage, used)
    by_label = {label: statuses(upstream, selected, profile.stem) for label, upstream in upstreams.items()}
    module_bzl, defs_bzl = bzl
    files = {
        "BUILD.bazel": root_file(tus, upstreams, defs_bzl),
        "core.bzl": core_file(variants, deviations),
        "index.bzl": index_file(variants, by_label, selected, profile.stem),
        **{f"modules/{v.package}/BUILD.bazel": package_file(v, module_bzl, deviations) for v in variants if v.package},
    }
    for label, by_name in by_label.items():
        files[f"modules.{label}.txt"] = "".join(f"{name}\t{status}\n" for name, status in by_name.items())
        plain = {name: asdict(module) for name, module in modules[label].items()}
        files[f"{label}/modules.json"] = json.dumps(plain, indent=2, sort_keys=True) + "\n"
    # What an edit of may change the description of a module.
    read = {label for tu in tus for label in (tu.src, *tu.hdrs) if not label.startswith(RENDERED)}
    files["sources.json"] = json.dumps(
        sorted(label.replace(PACKAGE, "flashinfer", 1) if label.startswith(PACKAGE) else label for label in read)
    )
    for name, text in files.items():
        (stage / name).parent.mkdir(parents=True, exist_ok=True)
        (stage / name).write_text(text, encoding="utf-8")


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(description="Describes FlashInfer's modules for Bazel.")

    def path(text: str) -> Path:
        return Path(text).resolve()

    parser.add_argument(
        "--specs", type=path, action="append", required=True, help="upstream.py's --out of a CUDA label"
    )
    for option, text in (
        ("--python-root", "directory that holds the package flashinfer/"),
        ("--first-party", "directory that holds csrc/ and include/"),
        ("--third-party", "directory that holds cutlass/, cccl/ and spdlog/"),
        ("--profile", "JSON file that names the modules to describe"),
        ("--core", "the core profile: JSON file that names the modules that have no package of their own"),
        ("--deviations", "JSON file of where modules are not built as upstream says"),
        ("--out", "directory to write: new or empty"),
    ):
        parser.add_argument(option, type=path, required=True, help=text)
    parser.add_argument("--module-bzl", required=True, help="label of the .bzl that has flashinfer_module")
    parser.add_argument("--defs-bzl", required=True, help="label of the .bzl that has cuda_headers")
    add_options(parser)
    args = parser.parse_args(argv)
    roots = {
        "csrc": (args.first_party / "csrc").resolve(),
        "include": (args.first_party / "include").resolve(),
        PACKAGE: args.python_root / "flashinfer",
        "third_party": args.third_party,
    }
    try:
        if args.out.exists() and any(args.out.iterdir()):
            raise ImporterError(f"--out {args.out}: expected a new or empty directory")
        provided = find_provided(**{option: getattr(args, option) for option in SETTINGS})
        upstreams = {directory.name: read_upstream(directory) for directory in args.specs}
        args.out.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=args.out.parent, prefix=f".{args.out.name}.") as holder:
            stage = Path(holder).resolve() / "out"
            stage.mkdir()
            fill(
                stage,
                upstreams,
                args.profile,
                args.core,
                read_deviations(args.deviations),
                roots,
                provided,
                (args.module_bzl, args.defs_bzl),
            )
            stage.rename(args.out)
    except (ImporterError, ProvidedError, ScanError) as error:
        print(f"importer.py: error: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
