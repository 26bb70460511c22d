//! Rows of tables whose cells have a tab or a comma between them. A tab always separates two cells. Commas follow the
//! rules of Python's `csv`, pandas and spreadsheets: a cell in quotes may have commas and line breaks, and a quote in
//! it is doubled.

use std::borrow::Cow;

/// What stands between the cells of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Separator {
    Tab,
    Comma,
}

/// A row: the number of its first line, its offset in the text, and its own text, without the end of the line.
pub(super) type TextRow<'t> = (usize, usize, &'t str);

impl Separator {
    /// Iterates over the rows that are not empty.
    pub(super) fn rows(self, text: &str) -> impl Iterator<Item = TextRow<'_>> {
        let (mut at, mut line) = (0, 1);
        std::iter::from_fn(move || {
            while at < text.len() {
                let (start, first_line, rest) = (at, line, &text[at..]);
                let bytes = match self {
                    Self::Tab => end_of_line(rest),
                    Self::Comma => {
                        let mut cells = Cells::of(rest);
                        while cells.next().is_some() {}
                        rest.len() - cells.rest.map_or(0, str::len)
                    }
                };
                at += bytes;
                let row = &rest[..bytes];
                line += row.matches('\n').count();
                let row = row.strip_suffix('\n').unwrap_or(row);
                let row = row.trim_end_matches('\r');
                if !row.trim().is_empty() {
                    return Some((first_line, start, row));
                }
            }
            None
        })
    }

    /// Returns the cells of a row; `None` if a quote is not closed.
    pub(super) fn cells(self, row: &str) -> Option<Vec<Cow<'_, str>>> {
        if self == Self::Tab {
            return Some(row.split('\t').map(Cow::Borrowed).collect());
        }
        let mut cells = Cells::of(row);
        let found = cells.by_ref().collect();
        (!cells.is_open).then_some(found)
    }
}

fn end_of_line(text: &str) -> usize {
    text.find('\n').map_or(text.len(), |end| end + 1)
}

/// Reads the cells of a row with commas, up to the end of its last line.
struct Cells<'t> {
    /// The text after the last cell that was read and its comma; at the end of the row, the text after the row.
    rest: Option<&'t str>,
    is_at_end: bool,
    /// Whether the text ended inside quotes.
    is_open: bool,
}

impl<'t> Cells<'t> {
    const fn of(text: &'t str) -> Self {
        Self { rest: Some(text), is_at_end: false, is_open: false }
    }
}

impl<'t> Iterator for Cells<'t> {
    type Item = Cow<'t, str>;

    fn next(&mut self) -> Option<Cow<'t, str>> {
        let text = self.rest.filter(|_| !self.is_at_end)?;
        let (mut cell, mut rest) = (Cow::Borrowed(""), text);
        if let Some(quoted) = text.strip_prefix('"') {
            rest = quoted;
            loop {
                let Some(end) = rest.find('"') else {
                    self.is_open = true;
                    append(&mut cell, rest);
                    rest = "";
                    break;
                };
                append(&mut cell, &rest[..end]);
                rest = &rest[end + 1..];
                match rest.strip_prefix('"') {
                    Some(after) => {
                        append(&mut cell, "\"");
                        rest = after;
                    }
                    None => break,
                }
            }
        }
        // The text of a cell without quotes, or, as Python reads it, the text after the closing quote.
        let end = rest.find([',', '\n']).unwrap_or(rest.len());
        let plain = &rest[..end];
        let is_comma = rest[end..].starts_with(',');
        append(&mut cell, if is_comma { plain } else { plain.trim_end_matches('\r') });
        self.is_at_end = !is_comma;
        let after = end + usize::from(end < rest.len());
        self.rest = Some(&rest[after..]);
        Some(cell)
    }
}

/// Appends text to a cell. A cell that is a single piece of its row stays borrowed.
fn append<'t>(cell: &mut Cow<'t, str>, text: &'t str) {
    if cell.is_empty() {
        *cell = Cow::Borrowed(text);
    } else if !text.is_empty() {
        cell.to_mut().push_str(text);
    }
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};

    use super::*;

    const TABLES: &[&str] = &[
        "a,b\n1,2\n",
        "a,b\r\n1,2\r\n\r\n3,4",
        "\"a\",\"b, c\"\n\"d \"\"e\"\" f\",\"two\nlines\"\ng,h\n",
        "\"\",,\"\"\n\"\"\"\",\"\"\"a\"\n",
        "a \"b\" c,\"d\" e,\"f\"\"\"\n",
        "\"a\r\nb\",c\r\n",
        ",\n",
        "Zürich,\"«ä»\"\n\n\nx,y",
        "a\tb,c\n",
    ];

    #[test]
    fn rows_and_cells_are_those_of_python() {
        let code = "import csv, io, json, sys\n\
                    print(json.dumps([list(csv.reader(io.StringIO(t, newline=''))) for t in json.load(sys.stdin)]))";
        let mut python = Command::new("python3");
        let mut child =
            python.args(["-c", code]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("Python runs");
        serde_json::to_writer(child.stdin.take().unwrap(), TABLES).unwrap();
        let output = child.wait_with_output().unwrap();
        let expected: Vec<Vec<Vec<String>>> = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(expected.len(), TABLES.len());
        for (table, mut expected) in TABLES.iter().zip(expected) {
            // Rows without a cell, or with one that is empty, are empty lines.
            expected.retain(|row| row.iter().any(|cell| !cell.is_empty()) || row.len() > 1);
            let rows = Separator::Comma.rows(table).map(|(_, at, row)| {
                assert!(table[at..].starts_with(row));
                Separator::Comma.cells(row).unwrap().into_iter().map(Cow::into_owned).collect::<Vec<_>>()
            });
            assert_eq!(rows.collect::<Vec<_>>(), expected, "{table:?}");
        }
    }

    #[test]
    fn rows_have_the_numbers_of_their_lines_and_a_quote_has_to_be_closed() {
        let lines =
            |separator: Separator, text: &str| -> Vec<usize> { separator.rows(text).map(|row| row.0).collect() };
        let text = "a\n\n\"b\nc\",\nd\n";
        assert_eq!(lines(Separator::Comma, text), [1, 3, 5]);
        assert_eq!(lines(Separator::Tab, text), [1, 3, 4, 5]);
        assert_eq!(Separator::Comma.cells("a,\"b"), None);
        assert_eq!(Separator::Tab.cells("a\t\"b").unwrap(), ["a", "\"b"]);
        let open = "a,b\nc,\"d\ne,f\n";
        let rows: Vec<_> = Separator::Comma.rows(open).collect();
        assert_eq!(rows, [(1, 0, "a,b"), (2, 4, "c,\"d\ne,f")]);
    }
}
