"""Unit tests of fetching pinned Debian packages, with made-up apt and dpkg programs."""

import contextlib
import hashlib
import io
import json
import os
import signal
import stat
import subprocess
import sys
import tempfile
import time
import unittest
from pathlib import Path
from unittest import mock

import debian
from debian import DebianError

# apt-get, apt-cache, apt-config and dpkg-deb, as far as debian.py uses them. What they answer is in
# the JSON file that FAKE_APT names. A package's bytes are "<name> <version>".
FAKE_TOOL = """
import json, os, sys, time
from pathlib import Path
fake = json.loads(Path(os.environ["FAKE_APT"]).read_text())
name, arguments = Path(sys.argv[0]).name, sys.argv[1:]
config = Path(os.environ["APT_CONFIG"]).read_text() if "APT_CONFIG" in os.environ else ""
def fail(step):
    if step in fake["fail"]:
        sys.exit(fake["fail"][step])
if name == "apt-config":
    print('Acquire::http::Proxy "http://proxy:3128";\\nAPT::Default-Release "elsewhere";')
elif name == "apt-cache":
    for package in arguments[2:]:
        if package in fake["packages"]:
            version = fake["packages"][package]
            print(f"Package: {package}\\nVersion: {version}\\nSHA256: sha-of-{version}\\n")
elif name == "apt-get" and arguments[0] == "indextargets":
    print(fake["indextargets"])
elif name == "apt-get" and arguments[-1] == "update":
    Path(os.environ["FAKE_APT"] + ".config").write_text(config)
    sources = next(line for line in config.splitlines() if line.startswith("Dir::Etc::sourcelist"))
    Path(os.environ["FAKE_APT"] + ".sources").write_text(Path(sources.split('"')[1]).read_text())
    fail("update")
elif name == "apt-get":
    for package, version in (pin.split("=") for pin in arguments[2:]):
        if fake["packages"].get(package) != version:
            sys.exit(f"E: Version '{version}' for '{package}' was not found")
        fail("download")
        path = Path(f"{package}_{version.replace(':', '%3a')}_amd64.deb")
        path.write_text(f"{package} {version}")
    if fake["sleep"]:
        Path(os.environ["FAKE_APT"] + ".sleeping").touch()
        time.sleep(fake["sleep"])
elif name == "dpkg-deb":
    fail("unpack")
    package = Path(arguments[1])
    Path(arguments[2], package.name.split("_")[0]).write_text(package.read_text())
"""

VERSIONS = {"gcc-10": "10.2.1-6", "libgmp10": "2:6.2.1"}


def sha256(name: str, version: str) -> str:
    """The sha256 of a package of the made-up mirror."""
    return hashlib.sha256(f"{name} {version}".encode()).hexdigest()


class DebianTest(unittest.TestCase):
    """With the made-up tools as the only ones on PATH."""

    def setUp(self) -> None:
        stack = contextlib.ExitStack()
        self.addCleanup(stack.close)
        self.root = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        self.bin = self.root / "bin"
        self.bin.mkdir()
        for tool in ("apt-get", "apt-cache", "apt-config", "dpkg-deb"):
            (self.bin / tool).write_text(f"#!{sys.executable} -ESs\n{FAKE_TOOL}")
            (self.bin / tool).chmod(0o755)
        self.work = self.root / "work"
        self.work.mkdir()
        self.lock = self.work / "lock.json"
        self.dest = self.work / "tree"
        self.fake = self.root / "fake.json"
        self.mirror()
        self.pin()
        environment = {"PATH": str(self.bin), "FAKE_APT": str(self.fake)}
        stack.enter_context(mock.patch.dict(os.environ, environment))

    def mirror(self, sleep: int = 0, **fail: str) -> None:
        """Sets what the made-up tools answer: where they fail, and with which words."""
        self.fake.write_text(
            json.dumps(
                {
                    "packages": VERSIONS,
                    "fail": fail,
                    "sleep": sleep,
                    "indextargets": "http://mirror/other/\tOther\tmain\tPackages\n"
                    "http://mirror/debian-security/\tDebian\tmain\tPackages\n"
                    "http://mirror/debian/\tDebian\tmain\tPackages",
                }
            )
        )

    def pin(self, **changes: str) -> None:
        """Writes the lock: the mirror's packages, with `changes` to the first one."""
        gcc = {"name": "gcc-10", "version": "10.2.1-6", "sha256": sha256("gcc-10", "10.2.1-6")}
        gmp = {"name": "libgmp10", "version": "2:6.2.1", "sha256": sha256("libgmp10", "2:6.2.1")}
        groups = {"compiler": [gcc | changes], "libraries": [gmp]}
        self.lock.write_text(json.dumps({"suite": "bullseye", "groups": groups}))

    def run_main(self, *arguments: str | Path) -> tuple[int, str, str]:
        """Runs the command line; returns the exit status and what it printed."""
        with (
            contextlib.redirect_stdout(io.StringIO()) as out,
            contextlib.redirect_stderr(io.StringIO()) as err,
        ):
            status = debian.main([str(argument) for argument in arguments])
        return status, out.getvalue(), err.getvalue()

    def fetch(self) -> tuple[int, str, str]:
        return self.run_main("fetch", "--lock", self.lock, "--group", "compiler", "--dest", self.dest)

    def assert_fails(self, result: tuple[int, str, str], *words: str) -> None:
        """The run failed with a message that has `words`, and left nothing but the lock."""
        status, _, message = result
        self.assertEqual(status, 1)
        for word in words:
            self.assertIn(word, message)
        self.assertEqual([path.name for path in self.work.iterdir()], ["lock.json"])


