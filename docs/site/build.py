#!/usr/bin/env python3
"""Builds the documentation as a site, with search and with the references of Rust and of Python beside it.

usage: .ci/run site, or with the packages of requirements.txt: build.py [--site FOLDER]

Pages are plain Markdown that GitHub shows as well. This script copies them into `target/site-pages` under the paths that they have in
the repository, and MkDocs makes the site, by default in `target/site`. The order of the pages and their titles are in navigation.md.
A page that other pages link to and that is not in `docs/` is added by itself, and so is a file of code: as a page with its text.
What `.ci/run api` has built is copied to `rust/` and `python/` of the site.

Each of these is an error: a page of `docs/` without a line in navigation.md, a link or an anchor that leads nowhere, and a page that the
site shows otherwise than GitHub does: MkDocs reads Markdown by slightly other rules.
"""

from __future__ import annotations

import argparse
import html.parser
import json
import os
import pathlib
import re
import shutil
import subprocess
import sys
import urllib.parse
from collections.abc import Iterator

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
NAVIGATION = HERE / "navigation.md"
#: A line of the navigation: its depth, and a title, with a link where it is a page.
ENTRY = re.compile(r"^( *)- (?:\[(.+)\]\((.+)\)|(.+))$")
#: As in .ci/check-docs.py: `[text](target)` and `![text](target "title")`, or `[name]: target`, or `src="..."`.
LINK = re.compile(r"""(?<=\]\()([^)\s>]+)(?=[^)]*\))|(?<=\]: )(\S+)$|(?<=\bsrc=")([^"]+)(?=")|(?<=\bsrcset=")([^"]+)(?=")""")
#: A link with its text, which stands for itself where there is nothing to link to.
WHOLE_LINK = r"\[([^\]]*)\]\({}[^)]*\)"
CODE_SPAN = re.compile(r"(`+)(?!`).*?(?<!`)\1(?!`)")
FENCE = re.compile(r"^\s*(```+|~~~+)")
ITEM = re.compile(r"(?:[-*+]|\d+[.)]) +(?=\S)")
HEADING = re.compile(r"^# +(.+?) *#*$", re.MULTILINE)
IMAGES = {".gif", ".jpg", ".jpeg", ".png", ".svg", ".webp"}
LANGUAGES = {".json": "json", ".py": "python", ".rs": "rust", ".sbatch": "bash", ".sh": "bash", ".toml": "toml", ".yaml": "yaml", ".yml": "yaml"}
#: A larger file of code is no page; the site names it.
MAX_CODE_BYTES = 200_000
REFERENCES = "references.md"
#: The site's folder for files of code, so that they are apart from the references.
CODE = "files"


class Fault(Exception):
    """What a person has to mend in a page or in the navigation."""


def navigation(text: str, folder: pathlib.Path) -> tuple[list, list[str]]:
    """Returns the navigation as MkDocs takes it, and the paths of its pages in the repository."""
    root: list = []
    levels, pages = [(-1, root)], []
    for line in text.splitlines():
        if not (entry := ENTRY.match(line)):
            continue
        depth, (title, target, section) = len(entry[1]), entry.groups()[1:]
        while depth <= levels[-1][0]:
            levels.pop()
        if target is None:
            below: list = []
            levels[-1][1].append({section: below})
            levels.append((depth, below))
            continue
        page = os.path.relpath(os.path.normpath(folder / target), ROOT)
        if not (ROOT / page).is_file():
            raise Fault(f"docs/site/navigation.md names `{target}`, which is not there")
        if page in pages:
            raise Fault(f"docs/site/navigation.md names `{target}` twice")
        levels[-1][1].append({title: page})
        pages.append(page)
    return root, pages


def title(page: str) -> str:
    """Returns the title of a page without marks."""
    heading = HEADING.search((ROOT / page).read_text(encoding="utf-8"))
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading[1]).replace("`", "") if heading else page


