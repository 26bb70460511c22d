//! Tables for people: columns only as wide as their content, in lines of at most 100 characters.

/// The most characters in a line.
pub(super) const WIDTH: usize = 100;
/// The most characters in a cell; longer cells lose their middle.
const CELL_WIDTH: usize = 34;

/// The alignment of a column.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Alignment {
    Left,
    Right,
}

/// A table of `N` aligned columns, and a last one that takes the rest of the line.
#[derive(Debug)]
pub(super) struct Table<const N: usize> {
    sides: [Alignment; N],
    rows: Vec<([String; N], String)>,
}

impl<const N: usize> Table<N> {
    /// Creates a table with a header.
    pub(super) fn new(header: [(&str, Alignment); N], last: &str) -> Self {
        let sides = header.map(|(_, side)| side);
        Self { sides, rows: vec![(header.map(|(text, _)| text.to_owned()), last.to_owned())] }
    }

    pub(super) fn push(&mut self, cells: [String; N], last: String) {
        self.rows.push((cells.map(|cell| shortened(&cell)), last));
    }

    /// Returns the header and the rows as lines of at most [`WIDTH`] characters.
    pub(super) fn lines(&self) -> Vec<String> {
        let width = |column: usize| self.rows.iter().map(|(cells, _)| cells[column].chars().count()).max().unwrap_or(0);
        let widths: [usize; N] = std::array::from_fn(width);
        let line = |(cells, last): &([String; N], String)| {
            let mut line = String::new();
            for ((cell, width), side) in cells.iter().zip(widths).zip(self.sides) {
                let text = match side {
                    Alignment::Left => format!("{cell:<width$}  "),
                    Alignment::Right => format!("{cell:>width$}  "),
                };
                line.push_str(&text);
            }
            let left = WIDTH.saturating_sub(line.chars().count());
            line.push_str(&cut(last, left));
            line.trim_end().to_owned()
        };
        self.rows.iter().map(line).collect()
    }
}

/// Cuts off the end of a text that is longer than `most` characters.
fn cut(text: &str, most: usize) -> String {
    if text.chars().count() <= most {
        return text.to_owned();
    }
    text.chars().take(most.saturating_sub(3)).chain("...".chars()).collect()
}

/// Cuts out the middle of a cell that is too long: names mostly differ at their beginning or end.
fn shortened(cell: &str) -> String {
    let length = cell.chars().count();
    if length <= CELL_WIDTH {
        return cell.to_owned();
    }
    let head = (CELL_WIDTH - 3) / 2;
    let tail = CELL_WIDTH - 3 - head;
    cell.chars().take(head).chain("...".chars()).chain(cell.chars().skip(length - tail)).collect()
}

/// Wraps a text into lines of at most [`WIDTH`] characters; all but the first are indented. A longer word stays whole,
/// because it is a path or a URL that a user may want to copy.
pub(super) fn wrapped(text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.trim().is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            lines.push(std::mem::replace(&mut line, "   ".to_owned()));
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    lines.push(line);
    lines
}
