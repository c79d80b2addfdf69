"""`smwheel report`: the page, opened, clicked and typed into in a headless browser."""

from __future__ import annotations

import base64
import json
import os
import random
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from shutil import which
from typing import Any

import pytest
from made_wheels import make_matrix, make_wheel, wheel_name
from selenium import webdriver
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.remote.webelement import WebElement
from size_report import compare, coverage, describe, dump, megabytes
from size_report import report as report_of
from smwheel import cli

BUDGET = 2_000_000
TARGETS = {"sm9x": ["7.5", "8.0", "8.9", "9.0a"], "sm10x": ["8.0", "10.0a", "10.3a"], "sm12x": ["8.0", "12.0f"]}


@pytest.fixture(scope="session")
def chromium() -> tuple[str, str]:
    """Debian's Chromium and its driver, installed if they are missing."""
    if not (which("chromium") and which("chromedriver")):
        install = "apt-get -qq update && apt-get -qq install -y --no-install-recommends chromium chromium-driver fonts-dejavu-core"
        if os.getuid():
            pytest.fail(f"no chromium and chromedriver, which open the page. Run: sudo sh -c {install!r}")
        done = subprocess.run(["sh", "-c", install], capture_output=True, text=True)
        assert done.returncode == 0, f"{install} failed: {done.stdout}{done.stderr}"
    browser, driver = which("chromium"), which("chromedriver")
    assert browser and driver
    return browser, driver


class Page:
    """A page in the browser."""

    def __init__(self, driver: webdriver.Chrome) -> None:
        self.driver = driver

    def open(self, path: Path) -> None:
        """Opens a file."""
        self.driver.get(path.as_uri())

    def all(self, selector: str) -> list[WebElement]:
        """What a CSS selector finds."""
        return self.driver.find_elements(By.CSS_SELECTOR, selector)

    def script(self, text: str, *arguments: Any) -> Any:
        """What a function's body returns."""
        return self.driver.execute_script(text, *arguments)

    def press(self, *keys: str) -> None:
        """Presses keys on what has the focus."""
        for key in keys:
            self.driver.switch_to.active_element.send_keys(key)

    def crumbs(self) -> list[str]:
        """Where the treemap is."""
        return list(self.script("return [...document.querySelectorAll('#crumbs li')].map(item => item.textContent)"))

    def tiles(self) -> list[str]:
        """The names of the treemap's tiles."""
        return list(self.script("return [...document.querySelectorAll('#map .tile')].map(tile => tile.ariaLabel)"))

    def focused(self) -> str:
        """The name of what has the focus."""
        return str(self.driver.switch_to.active_element.get_attribute("aria-label"))

    def tile(self, name: str) -> WebElement:
        """The tile of a name."""
        [tile] = self.all(f"#map .tile[aria-label^='{name},']")
        return tile

    def media(self, scheme: str) -> None:
        """Says whether a person prefers `dark` or `light`."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.fixture(scope="session")
def driver(chromium: tuple[str, str]) -> Iterator[webdriver.Chrome]:
    """The browser, 1280 x 900."""
    options = webdriver.ChromeOptions()
    options.binary_location = chromium[0]
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,900",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(chromium[1]))
    yield driver
    driver.quit()


@pytest.fixture
def page(driver: webdriver.Chrome) -> Iterator[Page]:
    """A page. When the test is over, it had no errors and asked for no file but itself."""
    page = Page(driver)
    page.media("light")
    driver.get_log("browser")  # type: ignore[no-untyped-call]
    driver.get_log("performance")  # type: ignore[no-untyped-call]
    yield page
    assert driver.get_log("browser") == []  # type: ignore[no-untyped-call]
    messages = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]  # type: ignore[no-untyped-call]
    urls = {m["params"]["request"]["url"] for m in messages if m["method"] == "Network.requestWillBeSent"}
    assert all(url.startswith(("file:", "data:")) for url in urls), urls


def modules(family: str, count: int = 12) -> dict[str, dict[str, int]]:
    """Sizes as they are in life: a few modules are large."""
    noise = random.Random(family)
    return {
        f"{kind}_{number:02}": {
            "host": noise.randrange(3000, 9000),
            **{
                sm: int(noise.paretovariate(1.1) * 2500)
                for sm in TARGETS[family]
                if sm == "8.0" or noise.random() < 0.9
            },
        }
        for kind in ("batch_prefill", "gemm", "moe", "norm", "sampling")
        for number in range(count)
    }


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Wheels in dist, baselines in before, matrix.json, and the page."""
    root = tmp_path_factory.mktemp("report")
    for family in TARGETS:
        sizes = modules(family)
        if family != "sm12x":
            make_wheel(root / "before", family, sizes)
        for number, parts in enumerate(sizes.values()):
            if number % 9 == 0:
                last = TARGETS[family][-1]
                parts[last] = parts.get(last, 0) * 2 + 4000
        make_wheel(root / "dist", family, sizes)
    make_matrix(root / "matrix.json", list(TARGETS), ["x86_64"], budget=BUDGET)
    write(root, "page.html", "--baseline", str(root / "before"), "--matrix", str(root / "matrix.json"))
    return root