def tracked() -> set[str]:
    """Returns the paths of all files of the repository, including new files that git does not ignore."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return {name for name in listed.split("\0") if name and (ROOT / name).is_file()}


def lines_of(text: str) -> Iterator[tuple[str, bool]]:
    """Returns the lines of a page, and whether each is of a block of code."""
    fence = ""
    for line in text.splitlines():
        mark = FENCE.match(line)
        yield line, bool(fence or mark)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and not line.strip().strip(fence[0]):
            fence = ""


def as_mkdocs_reads(text: str) -> str:
    """Returns a page of GitHub's Markdown as MkDocs needs it to show the same: what belongs to an item of a list has four more spaces
    than the item, the name of a code block's language stands alone, and a bar in a table's code has no backslash."""
    lines: list[str] = []
    #: How far the text of each open item is indented on GitHub.
    items: list[int] = []
    for line, is_code in lines_of(text):
        bare = line.lstrip(" ")
        indent = len(line) - len(bare)
        starts_code = is_code and FENCE.match(line)
        if bare and (not is_code or starts_code):
            while items and indent < items[-1]:
                items.pop()
        inner = max(0, indent - (items[-1] if items else 0))
        if starts_code:
            bare = re.sub(r"^(```+|~~~+)(\w+),.*", r"\1\2", bare)
        elif bare.startswith("|"):
            bare = CODE_SPAN.sub(lambda span: span[0].replace("\\|", "|"), bare)
        lines.append(" " * (4 * len(items) + inner) + bare if bare else "")
        if not is_code and inner < 4 and (item := ITEM.match(bare)):
            items.append(indent + len(item[0]))
    return "\n".join(lines) + "\n"


class Pages:
    """Copies pages, and what they link to, into a folder."""

    def __init__(self, folder: pathlib.Path, files: set[str]) -> None:
        self.folder = folder
        self.files = files
        self.waiting: list[str] = []
        self.copied: set[str] = set()
        #: The pages as GitHub reads them, with links to the pages of the site.
        self.on_github: dict[str, str] = {}

    def add(self, path: str) -> None:
        """Adds a file of the repository, once."""
        if path not in self.copied:
            self.copied.add(path)
            self.waiting.append(path)

    def copy(self) -> None:
        """Copies what was added and all that it links to."""
        while self.waiting:
            path = self.waiting.pop(0)
            if path.endswith(".md"):
                self.on_github[path] = self.page(path, (ROOT / path).read_text(encoding="utf-8"))
                self.write(path, as_mkdocs_reads(self.on_github[path]))
            elif pathlib.Path(path).suffix in IMAGES:
                (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(ROOT / path, self.folder / path)
            else:
                self.write(f"{CODE}/{path}.md", code_page(path, (ROOT / path).read_text(encoding="utf-8")))

    def write(self, path: str, text: str) -> None:
        (self.folder / path).parent.mkdir(parents=True, exist_ok=True)
        (self.folder / path).write_text(text, encoding="utf-8")

    def page(self, path: str, text: str) -> str:
        """Returns a page with its links to files of the repository led to the pages of the site."""
        return "".join(f"{line if is_code else self.line(path, line)}\n" for line, is_code in lines_of(text))

    def line(self, path: str, line: str) -> str:
        """Returns a line of a page with its links led to the site's pages."""
        spans: list[str] = []

        def hide(span: re.Match[str]) -> str:
            spans.append(span[0])
            return f"`\0{len(spans) - 1}\0`"

        def shown(text: str) -> str:
            return re.sub(r"`\0(\d+)\0`", lambda hidden: spans[int(hidden[1])], text)

        line = CODE_SPAN.sub(hide, line)
        for link in list(LINK.finditer(line)):
            target = next(filter(None, link.groups()))
            to = self.led(path, target)
            if to is None:
                name = urllib.parse.unquote(os.path.normpath(os.path.join(os.path.dirname(path), target)))
                line = re.sub(WHOLE_LINK.format(re.escape(target)), lambda found: in_words(shown(found[1]), name), line)
            elif to != target:
                line = re.sub(rf"(\]\(|\]: ){re.escape(target)}(?=[\s)]|$)", lambda found: found[1] + to, line)
        return shown(line)

    def led(self, path: str, target: str) -> str | None:
        """Returns the target that a link has in the site; adds the file that it leads to. Returns `None` if the site does not have it."""
        if re.match(r"[a-z][a-z0-9+.-]*:|#", target):
            return target
        name, _, anchor = target.partition("#")
        there = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(name)))
        if (ROOT / there).is_dir() and f"{there}/README.md" in self.files:
            name, there = f"{name.rstrip('/')}/README.md", f"{there}/README.md"
        if (ROOT / there).is_dir() or (there in self.files and not self.can_show(there)):
            return None
        if there not in self.files:
            raise Fault(f"{path}: `{target}` leads nowhere")
        self.add(there)
        if not there.endswith(".md") and pathlib.Path(there).suffix not in IMAGES:
            return os.path.relpath(f"{CODE}/{there}.md", os.path.dirname(path) or ".")
        return f"{name}#{anchor}" if anchor else name

    def can_show(self, path: str) -> bool:
        """Returns whether a file is a page, an image or a text that is not too long."""
        if path.endswith(".md") or pathlib.Path(path).suffix in IMAGES:
            return True
        data = (ROOT / path).read_bytes()
        return len(data) <= MAX_CODE_BYTES and b"\0" not in data


