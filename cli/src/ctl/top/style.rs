//! The styles of texts, and drawings that are made of text: bars and sparklines.

use ratatui::{
    style::{Color, Modifier, Style},
    text::Span,
};
use spdl_insight::rates::StageRate;
use spdl_process::is_command;

pub(super) const PLAIN: Style = Style::new();
pub(super) const FAINT: Style = Style::new().fg(Color::DarkGray);
pub(super) const STRONG: Style = Style::new().add_modifier(Modifier::BOLD);
pub(super) const REVERSE: Style = Style::new().add_modifier(Modifier::REVERSED);
pub(super) const ALARM: Style = STRONG.fg(Color::Red);
/// Time at work.
const BUSY: Style = Style::new().fg(Color::Green);
/// Time held back by a budget.
pub(super) const THROTTLED: Style = Style::new().fg(Color::Yellow);
/// Time spent waiting for room behind a stage.
const OUTPUT: Style = Style::new().fg(Color::Cyan);

/// Makes a span. Characters that a terminal would take for a command or a change of the writing direction become `?`,
/// because names and keys come from other people.
pub(super) fn span(style: Style, text: impl AsRef<str>) -> Span<'static> {
    let text: String = text.as_ref().chars().map(|letter| if is_command(letter) { '?' } else { letter }).collect();
    Span::styled(text, style)
}

/// The characters of drawings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Glyphs {
    /// Busy, throttled, waiting for output, waiting for input.
    pub(super) bar: [char; 4],
    spark: [char; 8],
    pub(super) limit: &'static str,
}

impl Glyphs {
    /// Returns the glyphs that a terminal with this locale can show.
    pub(super) fn of_locale(locale: &str) -> Self {
        let locale = locale.to_ascii_lowercase();
        if locale.contains("utf-8") || locale.contains("utf8") {
            let spark = ['▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'];
            Self { bar: ['█', '▒', '░', '·'], spark, limit: "◀ limit" }
        } else {
            Self { bar: ['#', '%', '-', '.'], spark: ['_', '.', ':', '-', '=', '+', '*', '#'], limit: "<- limit" }
        }
    }

    /// Draws the shares of a stage's time in `width` characters.
    pub(super) fn bar(&self, rate: &StageRate, width: usize) -> impl Iterator<Item = Span<'static>> {
        let parts = [rate.busy, rate.throttled, rate.output_wait, rate.input_wait];
        let drawn = cells(parts, width).into_iter().zip(self.bar).zip([BUSY, THROTTLED, OUTPUT, FAINT]);
        drawn.map(|((count, glyph), style)| span(style, glyph.to_string().repeat(count)))
    }

    /// Draws the newest of these parts, each between 0 and 1, in at most `width` characters.
    pub(super) fn sparkline(&self, parts: impl DoubleEndedIterator<Item = f64>, width: usize) -> String {
        let level = |part: f64| self.spark[((part * 8.0) as usize).min(7)];
        let newest: Vec<char> = parts.rev().take(width).map(level).collect();
        newest.into_iter().rev().collect()
    }
}

/// Divides `width` cells in the ratio of `parts`: each part gets its share rounded down, and those with the largest
/// remainders one more.
fn cells<const N: usize>(parts: [f64; N], width: usize) -> [usize; N] {
    let sum: f64 = parts.iter().sum();
    if sum <= 0.0 {
        return [0; N];
    }
    let due = parts.map(|part| part / sum * width as f64);
    let mut cells = due.map(|due| due as usize);
    let mut by_remainder: [usize; N] = std::array::from_fn(|index| index);
    by_remainder.sort_by(|a, b| due[*b].fract().total_cmp(&due[*a].fract()));
    let left = width - cells.iter().sum::<usize>().min(width);
    by_remainder.iter().cycle().take(left).for_each(|index| cells[*index] += 1);
    cells
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_has_its_width_and_the_shares_of_the_time() {
        assert_eq!(cells([1.0, 0.0, 1.0, 2.0], 40), [10, 0, 10, 20]);
        for parts in [[0.1, 0.2, 0.3, 0.4], [1.0, 1.0, 1.0, 0.0], [0.001, 0.0, 0.0, 31.9], [0.3, 0.0, 0.0, 0.0]] {
            for width in 0..50 {
                assert_eq!(cells(parts, width).iter().sum::<usize>(), width, "{parts:?}");
            }
        }
        assert_eq!(cells([0.0; 4], 10), [0; 4], "a stage that never had a unit has no time");
    }

    #[test]
    fn a_sparkline_shows_the_newest_points() {
        let glyphs = Glyphs::of_locale("en_GB.UTF-8");
        assert_eq!(glyphs.sparkline([0.9, 0.0, 0.13, 0.5, 1.0].into_iter(), 4), "▁▂▅█");
        assert_eq!(Glyphs::of_locale("C").sparkline([0.0, 1.0].into_iter(), 9), "_#");
    }

    #[test]
    fn hostile_text_cannot_command_the_terminal() {
        assert_eq!(span(PLAIN, "a\x1b[2Jb\nc\u{202e}d\u{9b}e").content, "a?[2Jb?c?d?e");
    }
}