def write(root: Path, name: str, *options: str, code: int = 0) -> Path:
    """Writes a page with the command line."""
    with pytest.raises(SystemExit) as exited:
        cli.main(["report", str(root / "dist"), "--html", str(root / name), *options])
    assert (exited.value.code or 0) == code
    return root / name


class TestTreemap:
    def test_clicking_zooms(self, page: Page, built: Path) -> None:
        page.open(built / "page.html")
        assert page.crumbs() == ["all wheels"]
        assert len(page.tiles()) == 3
        page.tile("wheel cu130_x86_64_sm9x").click()
        assert page.crumbs() == ["all wheels", "cu130_x86_64_sm9x"]
        names = {name.partition(",")[0] for name in page.tiles()}
        assert names == {"SM target 7.5", "SM target 8.0", "SM target 8.9", "SM target 9.0a", "host code", "the rest"}
        page.tile("SM target 8.0").click()
        assert len(page.tiles()) == 60
        # A module has nothing inside: its sizes are said.
        report = report_of(built / "dist" / wheel_name("sm9x"))
        page.tile("module moe_03").click()
        said = page.all("#said")[0].text
        assert said.startswith(f"module moe_03, {megabytes(report['modules']['moe_03']['8.0'][0])}, ")
        page.all("#crumbs button")[0].click()
        assert page.crumbs() == ["all wheels"]

    def test_the_keyboard_zooms(self, page: Page, built: Path) -> None:
        page.open(built / "page.html")
        page.script("document.querySelector('#map .tile[tabindex=\"0\"]').focus()")
        first = page.focused()
        page.press(Keys.ARROW_RIGHT)
        second = page.focused()
        assert second != first and "wheel " in second
        page.press(Keys.ARROW_LEFT)
        assert page.focused() == first
        page.press(Keys.ENTER)
        assert page.crumbs()[1] in first
        assert page.focused().startswith("SM target")
        page.press(Keys.ARROW_DOWN, Keys.END, Keys.HOME, Keys.SPACE)
        assert len(page.crumbs()) == 3
        target = page.crumbs()[2]
        page.press(Keys.ARROW_RIGHT, Keys.ARROW_DOWN, Keys.ESCAPE)
        # Back on the tile that it came from.
        assert f" {target}," in f" {page.focused()}"
        page.press(Keys.ESCAPE)
        assert page.crumbs() == ["all wheels"] and page.focused() == first
        page.press(Keys.ESCAPE)
        assert page.crumbs() == ["all wheels"]
        # One stop for the Tab key, however many tiles there are.
        assert len(page.all("#map .tile[tabindex='0']")) == 1

    def test_areas_are_bytes(self, page: Page, built: Path) -> None:
        """Tiles fill the map, do not overlap, and are as large as their bytes say."""
        page.open(built / "page.html")
        report = report_of(built / "dist" / wheel_name("sm9x"))
        page.tile("wheel cu130_x86_64_sm9x").click()
        page.tile("SM target 9.0a").click()
        boxes = page.script(
            "return [...document.querySelectorAll('#map .tile')].map(t => [t.getAttribute('aria-label'),"
            " ...['left', 'top', 'width', 'height'].map(k => parseFloat(t.style[k]))])"
        )
        sizes = {name: rows["9.0a"][0] for name, rows in report["modules"].items() if "9.0a" in rows}
        assert len(boxes) == len(sizes)
        for label, _, _, width, height in boxes:
            name = label.partition(",")[0].removeprefix("module ")
            assert width * height / 10_000 == pytest.approx(sizes[name] / sum(sizes.values()), rel=0.01)
        for i, (_, x, y, w, h) in enumerate(boxes):
            assert -0.01 <= x and x + w <= 100.01 and -0.01 <= y and y + h <= 100.01
            for _, a, b, c, d in boxes[:i]:
                assert x + w <= a + 0.01 or a + c <= x + 0.01 or y + h <= b + 0.01 or b + d <= y + 0.01
        # Squarified: the large ones are no stripes.
        ratios = [max(w * 1.9 / h, h / w / 1.9) for _, _, _, w, h in boxes[:20]]
        assert sorted(ratios)[10] < 3

    def test_roles_and_names(self, page: Page, built: Path) -> None:
        page.open(built / "page.html")
        tree = page.driver.execute_cdp_cmd("Accessibility.getFullAXTree", {})["nodes"]
        found = {
            (node["role"]["value"], node.get("name", {}).get("value", ""))
            for node in tree
            if not node.get("ignored") and "role" in node
        }
        for role, name in [
            ("navigation", "Sections"), ("navigation", "Treemap position"), ("main", ""), ("heading", "Coverage"),
            ("heading", "Growth"), ("heading", "Limits"), ("list", "Colours"), ("status", ""),
        ]:  # fmt: skip
            assert (role, name) in found
        assert any(role == "meter" and "of the budget" in name for role, name in found)
        assert any(
            role == "button" and re.fullmatch(r"wheel cu130_x86_64_sm9x, .* of all wheels, zooms in", name)
            for role, name in found
        )
        # No button without a name.
        assert not [role for role, name in found if role == "button" and not name]