def in_words(text: str, path: str) -> str:
    """Returns what stands for a link to a file that the site does not have."""
    return f"`{path}`" if text.strip("`") == path else f"{text} (`{path}` in the repository)"


def code_page(path: str, text: str) -> str:
    """Returns a page with the text of a file of code. The search leaves it out."""
    language = LANGUAGES.get(pathlib.Path(path).suffix, "")
    if text.startswith("#!"):
        language = "python" if "python" in text.splitlines()[0] else "bash"
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall(r"`{3,}", text))])
    return f"---\nsearch:\n  exclude: true\n---\n\n# `{path}`\n\n{fence}{language}\n{text.rstrip()}\n{fence}\n"


def references(target: pathlib.Path) -> str:
    """Returns the page that leads to the references which are built."""
    lines = ["# API reference", "", "The references of this version, made from its code.", ""]
    if (target / "doc-python/index.html").is_file():
        lines += ["## Python", "", f"- {anchor('python/index.html', 'spdl_cluster')}: what a trainer imports.", ""]
    crates = [f"- {anchor(f'rust/{name}/index.html', name)}: {what}." for name, what in crates_of(target / "doc")]
    if crates:
        lines += ["## Rust", "", *crates, ""]
    if len(lines) == 4:
        lines += ["They are not part of this site: `.ci/run api site` builds them and the site with them.", ""]
    return "\n".join(lines)


def anchor(target: str, text: str) -> str:
    """Returns a link that MkDocs does not check: the browser's test does."""
    return f'<a href="{target}"><code>{text}</code></a>'


def crates_of(docs: pathlib.Path) -> Iterator[tuple[str, str]]:
    """Returns the crates of the repository that are documented in a folder, with what each is."""
    for manifest in sorted(ROOT.glob("*/Cargo.toml")):
        text = manifest.read_text(encoding="utf-8")
        name, what = re.search(r'^name = "(.+)"', text, re.MULTILINE), re.search(r'^description = "(.+)"', text, re.MULTILINE)
        if name and what and (docs / name[1].replace("-", "_") / "index.html").is_file():
            yield name[1].replace("-", "_"), what[1].rstrip(".")


class Outline(html.parser.HTMLParser):
    """The text and the elements of a page, one after another, without what only one of two renderers writes."""

    ELEMENTS = {"h1", "h2", "h3", "h4", "h5", "h6", "ul", "ol", "li", "table", "tr", "pre", "blockquote", "img", "em", "strong", "a"}

    def __init__(self, article_only: bool) -> None:
        super().__init__()
        self.parts: list[str] = []
        self.inside = not article_only
        self.links: list[bool] = []
        self.hidden = False

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        classes = dict(attributes).get("class") or ""
        if tag == "article":
            self.inside = True
        if tag == "a":
            self.hidden = "headerlink" in classes
            # Both make links of bare addresses, but for the renderer that stands for GitHub's.
            if self.hidden or re.match("https?:", dict(attributes).get("href") or ""):
                return
        if self.inside and tag in self.ELEMENTS:
            self.parts.append(f"<{tag}>")

    def handle_endtag(self, tag: str) -> None:
        if tag == "article":
            self.inside = False
        if tag == "a":
            self.hidden = False

    def handle_data(self, data: str) -> None:
        if self.inside and not self.hidden:
            self.parts.append("".join(data.split()))

    @classmethod
    def of(cls, text: str, article_only: bool = False) -> list[str]:
        """Returns the elements, each with the text after it."""
        outline = cls(article_only)
        outline.feed(text)
        joined = "".join(outline.parts)
        return [part for part in re.split(r"(<\w+>)", joined) if part]


