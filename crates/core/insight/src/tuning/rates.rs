//! Rates that vary from moment to moment, and the comparison of two of them.

use std::collections::VecDeque;

/// Number of moments of the past that a mean is taken of.
const KEPT: usize = 32;
/// Upper limit of the length of one moment, in seconds.
const MAX_MOMENT_S: f64 = 3.0;
/// The smallest standard error that is believed, as a fraction of the mean.
const LEAST_ERROR: f64 = 0.01;
/// A difference is significant when it is this many standard errors; more where it is looked at again and again.
const SIGNIFICANT: f64 = 2.0;
const SIGNIFICANT_EARLY: f64 = 3.0;
/// At the end of a trial a gain is kept that is this many standard errors, as a request too many costs little.
const LIKELY: f64 = 1.3;
/// One in this many moments is left out at either end: a busy machine stops for a moment and then catches up.
const TRIMMED: usize = 8;

/// The rate of something, measured in moments that each hold enough of it to mean something.
#[derive(Clone, Debug, Default)]
pub(super) struct Rates {
    moments: VecDeque<f64>,
    open_amount: f64,
    open_s: f64,
    open_answers: f64,
}

/// A mean and its standard error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Mean {
    pub(super) mean: f64,
    error: f64,
}

/// How one rate compares with an earlier one.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Comparison {
    /// It is more by at least what was asked for.
    More,
    /// It is not.
    NotMore,
    /// More measurements are needed.
    Open,
}

impl Rates {
    /// Adds an amount that came in some seconds, with `answers` answers of a store. A moment is full when it holds
    /// `enough` answers.
    pub(super) fn add(&mut self, amount: f64, seconds: f64, answers: f64, enough: f64) {
        self.open_amount += amount;
        self.open_s += seconds;
        self.open_answers += answers;
        if self.open_answers < enough && self.open_s < MAX_MOMENT_S || self.open_s <= 0.0 {
            return;
        }
        self.moments.push_back(self.open_amount / self.open_s);
        if self.moments.len() > KEPT {
            self.moments.pop_front();
        }
        (self.open_amount, self.open_s, self.open_answers) = (0.0, 0.0, 0.0);
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    pub(super) fn moments(&self) -> usize {
        self.moments.len()
    }

    /// Returns the mean of the last moments, once there are at least `enough`.
    pub(super) fn mean(&self, enough: usize) -> Option<Mean> {
        if self.moments.len() < enough.max(2) {
            return None;
        }
        let mut moments: Vec<f64> = self.moments.iter().copied().collect();
        moments.sort_by(f64::total_cmp);
        let trimmed = moments.len() / TRIMMED;
        let moments = &moments[trimmed..moments.len() - trimmed];
        let count = moments.len();
        let mean = moments.iter().sum::<f64>() / count as f64;
        let variance = moments.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1) as f64;
        let error = (variance / count as f64).sqrt().max(LEAST_ERROR * mean);
        Some(Mean { mean, error })
    }
}

impl Mean {
    /// Returns by which fraction this is more than `before`, and the standard error of that.
    pub(super) fn gain(&self, before: &Self) -> (f64, f64) {
        let base = before.mean.max(f64::MIN_POSITIVE);
        let ratio = self.mean / base;
        let error = (self.error.powi(2) + (ratio * before.error).powi(2)).sqrt() / base;
        (ratio - 1.0, error)
    }

    /// Compares this with `before`: is it more by at least the fraction `wanted`? A gain also has to be significant. If
    /// `wanted` is negative, a greater loss has to be ruled out, or, with `is_last`, not to be measured.
    pub(super) fn compare(&self, before: &Self, wanted: f64, is_last: bool) -> Comparison {
        let (gain, error) = self.gain(before);
        let is_more = match wanted > 0.0 {
            true => gain >= wanted && gain > error * if is_last { LIKELY } else { SIGNIFICANT_EARLY },
            false => gain - SIGNIFICANT_EARLY * error > wanted || is_last && gain >= wanted,
        };
        match is_more {
            true => Comparison::More,
            false if is_last || gain + SIGNIFICANT * error < wanted => Comparison::NotMore,
            false => Comparison::Open,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rates(moments: &[f64]) -> Rates {
        let mut rates = Rates::default();
        moments.iter().for_each(|rate| rates.add(*rate, 1.0, 1.0, 1.0));
        rates
    }

    fn mean(moments: &[f64]) -> Mean {
        rates(moments).mean(2).unwrap()
    }

    #[test]
    fn a_moment_lasts_until_enough_answers_have_come() {
        let mut rates = Rates::default();
        (0..12).for_each(|_| rates.add(50.0, 0.25, 1.0, 4.0));
        assert_eq!(rates.moments(), 3);
        assert_eq!(rates.mean(2).unwrap().mean, 200.0);
        rates.clear();
        (0..12).for_each(|_| rates.add(0.0, 0.25, 0.0, 4.0));
        assert_eq!(rates.moments(), 1, "a moment ends without answers, too");
        assert_eq!(rates.mean(1), None, "one moment has no error that is known");
    }

    #[test]
    fn what_is_surely_more_or_surely_not_is_decided_at_once_and_the_rest_later() {
        let before = mean(&[98.0, 102.0, 100.0, 100.0]);
        let compare = |moments: &[f64], is_last| mean(moments).compare(&before, 0.05, is_last);
        assert_eq!(compare(&[195.0, 205.0, 200.0], false), Comparison::More);
        assert_eq!(compare(&[99.0, 101.0, 100.0], false), Comparison::NotMore);
        assert_eq!(compare(&[60.0, 160.0, 110.0], false), Comparison::Open);
        assert_eq!(compare(&[60.0, 160.0, 110.0], true), Comparison::NotMore, "it may be chance");
        assert_eq!(compare(&[100.0, 116.0, 108.0], false), Comparison::Open);
        assert_eq!(compare(&[105.0, 115.0, 110.0], true), Comparison::More);
    }

    #[test]
    fn no_loss_is_sure_only_if_a_loss_is_ruled_out() {
        let before = mean(&[100.0; 8]);
        let compare = |moments: &[f64], is_last| mean(moments).compare(&before, -0.05, is_last);
        assert_eq!(compare(&[100.0; 8], false), Comparison::More);
        assert_eq!(compare(&[70.0, 130.0, 100.0], false), Comparison::Open);
        assert_eq!(compare(&[70.0, 130.0, 100.0], true), Comparison::More);
        assert_eq!(compare(&[80.0; 8], false), Comparison::NotMore);
    }
}