class TestLook:
    def contrast(self, page: Page, selector: str) -> float:
        """The least contrast of text on its background (WCAG 2.2, 1.4.3) of what a selector finds."""
        colours = page.script(
            """return [...document.querySelectorAll(arguments[0])].map(e => {
                 let b = e; while (getComputedStyle(b).backgroundColor === 'rgba(0, 0, 0, 0)') b = b.parentElement;
                 return [getComputedStyle(e).color, getComputedStyle(b).backgroundColor]; })""",
            selector,
        )
        assert colours

        def luminance(text: str) -> float:
            channels = [float(value) / 255 for value in re.findall(r"[\d.]+", text)[:3]]
            linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in channels]
            return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

        pairs = [sorted((luminance(text), luminance(back))) for text, back in colours]
        return min((light + 0.05) / (dark + 0.05) for dark, light in pairs)

    @pytest.mark.parametrize("scheme", ["light", "dark"])
    def test_dark_and_light(self, page: Page, built: Path, scheme: str, tmp_path: Path) -> None:
        page.media(scheme)
        page.open(built / "page.html")
        back = page.script("return getComputedStyle(document.body).backgroundColor")
        assert (back == "rgb(255, 255, 255)") == (scheme == "light")
        page.tile("wheel cu130_x86_64_sm9x").click()
        for selector in ("p", "td", "th", "h2", "a", ".tile", ".tile i", "summary", ".bars span"):
            assert self.contrast(page, selector) >= 4.5, selector
        directory = Path(os.environ.get("SMWHEEL_SCREENSHOTS", tmp_path))
        screenshot = directory / f"report-{scheme}.png"
        clip = {"x": 0, "y": 0, "width": 1265, "height": 1350, "scale": 1}
        taken = page.driver.execute_cdp_cmd("Page.captureScreenshot", {"captureBeyondViewport": True, "clip": clip})
        screenshot.write_bytes(base64.b64decode(taken["data"]))
        assert screenshot.read_bytes().startswith(b"\x89PNG") and screenshot.stat().st_size > 20_000

    def test_without_javascript(self, page: Page, built: Path) -> None:
        page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": True})
        try:
            page.open(built / "page.html")
            text = page.all("body")[0].text
        finally:
            page.driver.execute_cdp_cmd("Emulation.setScriptExecutionDisabled", {"value": False})
        for words in ("The treemap needs JavaScript", "cu130_x86_64_sm10x", "headroom", "Growth", "none", "12.0f"):
            assert words in text

    def test_a_narrow_window(self, page: Page, built: Path) -> None:
        page.driver.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride", {"width": 390, "height": 800, "deviceScaleFactor": 1, "mobile": True}
        )
        try:
            page.open(built / "page.html")
            assert page.script("return document.documentElement.scrollWidth") <= 390
        finally:
            page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


