"""Plants faults in a small site, and checks that check.py names each. Needs a browser, else it is skipped."""

from __future__ import annotations

import contextlib
import pathlib
import tempfile
import unittest

import check

HEAD = "<!doctype html><meta name='viewport' content='width=device-width'><link rel='icon' href='data:,'>"
WIDE = "x" * 200
#: The text of a page, and what check.py says of it.
PLANTED = {
    "<a href='other.html#there'>good</a> <a href='https://example.com/'>elsewhere</a>": [],
    "<a href='none.html'>broken</a>": ["the link to `/none.html` leads nowhere"],
    "<a href='other.html#none'>broken</a>": ["the link to `/other.html#none` leads to no anchor"],
    f"<p>{WIDE}</p>": ["wider than a desktop: <p> xxx", "wider than a phone: <p> xxx"],
    "<p><img width='600' height='9' src='data:,'></p>": ["wider than a phone: <img>"],
    f"<pre style='overflow-x: auto'><code>{WIDE}</code></pre>": [],
    "<script>throw new Error('planted')</script>": ["console: ", "planted"],
    "<script src='https://example.com/planted.js'></script>": ["requests `https://example.com/planted.js` from another host"],
    "<style>@import url(//example.com/planted.css)</style>": ["requests `http://example.com/planted.css` from another host"],
}


class Faults(unittest.TestCase):
    def test_each_planted_fault_is_named(self) -> None:
        programs = check.programs()
        if not programs:
            self.skipTest("there is no browser")
        with contextlib.ExitStack() as stack:
            folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory()))
            (folder / "other.html").write_text("<p id='there'>")
            site = stack.enter_context(check.served(folder))
            browser = stack.enter_context(contextlib.closing(check.Browser(*programs)))
            for number, (text, said) in enumerate(PLANTED.items()):
                with self.subTest(text[:60]):
                    page = f"{number}.html"
                    (folder / page).write_text(f"{HEAD}<article>{text}</article>")
                    faults = check.page_faults(browser, site, page)
                    self.assertEqual(bool(faults), bool(said), faults)
                    for part in said:
                        self.assertIn(part, "\n".join(faults))


if __name__ == "__main__":
    unittest.main()