class FetchTest(DebianTest):
    def test_unpacks_each_group_into_its_directory(self) -> None:
        dests = [self.work / "a", self.work / "b/c"]
        dests[0].mkdir()
        compiler = ("--group", "compiler", "--dest", dests[0])
        libraries = ("--group", "libraries", "--dest", dests[1])
        result = self.run_main("fetch", "--lock", self.lock, *compiler, *libraries)
        self.assertEqual(result, (0, "", ""))
        self.assertEqual([path.name for path in dests[0].iterdir()], ["gcc-10"])
        self.assertEqual((dests[1] / "libgmp10").read_text(), "libgmp10 2:6.2.1")
        self.assertEqual({path.name for path in self.work.iterdir()}, {"a", "b", "lock.json"})

    def test_takes_the_mirror_and_the_proxy_of_the_machine_and_nothing_else(self) -> None:
        self.assertEqual(self.fetch()[0], 0)
        sources = Path(f"{self.fake}.sources").read_text()
        self.assertRegex(sources, r"^deb (\[\S+\] )?http://mirror/debian/ bullseye main\n$")
        config = Path(f"{self.fake}.config").read_text()
        self.assertIn('Acquire::http::Proxy "http://proxy:3128";', config)
        self.assertNotIn("Default-Release", config)
        self.assertIn('Dir::State::status "/dev/null";', config)

    def test_no_apt(self) -> None:
        for tool in ("apt-get", "dpkg-deb"):
            (self.bin / tool).unlink()
        result = self.fetch()
        self.assert_fails(result, "no apt-get and no dpkg-deb", "Debian machine", "./bazelw")

    def test_version_gone_from_the_mirror(self) -> None:
        self.pin(version="10.2.1-5")
        self.assert_fails(
            self.fetch(),
            "gcc-10 10.2.1-5 is not on the Debian mirror any more",
            f"expected: 10.2.1-5 in bullseye (pinned in {self.lock})",
            "found:    10.2.1-6",
            f"python3 tools/fetch/debian.py lock --lock {self.lock}",
        )

    def test_package_gone_from_the_mirror(self) -> None:
        self.pin(name="gcc-9")
        self.assert_fails(self.fetch(), "gcc-9 10.2.1-6", "no package of that name")

    def test_sha256_that_does_not_match(self) -> None:
        self.pin(sha256="0" * 64)
        self.assert_fails(
            self.fetch(),
            "gcc-10 10.2.1-6: the mirror served another file than the pinned one",
            f"expected sha256: {'0' * 64} (pinned in {self.lock})",
            f"found sha256:    {sha256('gcc-10', '10.2.1-6')}",
            "If you trust the mirror",
            f"python3 tools/fetch/debian.py lock --lock {self.lock}",
        )

    def test_no_network(self) -> None:
        reason = "W: Failed to fetch http://mirror/debian/InRelease  Could not resolve 'mirror'"
        where = ("apt's own words", reason, "sources.list", "Acquire::http::Proxy", "http_proxy")
        self.mirror(update=f"Reading...\n{reason}")
        self.assert_fails(self.fetch(), "the package index of Debian bullseye", *where)
        self.mirror(download=reason)
        self.assert_fails(self.fetch(), "gcc-10 could not be fetched", *where)

    def test_no_room(self) -> None:
        self.mirror(unpack="dpkg-deb: error: No space left on device")
        self.assert_fails(self.fetch(), "gcc-10 10.2.1-6 could not be unpacked", "No space left")

    def test_never_locked(self) -> None:
        self.pin(version="", sha256="")
        self.assert_fails(self.fetch(), "gcc-10 is not pinned", "debian.py lock --lock")

    def test_group_that_the_lock_has_not(self) -> None:
        result = self.run_main("fetch", "--lock", self.lock, "--group", "x", "--dest", self.dest)
        self.assert_fails(result, "has no group 'x'", "compiler, libraries")

    def test_lock_of_another_shape(self) -> None:
        for text in ("[]", "{", '{"suite": "x"}', '{"suite": "x", "groups": {"a": [{"v": 1}]}}'):
            self.lock.write_text(text)
            self.assert_fails(self.fetch(), str(self.lock), "expected:", "found:", "To do:")

    def test_directory_with_files(self) -> None:
        self.dest.mkdir()
        (self.dest / "mine").touch()
        status, _, message = self.fetch()
        self.assertEqual(status, 1)
        self.assertIn(f"{self.dest} has files already", message)
        self.assertTrue((self.dest / "mine").exists())

    def test_interrupted(self) -> None:
        self.mirror(sleep=60)
        command: list[str | Path] = [sys.executable, debian.__file__, "fetch", "--lock", self.lock]
        command += ["--group", "compiler", "--dest", self.dest]
        with subprocess.Popen(command, start_new_session=True) as process:
            deadline = time.monotonic() + 30
            while not Path(f"{self.fake}.sleeping").exists():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.02)
            os.killpg(process.pid, signal.SIGTERM)
            self.assertNotEqual(process.wait(30), 0)
        self.assertEqual([path.name for path in self.work.iterdir()], ["lock.json"])