class TestTables:
    def test_limits(self, page: Page, built: Path) -> None:
        page.open(built / "page.html")
        rows = [row.text for row in page.all("[aria-labelledby=limits] tbody tr")]
        assert len(rows) == 3
        size = (built / "dist" / wheel_name("sm9x")).stat().st_size
        left = megabytes(BUDGET - size)
        [row] = [row for row in rows if row.startswith("cu130_x86_64_sm9x")]
        for words in (megabytes(size), "2147.5 MB", "of the budget", left, "60 modules"):
            assert words in row

    def test_growth(self, page: Page, built: Path) -> None:
        page.open(built / "page.html")
        text = page.all("[aria-labelledby=growth]")[0].text
        old, new = (report_of(built / where / wheel_name("sm10x")) for where in ("before", "dist"))
        head, *lines = describe(compare(old, new)).splitlines()
        assert head in text
        assert all(line.strip() in text for line in lines)
        assert "cu130_x86_64_sm12x\nIt has no baseline among those that were given." in text
        bars = page.all(".bars b")
        assert bars and max(bar.size["width"] for bar in bars) > 200

    def test_coverage(self, page: Page, built: Path) -> None:
        """As the size report has it, module by module."""
        page.open(built / "page.html")
        page.script("document.querySelectorAll('.coverage details').forEach(d => d.open = true)")
        tables = page.script(
            "return [...document.querySelectorAll('.coverage')].map(t => [...t.rows].map(r => [...r.cells].map(c => c.innerText)))"
        )
        for family, table in zip(TARGETS, tables, strict=True):
            covered = coverage(report_of(built / "dist" / wheel_name(family)))
            devices = table[0][1:]
            found = {}
            for title, *images in table[1:]:
                for name in title.rpartition("\n")[2].split(", "):
                    found[name] = {d: None if i.startswith("none") else i for d, i in zip(devices, images, strict=True)}
            assert found == covered
        # A device that the wheel is for, and a module that has nothing for it.
        assert page.all("td.missing")

    def test_over_the_budget(self, page: Page, tmp_path: Path) -> None:
        make_wheel(tmp_path / "dist", "sm9x", {"big": {"host": 9, "9.0a": 3_000_000}})
        matrix = make_matrix(tmp_path / "matrix.json", ["sm9x"], ["x86_64"])
        page.open(write(tmp_path, "page.html", "--matrix", str(matrix)))
        assert "too large by " in page.all("td.bad")[0].text
        assert "No baseline was given." in page.all("[aria-labelledby=growth]")[0].text


def large(count: int) -> Any:
    """A report of a wheel with many modules."""
    noise = random.Random(count)
    rows = {
        f"module_with_a_long_name_{number:04}": {
            sm: [size := int(noise.paretovariate(1.2) * 9000), size * 3]
            for sm in ("host", "7.5", "8.0", "8.9", "9.0a", "10.0a")
        }
        for number in range(count)
    }
    sums = [sum(row[i] for parts in rows.values() for row in parts.values()) for i in (0, 1)]
    return {
        "schema_version": 1, "wheel": "x.whl", "bytes": sums[0] + 10, "installed_bytes": sums[1] + 10, "cpu": "x86_64",
        "cuda_version": "13.0", "sm_family": "sm9x", "other": {"compressed_bytes": 10, "installed_bytes": 10},
        "modules": rows,
    }  # fmt: skip


