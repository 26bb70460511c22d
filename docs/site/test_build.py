"""Tests of build.py. Run with the packages of requirements.txt: python -m unittest discover docs/site"""

from __future__ import annotations

import functools
import pathlib
import tempfile
import unittest

import build


class Navigation(unittest.TestCase):
    def test_sections_hold_the_pages_below_them(self) -> None:
        text = "- [Home](../../README.md)\n- Guide\n  - [A tour](../guide/tour.md)\n- [Security](../../SECURITY.md)\n"
        nav, pages = build.navigation(text, build.HERE)
        self.assertEqual(nav, [{"Home": "README.md"}, {"Guide": [{"A tour": "docs/guide/tour.md"}]}, {"Security": "SECURITY.md"}])
        self.assertEqual(pages, ["README.md", "docs/guide/tour.md", "SECURITY.md"])

    def test_a_page_that_is_not_there_or_that_is_there_twice_is_an_error(self) -> None:
        for text, said in (("- [No page](../none.md)", "not there"), ("- [A](../README.md)\n- [B](../README.md)", "twice")):
            with self.assertRaisesRegex(build.Fault, said):
                build.navigation(text, build.HERE)


class Links(unittest.TestCase):
    def setUp(self) -> None:
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.pages = build.Pages(pathlib.Path(folder.name), build.tracked())

    def line(self, text: str) -> str:
        return self.pages.line("docs/guide/start.md", text)

    def test_links_to_pages_and_images_stay_and_add_them(self) -> None:
        for text in ("[a](tour.md#pack) [b](../../k8s/README.md)", "![c](../pictures/page.png)", "[d](https://example.com/a.rs) [e](#f)"):
            self.assertEqual(self.line(text), text)
        self.assertEqual(self.pages.copied, {"docs/guide/tour.md", "k8s/README.md", "docs/pictures/page.png"})

    def test_a_link_to_code_leads_to_a_page_with_it(self) -> None:
        self.assertEqual(self.line("[`main`](../../cli/Cargo.toml)"), "[`main`](../../files/cli/Cargo.toml.md)")
        self.pages.copy()
        page = (self.pages.folder / "files/cli/Cargo.toml.md").read_text()
        self.assertIn("# `cli/Cargo.toml`\n\n```toml\n[package]\n", page)

    def test_a_link_to_a_folder_leads_to_its_page_or_becomes_its_name(self) -> None:
        self.assertEqual(self.line("[a](../../k8s), [b](../../k8s/README.md)"), "[a](../../k8s/README.md), [b](../../k8s/README.md)")
        self.assertEqual(self.line("[the code](../../worker/src), as"), "the code (`worker/src` in the repository), as")
        self.assertEqual(self.line("[`worker/src`](../../worker/src)"), "`worker/src`")

    def test_code_is_left_alone(self) -> None:
        self.assertEqual(self.line("`[a](none.md)`"), "`[a](none.md)`")
        self.assertEqual(self.pages.page("docs/README.md", "```sh\n[a](none.md)\n```\n"), "```sh\n[a](none.md)\n```\n")

    def test_a_link_to_nothing_is_an_error(self) -> None:
        with self.assertRaisesRegex(build.Fault, "`none.md` leads nowhere"):
            self.line("[a](none.md)")


class Markdown(unittest.TestCase):
    def test_what_belongs_to_an_item_is_indented_as_mkdocs_needs_it(self) -> None:
        text = "1. One:\n\n   ```rust,no_run\n   if a {\n     b\n   }\n   ```\n\n   - two\n     more\n\n   three\n\nEnd\n"
        read = "1. One:\n\n    ```rust\n    if a {\n      b\n    }\n    ```\n\n    - two\n        more\n\n    three\n\nEnd\n"
        self.assertEqual(build.as_mkdocs_reads(text), read)

    def test_a_bar_in_a_tables_code_has_no_backslash(self) -> None:
        self.assertEqual(build.as_mkdocs_reads("| `a\\|b` | c \\| d |\n"), "| `a|b` | c \\| d |\n")

    def test_a_difference_to_github_is_named(self) -> None:
        same = "<article><h1>A<a class='headerlink'>#</a></h1><p>b <code>c</code></p></article>"
        self.assertIsNone(build.difference("# A\n\nb `c`\n", same))
        found = build.difference("A list:\n- b\n", "<article><p>A list: - b</p></article>")
        self.assertIn("GitHub shows `<ul><li>", found or "")


class Strict(unittest.TestCase):
    def test_what_mkdocs_warns_of_is_an_error(self) -> None:
        good = "# A\n\n[a](index.md#a)\n"
        pages = {"": None, "[b](#none)\n": "no such anchor", "[c](none.md)\n": "not found among"}
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            (folder / "pages").mkdir()
            for more, said in pages.items():
                (folder / "pages/index.md").write_text(good + more)
                make = functools.partial(build.mkdocs, folder / "site.yml", folder / "pages", folder / "site", [{"A": "index.md"}])
                if said is None:
                    make()
                    self.assertTrue((folder / "site/index.html").is_file())
                else:
                    with self.assertRaisesRegex(build.Fault, said):
                        make()


if __name__ == "__main__":
    unittest.main()
