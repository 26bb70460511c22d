#!/usr/bin/env python3
"""Opens the built site in a real Chromium, and checks it. Needs only the standard library, and `chromium` with `chromedriver`.

usage: docs/site/check.py [--site FOLDER] [--pictures FOLDER]

- Each page opens without an error in the console, and nothing is requested from another host.
- Each link within the site leads to a file, and to an anchor of it where it names one; so do links into the references of Rust and Python.
- No page is wider than a phone of 390 pixels, or than a desktop: tables and code scroll in themselves.
- The navigation leads to each page, and the search finds what the pages say. The colours follow the scheme of the reader's system.

With --pictures, it leaves pictures of three pages, wide and narrow, light and dark. Where there is no browser, nothing is checked, and
the reason is printed. Otherwise it takes some 40 seconds, and LIMIT_S at most.
"""

from __future__ import annotations

import argparse
import base64
import contextlib
import functools
import html.parser
import http.client
import http.server
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import types
import urllib.parse
from collections.abc import Iterator
from typing import Any

ROOT = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 600
PHONE, DESKTOP = 390, 1280
#: A word that the pages explain.
KNOWN_WORD = "receipt"
PICTURED = ["index.html", "docs/index.html", "docs/guide/troubleshooting.html"]
#: The folders of the site that other programs make. Of their pages, those are opened that lead to all others.
REFERENCES = ("rust", "python")

#: What is wider than the window, and cannot be scrolled by itself.
TOO_WIDE = """
const limit = document.documentElement.clientWidth + 1;
const scrolls = (element) => element && element.tagName !== 'BODY'
    && (['auto', 'scroll', 'hidden'].includes(getComputedStyle(element).overflowX) || scrolls(element.parentElement));
const right = (element) => {
    const { left, right } = element.getBoundingClientRect();
    return element.clientWidth ? Math.max(right, left + element.scrollWidth) : right;
};
const wide = [...document.querySelectorAll('article *:not(pre *)')]
    .filter((element) => right(element) > limit && !scrolls(element))
    .map((element) => `<${element.tagName.toLowerCase()}> ${element.textContent.trim().slice(0, 60)}`);
const root = document.scrollingElement;
if (!wide.length && root.scrollWidth > limit) wide.push(`the page, ${root.scrollWidth} pixels`);
return wide.slice(0, 3);
"""
LINKS = "return [...document.querySelectorAll('a[href]')].map((link) => link.href)"
NAVIGATION = "return [...document.querySelectorAll('.md-nav--primary a.md-nav__link')].map((link) => link.href)"
BACKGROUND = "return getComputedStyle(document.body).backgroundColor"
RESULTS = "return [...document.querySelectorAll('.md-search-result__item a')].map((link) => [link.href, link.textContent])"


def programs() -> tuple[str, str] | None:
    """Returns the paths of the driver and of the browser, or `None` where one of them is missing."""
    driver, browser = shutil.which("chromedriver"), shutil.which("chromium") or shutil.which("google-chrome")
    return (driver, browser) if driver and browser else None