def test_many_modules(page: Page, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Eight wheels of 1,500 modules and five SM targets: it opens and zooms at once, and each module can be reached."""
    dist = tmp_path / "dist"
    dist.mkdir()
    many = large(1500)
    for number in range(8):
        report = {**many, "sm_family": f"sm{number}x", "wheel": f"{number}.whl"}
        (dist / f"{number}.report.json").write_text(dump(report))
    start = time.process_time()
    path = write(tmp_path, "page.html")
    written = time.process_time() - start
    # CPU time of the page's thread: other programs do not count.
    page.driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})

    def busy() -> float:
        metrics = page.driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
        return float(next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration"))

    start = busy()
    page.open(path)
    loaded = busy() - start
    zoom = """[...document.querySelectorAll('#map .tile')].find(t => t.ariaLabel.includes(arguments[0] + ',')).click();
              document.getElementById('map').getBoundingClientRect()"""
    start, zooms, reached = busy(), 2, 0
    for name in ("sm3x", "SM target 8.0"):
        page.script(zoom, name)
    while any("smaller modules," in name for name in page.tiles()):
        reached += len(page.tiles()) - 1
        page.script(zoom, "smaller modules")
        zooms += 1
    zoomed = (busy() - start) / zooms
    page.driver.execute_cdp_cmd("Performance.disable", {})
    assert reached + len(page.tiles()) == 1500
    assert page.script("return document.querySelectorAll('*').length") < 5000
    with capsys.disabled():
        figures = f"{path.stat().st_size / 1e6:.1f} MB, written in {written:.1f} s of CPU time"
        figures += f", loaded in {loaded * 1000:.0f} ms, zoomed in {zoomed * 1000:.0f} ms"
        print(f"\n8 wheels x 1500 modules x 5 SM targets: {figures}")
    assert loaded < 2 and zoomed < 0.2


class TestCommand:
    def test_same_wheels_same_bytes(self, built: Path) -> None:
        options = ["--baseline", str(built / "before"), "--matrix", str(built / "matrix.json")]
        assert write(built, "again.html", *options).read_bytes() == (built / "page.html").read_bytes()

    def test_names_are_escaped(self, page: Page, tmp_path: Path) -> None:
        """A module is called what its builder likes."""
        name = "</script><img src=x onerror=alert(1)>&\"'"
        report = large(1)
        report["modules"] = {name: next(iter(report["modules"].values()))}
        (tmp_path / "dist").mkdir()
        (tmp_path / "dist/a.report.json").write_text(dump(report))
        page.open(write(tmp_path, "page.html"))
        page.tile("wheel cu130_x86_64_sm9x").click()
        page.tile("SM target 9.0a").click()
        assert f"module {name}," in page.tiles()[0]
        assert not page.all("img")
        assert name in page.all("[aria-labelledby=coverage]")[0].text

    def says(self, capsys: pytest.CaptureFixture[str], root: Path, *words: str, options: tuple[str, ...] = ()) -> None:
        (root / "page.html").write_text("before")
        write(root, "page.html", *options, code=1)
        err = capsys.readouterr().err
        for word in (*words, "error: ", "expected: ", "found: ", "To do: "):
            assert word in err
        assert (root / "page.html").read_text() == "before"

    def test_what_it_refuses(self, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
        dist = tmp_path / "dist"
        dist.mkdir()
        self.says(capsys, tmp_path, "DIRECTORY has no wheel", "--output_groups=report")
        (dist / "bad.whl").write_text("no zip")
        self.says(capsys, tmp_path, "bad.whl: no size report can be made of it")
        (dist / "bad.whl").unlink()
        make_wheel(dist, "sm9x", modules("sm9x", 1))
        self.says(capsys, tmp_path, "absent: no size report", options=("--baseline", str(tmp_path / "absent")))
        (tmp_path / "matrix.json").write_text("{}")
        options = ("--matrix", str(tmp_path / "matrix.json"))
        self.says(capsys, tmp_path, "matrix.json is not the resolved matrix", "no 'asset_limit'", options=options)
        make_wheel(dist, "sm9x", modules("sm9x", 1), version="0.7.5")
        self.says(capsys, tmp_path, "has two wheels cu130_x86_64_sm9x", "0.7.5+cu130.sm9x")

    def test_a_wheel_beside_its_report(self, tmp_path: Path) -> None:
        wheel = make_wheel(tmp_path / "dist", "sm9x", modules("sm9x", 1))
        (tmp_path / "dist/sm9x.report.json").write_text(dump(report_of(wheel)))
        assert "1 wheel," in write(tmp_path, "page.html").read_text()