def difference(markdown: str, built: str) -> str | None:
    """Returns the first place at which a built page differs from what GitHub makes of the same text."""
    from markdown_it import MarkdownIt

    github = Outline.of(MarkdownIt("commonmark").enable(["table", "strikethrough"]).render(markdown))
    site = Outline.of(built, article_only=True)
    github.append("")
    site.append("")
    for place, (here, there) in enumerate(zip(github, site)):
        if here != there:
            same = len(os.path.commonprefix([here, there]))
            before = "".join([*github[max(0, place - 3) : place], here[:same]])[-60:]
            shown, built_instead = ("".join([parts[place][same:], *parts[place + 1 : place + 3]])[:60] for parts in (github, site))
            return f"after `{before}`, GitHub shows `{shown}`, and the site `{built_instead}`"
    return None


def mkdocs(settings: pathlib.Path, pages: pathlib.Path, site: pathlib.Path, nav: list) -> None:
    """Makes a site of a folder of pages. Writes the settings for that into a file."""
    varying = {"INHERIT": str(HERE / "mkdocs.yml"), "docs_dir": str(pages), "site_dir": str(site), "nav": nav, "not_in_nav": f"/{CODE}/"}
    # JSON is YAML.
    settings.write_text(json.dumps(varying, indent=1), encoding="utf-8")
    # With `--quiet`, warnings would be no errors. The theme writes about its successor to the terminal.
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(settings)]
    ended = subprocess.run(command, env={**os.environ, "NO_MKDOCS_2_WARNING": "true"}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if ended.returncode:
        raise Fault("\n".join(line for line in ended.stdout.splitlines() if line and not line.startswith("INFO")))


def build(site: pathlib.Path) -> None:
    target = ROOT / "target"
    pages_folder = target / "site-pages"
    shutil.rmtree(pages_folder, ignore_errors=True)
    pages_folder.mkdir(parents=True)
    files = tracked()
    nav, listed = navigation(NAVIGATION.read_text(encoding="utf-8"), HERE)
    ours = HERE.relative_to(ROOT).as_posix()
    lacking = sorted(name for name in files if re.match(r"docs/.*\.md$", name) and not name.startswith(f"{ours}/") and name not in listed)
    if lacking:
        lines = [f"- [{title(page)}]({os.path.relpath(ROOT / page, HERE)})" for page in lacking]
        raise Fault("docs/site/navigation.md lacks these pages; add where they belong:\n" + "\n".join(lines))
    pages = Pages(pages_folder, files)
    for page in listed:
        pages.add(page)
    pages.copy()
    more = sorted(page for page in pages.copied if page.endswith(".md") and page not in listed)
    nav.append({"API reference": REFERENCES})
    if more:
        nav.append({"More": [{title(page): page} for page in more]})
    pages.write(REFERENCES, references(target))
    for name in ("site.css", "favicon.svg"):
        shutil.copyfile(HERE / name, pages_folder / name)
    mkdocs(target / "site.yml", pages_folder, site, nav)
    differing = []
    for page in (*listed, *more):
        built = site / re.sub(r"(README)?\.md$", lambda end: "index.html" if end[1] else ".html", page)
        if found := difference(pages.on_github[page], built.read_text(encoding="utf-8")):
            differing.append(f"{page}: {found}")
    if differing:
        raise Fault("\n".join([*differing, "write these so that both show the same, such as with an empty line before a list"]))
    for folder, built_folder in (("rust", target / "doc"), ("python", target / "doc-python")):
        if (site / folder / "index.html").exists():
            raise Fault(f"the site has a page `{folder}/index.html`, where a reference belongs")
        if built_folder.is_dir():
            shutil.copytree(built_folder, site / folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(".lock"))
    print(f"{site}: {len(listed) + len(more)} pages, {len(list((pages_folder / CODE).rglob('*.md')))} files of code")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--site", type=pathlib.Path, default=ROOT / "target/site", help="the folder of the site")
    try:
        build(parser.parse_args().site.absolute())
    except Fault as fault:
        sys.exit(str(fault))


if __name__ == "__main__":
    main()