class LockTest(DebianTest):
    def test_writes_what_the_suite_has(self) -> None:
        self.pin(version="10.2.1-5")
        status, out, _ = self.run_main("lock", "--lock", self.lock)
        self.assertEqual(status, 0)
        self.assertIn("gcc-10: 10.2.1-5 -> 10.2.1-6", out)
        # Golden: one package a line keeps a refresh readable in review.
        self.assertEqual(
            self.lock.read_text(),
            """\
{
  "suite": "bullseye",
  "component": "main",
  "groups": {
    "compiler": [
      {"name": "gcc-10", "version": "10.2.1-6", "sha256": "sha-of-10.2.1-6"}
    ],
    "libraries": [
      {"name": "libgmp10", "version": "2:6.2.1", "sha256": "sha-of-2:6.2.1"}
    ]
  }
}
""",
        )
        self.assertEqual(stat.S_IMODE(self.lock.stat().st_mode) & 0o400, 0o400)
        _, out, _ = self.run_main("lock", "--lock", self.lock)
        self.assertIn("up to date", out)

    def test_name_alone_is_enough(self) -> None:
        groups = {"a": [{"name": "gcc-10"}]}
        self.lock.write_text(json.dumps({"suite": "bullseye", "groups": groups}))
        self.assertIn("gcc-10: new -> 10.2.1-6", self.run_main("lock", "--lock", self.lock)[1])

    def test_name_that_the_suite_has_not(self) -> None:
        self.pin(name="gcc-x")
        before = self.lock.read_text()
        result = self.run_main("lock", "--lock", self.lock)
        self.assert_fails(result, f"gcc-x (in {self.lock})", "not a package of Debian bullseye")
        self.assertEqual(self.lock.read_text(), before)

    def test_no_network(self) -> None:
        self.mirror(update="E: Temporary failure resolving 'mirror'")
        result = self.run_main("lock", "--lock", self.lock)
        self.assert_fails(result, "the package index", "Temporary failure resolving")


class MirrorTest(DebianTest):
    """The mirror where apt has no index yet, so that its sources files are read."""

    def find(self, **files: str) -> str:
        """The mirror found in an apt directory that holds `files` ("__" is "/", "_" is ".")."""
        self.fake.write_text(json.dumps({"indextargets": "", "fail": {}}))
        for name, text in files.items():
            path = self.root / "apt" / name.replace("__", "/").replace("_", ".")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return debian.find_mirror(self.root / "apt")

    def test_one_line_format(self) -> None:
        text = "# deb http://old/debian x main\ndeb [arch=amd64] http://one/debian/ sid main\n"
        self.assertEqual(self.find(sources_list=text), "http://one/debian/")

    def test_deb822_format(self) -> None:
        text = (
            "Types: deb\nEnabled: no\nURIs: http://off/debian\nSuites: sid\n\n"
            "Types: deb deb-src\nURIs: http://two/security\n  http://two/debian\nSuites: sid\n"
        )
        self.assertEqual(self.find(sources_list_d__a_sources=text), "http://two/debian")

    def test_no_mirror(self) -> None:
        with self.assertRaises(DebianError) as caught:
            self.find(sources_list="deb http://other/ubuntu x main\n", sources_list_d__b_save="")
        for words in ("knows no Debian mirror", "expected:", str(self.root / "apt/sources.list")):
            self.assertIn(words, str(caught.exception))

    def test_no_sources_at_all(self) -> None:
        with self.assertRaisesRegex(DebianError, "there is none"):
            self.find()


if __name__ == "__main__":
    unittest.main()
