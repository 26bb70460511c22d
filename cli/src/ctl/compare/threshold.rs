//! How much worse each figure may be.

use std::str::FromStr;

/// A figure that can be judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum JudgedFigure {
    /// Samples per second.
    Rate,
    /// The fraction of the time that trainers waited.
    Waiting,
    /// Bytes of a sample.
    Bytes,
    /// CPU time of a sample.
    Cpu,
    /// The fraction of samples that were bad.
    Bad,
}

impl JudgedFigure {
    const ALL: [Self; 5] = [Self::Rate, Self::Waiting, Self::Bytes, Self::Cpu, Self::Bad];

    /// Returns its name in `--at-most`.
    const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Waiting => "waiting",
            Self::Bytes => "bytes",
            Self::Cpu => "cpu",
            Self::Bad => "bad",
        }
    }
}

/// An argument of `--at-most`: of one figure, or of all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Threshold {
    figure: Option<JudgedFigure>,
    /// The fraction by which it may be worse; `None` if any.
    at_most: Option<f64>,
}

impl FromStr for Threshold {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (figure, amount) = match text.split_once('=') {
            None => (None, text),
            Some((name, amount)) => {
                let found = JudgedFigure::ALL.into_iter().find(|figure| figure.name() == name.trim());
                let names = JudgedFigure::ALL.map(JudgedFigure::name).join(", ");
                (Some(found.ok_or_else(|| format!("`{name}` is no figure; there are {names}"))?), amount)
            }
        };
        if figure.is_some() && amount.trim() == "any" {
            return Ok(Self { figure, at_most: None });
        }
        let percent = amount.trim().strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
        match percent.filter(|percent| percent.is_finite() && *percent >= 0.0) {
            Some(percent) => Ok(Self { figure, at_most: Some(percent / 100.0) }),
            None => Err(format!("`{amount}` is no percentage such as `5%`")),
        }
    }
}

/// All arguments of `--at-most`. One of a figure stands before one of all, and a later one before an earlier one.
#[derive(Clone, Debug)]
pub(super) struct Thresholds(Vec<Threshold>);

impl Thresholds {
    pub(super) fn new(given: &[Threshold]) -> Self {
        Self(given.to_vec())
    }

    /// Returns the fraction by which a figure may be worse; `None` if any.
    pub(super) fn of(&self, figure: JudgedFigure) -> Option<f64> {
        let last = |of| self.0.iter().rev().find(|threshold| threshold.figure == of);
        last(Some(figure)).or_else(|| last(None)).and_then(|threshold| threshold.at_most)
    }

    /// Returns whether the figure is judged by its name.
    pub(super) fn names(&self, figure: JudgedFigure) -> bool {
        self.0.iter().any(|threshold| threshold.figure == Some(figure)) && self.of(figure).is_some()
    }

    /// Returns whether any figure is judged.
    pub(super) fn ask_for_something(&self) -> bool {
        JudgedFigure::ALL.iter().any(|figure| self.of(*figure).is_some())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_threshold_of_a_figure_stands_before_one_of_all() {
        let read = |texts: &[&str]| -> Thresholds {
            Thresholds::new(&texts.iter().map(|text| text.parse().unwrap()).collect::<Vec<_>>())
        };
        let thresholds = read(&["cpu=10%", "5%", "waiting=any", "bad=0%", "cpu=12.5 %"]);
        assert_eq!(
            JudgedFigure::ALL.map(|figure| thresholds.of(figure)),
            [Some(0.05), None, Some(0.05), Some(0.125), Some(0.0)]
        );
        assert_eq!(JudgedFigure::ALL.map(|figure| thresholds.names(figure)), [false, false, false, true, true]);
        assert!(!read(&[]).ask_for_something() && !read(&["rate=any"]).ask_for_something());
    }

    #[test]
    fn what_is_no_threshold_is_refused_with_what_would_be() {
        for (text, expected) in [
            ("5", "such as `5%`"),
            ("any", "such as `5%`"),
            ("-1%", "such as `5%`"),
            ("NaN%", "such as `5%`"),
            ("speed=5%", "there are rate, waiting, bytes, cpu, bad"),
        ] {
            let error = text.parse::<Threshold>().unwrap_err();
            assert!(error.contains(expected), "{text}: {error}");
        }
    }
}