class Browser:
    """A Chromium without a window, driven over WebDriver."""

    def __init__(self, driver: str, browser: str) -> None:
        # The kernel ends the driver, which ends the browser, when this process ends, however that ends.
        command = ["setpriv", "--pdeathsig", "TERM", driver, "--port=0"]
        self.driver = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        self.session = ""
        assert self.driver.stdout
        port = next(found[1] for line in self.driver.stdout if (found := re.search(r"successfully on port (\d+)", line)))
        self.connection = http.client.HTTPConnection("127.0.0.1", int(port), timeout=LIMIT_S)
        arguments = ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-background-networking"]
        # No name of a host has an address, so that nothing leaves this machine.
        arguments += [f"--window-size={DESKTOP},900", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"]
        options = {"binary": browser, "args": arguments}
        wanted = {"browserName": "chrome", "goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"}}
        options["perfLoggingPrefs"] = {"enableNetwork": True, "enablePage": False}
        self.session = self.send("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})["sessionId"]

    def close(self) -> None:
        # The driver ends the browser. Killed without that, it would leave it behind.
        with contextlib.suppress(Exception):
            if self.session:
                self.send("DELETE", f"/session/{self.session}")
        self.connection.close()
        self.driver.terminate()
        try:
            self.driver.wait(10)
        except subprocess.TimeoutExpired:
            self.driver.kill()
            self.driver.wait()
        assert self.driver.stdout
        self.driver.stdout.close()

    def send(self, method: str, path: str, body: Any = None) -> Any:
        self.connection.request(method, path, json.dumps(body or {}), {"Content-Type": "application/json"})
        value = json.loads(self.connection.getresponse().read())["value"]
        if isinstance(value, dict) and "error" in value:
            raise RuntimeError(f"{path}: {value['message']}")
        return value

    def command(self, name: str, body: Any) -> Any:
        return self.send("POST", f"/session/{self.session}/{name}", body)

    def open(self, url: str) -> None:
        self.command("url", {"url": url})

    def run(self, script: str) -> Any:
        """Runs the body of a function in the page and returns its value."""
        return self.command("execute/sync", {"script": script, "args": []})

    def chromium(self, command: str, parameters: Any) -> Any:
        """Sends a command of Chromium's own protocol."""
        return self.command("goog/cdp/execute", {"cmd": command, "params": parameters})

    def press(self, keys: str) -> None:
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        self.command("actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]})

    def show_as(self, width: int, is_dark: bool = False) -> None:
        height = 844 if width < 600 else 900
        self.chromium("Emulation.setDeviceMetricsOverride", {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        scheme = {"name": "prefers-color-scheme", "value": "dark" if is_dark else "light"}
        self.chromium("Emulation.setEmulatedMedia", {"features": [scheme]})

    def problems(self) -> list[str]:
        """Returns the errors and warnings in the console since the last call, without warnings of fonts that a page asked for early, as rustdoc's pages do."""
        lines = self.command("se/log", {"type": "browser"})
        # Browsers ask for an icon where a page names none, as those of the references do.
        problems = [line["message"] for line in lines if line["level"] == "SEVERE" or line["level"] == "WARNING" and "A preload for" not in line["message"]]
        return [problem for problem in problems if "/favicon.ico" not in problem]

    def requested(self) -> list[str]:
        """Returns the addresses that were requested since the last call."""
        lines = [line["message"] for line in self.command("se/log", {"type": "performance"}) if '"Network.requestWillBeSent"' in line["message"]]
        return [json.loads(line)["message"]["params"]["request"]["url"] for line in lines]

    def wait_for(self, script: str) -> Any:
        """Runs a script until its value is true or not empty, and returns that. The time is limited by that of the whole check."""
        while not (value := self.run(script)):
            time.sleep(0.05)
        return value


class Anchors(html.parser.HTMLParser):
    """The anchors of a page."""

    def __init__(self) -> None:
        super().__init__()
        self.found: set[str] = set()

    def handle_starttag(self, _tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.found.update(value for name, value in attributes if name in ("id", "name") and value)


class Site:
    """The files of a site, served on this machine."""

    def __init__(self, folder: pathlib.Path, address: str) -> None:
        self.folder = folder
        self.address = address
        self.anchors: dict[pathlib.Path, set[str]] = {}

    def pages(self) -> list[str]:
        """Returns the paths of the pages that the browser opens."""
        pages = [path.relative_to(self.folder).as_posix() for path in sorted(self.folder.rglob("*.html"))]
        own = [page for page in pages if not page.startswith(tuple(f"{name}/" for name in REFERENCES))]
        # One page of each reference shows what all of its pages load.
        first = [next((page for page in pages if re.match(rf"{name}/(\w+/)?index\.html$", page)), None) for name in REFERENCES]
        return own + [page for page in first if page]

    def fault(self, url: str) -> str | None:
        """Returns what is wrong with a link, if it is one within the site."""
        parts = urllib.parse.urlsplit(url)
        if not url.startswith(f"{self.address}/"):
            return None
        file = self.folder / urllib.parse.unquote(parts.path).lstrip("/")
        if file.is_dir():
            file /= "index.html"
        if not file.is_file():
            return f"the link to `{parts.path}` leads nowhere"
        name = urllib.parse.unquote(parts.fragment)
        if name and name not in self.anchors_of(file):
            return f"the link to `{parts.path}#{name}` leads to no anchor"
        return None

    def anchors_of(self, file: pathlib.Path) -> set[str]:
        if file not in self.anchors:
            anchors = Anchors()
            anchors.feed(file.read_text(encoding="utf-8"))
            self.anchors[file] = anchors.found
        return self.anchors[file]


class Handler(http.server.SimpleHTTPRequestHandler):
    """Serves the site without a log; while `has_index` is false, with an empty index for the search. Each page loads the index, and most of
    the check's time would go into reading it."""

    has_index = True

    def do_GET(self) -> None:
        if self.has_index or not self.path.endswith("/search_index.json"):
            super().do_GET()
            return
        body = json.dumps({"config": {"lang": ["en"], "separator": " ", "pipeline": [], "fields": {}}, "docs": []}).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Cache-Control", "no-store")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: pathlib.Path) -> Iterator[Site]:
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Handler, directory=str(folder)))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield Site(folder, f"http://127.0.0.1:{server.server_address[1]}")
    finally:
        server.shutdown()
        server.server_close()


def page_faults(browser: Browser, site: Site, page: str) -> list[str]:
    """Opens a page and returns its faults."""
    browser.show_as(DESKTOP)
    browser.open(f"{site.address}/{page}")
    is_ours = not page.startswith(tuple(f"{name}/" for name in REFERENCES))
    faults = []
    if is_ours:
        faults += filter(None, map(site.fault, dict.fromkeys(browser.run(LINKS))))
        faults += [f"wider than a desktop: {wide}" for wide in browser.run(TOO_WIDE)]
        browser.show_as(PHONE)
        faults += [f"wider than a phone: {wide}" for wide in browser.run(TOO_WIDE)]
    faults += [f"console: {problem}" for problem in browser.problems()]
    ours = (f"{site.address}/", "data:", "blob:")
    faults += [f"requests `{url}` from another host" for url in browser.requested() if not url.startswith(ours)]
    return [f"{page}: {fault}" for fault in faults]


def search_faults(browser: Browser, site: Site) -> list[str]:
    """Searches for a word as a reader does, and returns what is wrong with the results."""
    browser.show_as(DESKTOP)
    browser.open(f"{site.address}/index.html")
    browser.wait_for("document.querySelector('.md-search__input').focus(); return document.activeElement.matches('.md-search__input')")
    browser.press(KNOWN_WORD)
    results = browser.wait_for(RESULTS)
    # The first results may be those of the word's first letters.
    deadline = time.monotonic() + 60
    while not (is_found := any(KNOWN_WORD in text.lower() for _, text in results)) and time.monotonic() < deadline:
        time.sleep(0.05)
        results = browser.run(RESULTS)
    faults = [fault for url, _ in results if (fault := site.fault(url))]
    if not is_found:
        faults.append(f"no result has the word: {[text[:80] for _, text in results]}")
    return [f"search for `{KNOWN_WORD}`: {fault}" for fault in faults + browser.problems()]


def navigation_faults(browser: Browser, site: Site) -> list[str]:
    """Returns the pages to which the navigation of the first page does not lead. Files of code are reached by links alone."""
    browser.open(f"{site.address}/index.html")
    linked = {urllib.parse.urlsplit(url).path.removeprefix("/") for url in browser.run(NAVIGATION)}
    others = tuple(f"{name}/" for name in (*REFERENCES, "files"))
    return [f"{page}: the navigation does not lead there" for page in site.pages() if page not in linked and not page.startswith(others) and page != "404.html"]


def scheme_faults(browser: Browser, site: Site) -> list[str]:
    """Returns what is wrong with the colours."""
    shown = []
    for is_dark in (False, True):
        browser.show_as(DESKTOP, is_dark)
        browser.open(f"{site.address}/index.html")
        shown.append(brightness(browser.run(BACKGROUND)))
    light, dark = shown
    return [] if dark < 80 and light > 200 else [f"the site does not follow the system's scheme: {light} where it is light, {dark} where it is dark"]


def brightness(colour: str) -> float:
    """Returns the brightness of `rgb(...)`, from 0 to 255."""
    values = [float(value) for value in re.findall(r"[\d.]+", colour)[:3]]
    return sum(values) / 3


def picture(browser: Browser, site: Site, folder: pathlib.Path) -> None:
    """Leaves pictures of some pages."""
    folder.mkdir(parents=True, exist_ok=True)
    for page in filter(lambda page: (site.folder / page).is_file(), PICTURED):
        for width, is_dark in ((DESKTOP, False), (PHONE, False), (DESKTOP, True), (PHONE, True)):
            browser.show_as(width, is_dark)
            browser.open(f"{site.address}/{page}")
            data = browser.chromium("Page.captureScreenshot", {})["data"]
            name = f"{page.removesuffix('.html').replace('/', '-')}-{width}-{'dark' if is_dark else 'light'}.png"
            (folder / name).write_bytes(base64.b64decode(data))


def skip(reason: str) -> None:
    line = f"skipped: docs/site: {reason}"
    print(line)
    if path := os.environ.get("SPDL_TEST_SKIPPED"):
        with open(path, "a", encoding="utf-8") as skipped:
            skipped.write(f"{line}\n")


def out_of_time(_signal: int, _frame: types.FrameType | None) -> None:
    raise TimeoutError(f"the check of the site did not end in {LIMIT_S} s")


def check(browser: Browser, site: Site, pictures: pathlib.Path | None) -> int:
    pages = site.pages()
    Handler.has_index = False
    faults = [fault for page in pages for fault in page_faults(browser, site, page)]
    Handler.has_index = True
    for whole in (navigation_faults, search_faults, scheme_faults):
        faults += whole(browser, site)
    if pictures:
        picture(browser, site, pictures)
    print("\n".join([*faults, f"{len(pages)} pages in a browser, {len(faults)} faults"]))
    return 1 if faults else 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=pathlib.Path, default=ROOT / "target/site", help="the folder of the site")
    parser.add_argument("--pictures", type=pathlib.Path, help="the folder for pictures")
    options = parser.parse_args()
    found = programs()
    if not found:
        skip("no browser: install Debian's packages `chromium` and `chromium-driver`")
        return 0
    signal.signal(signal.SIGALRM, out_of_time)
    signal.alarm(LIMIT_S)
    with served(options.site.absolute()) as site, contextlib.closing(Browser(*found)) as browser:
        return check(browser, site, options.pictures)


if __name__ == "__main__":
    sys.exit(main())
