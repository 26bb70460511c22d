//! The tuner: makes one trial at a time, and keeps or reverts it.

use std::collections::VecDeque;

use super::{
    SHOWN_CHANGES, Setting, Tunable, TunedValue, TuningChange, TuningSettings, TuningStatus,
    measurements::{Objective, TuningMeasurements},
    rates::{Comparison, Mean},
    search::{Search, TrialKind},
};

/// The gain that a doubling has to show. When raised, gains that add up are missed; when lowered, noise looks like one.
const WANTED_GAIN: f64 = 0.05;
/// The gain that a small step has to show.
const WANTED_FINE_GAIN: f64 = 0.025;
/// The factor of small steps: a quarter of a doubling.
const FINE_STEP: f64 = 1.19;
/// The loss that is accepted for asking less of a store that refuses requests, over all such steps together.
const ACCEPTED_LOSS: f64 = 0.02;
/// Decoding that waits for bytes for less of its time than this has little to gain from them.
const STARVING: f64 = 0.03;
/// Requests are too few if reads wait for one for more of the time than this.
const HELD_BACK: f64 = 0.5;
/// A store that refuses more of the requests than this is asked for less.
const REFUSING: f64 = 0.02;
/// A rate that differs by more than this from that of the last failed trial shows that the store has changed.
const CHANGED: f64 = 0.3;
/// Failures beyond this part of the answers disturb a measurement.
const DISTURBING: f64 = 0.2;
/// Number of answers to wait for before a new value is measured, as a multiple of the requests in flight at the change.
const SETTLED: f64 = 1.5;
/// Number of answers to wait for at the start, as a multiple of the requests that may be in flight: the first blocks
/// come all at once.
const WARM: f64 = 4.0;
/// Upper limits of the time to wait for those answers, and of the time of a trial, in seconds.
const MAX_SETTLE_S: f64 = 10.0;
const MAX_TRIAL_S: f64 = 60.0;

/// What was measured in a moment: some tenths of a second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Interval {
    /// Length of the interval.
    pub seconds: f64,
    /// Samples that were decoded.
    pub samples: u64,
    /// Bytes that stores delivered.
    pub bytes: u64,
    /// Requests that were answered.
    pub answers: u64,
    /// Requests that a store refused because it was busy: status 429 or 503.
    pub refusals: u64,
    /// Requests that failed in other ways.
    pub failures: u64,
    /// Mean number of requests in flight.
    pub in_flight: f64,
    /// Fraction of the interval in which any request was in flight.
    pub active: f64,
    /// Fraction of the interval in which reads waited because as many requests as may be were in flight.
    pub held_back: f64,
    /// Fraction of the time of the decoding threads in which they had room for results and waited for bytes.
    pub starving: f64,
}

/// Chooses the values. Call [`handle_interval`](Self::handle_interval) some four times a second, then carry out what
/// [`poll_change`](Self::poll_change) returns.
#[derive(Debug)]
pub struct Tuner {
    now_ms: u64,
    values: [TunedValue; Tunable::ALL.len()],
    /// Since the last change, and after what was in flight then.
    measured: TuningMeasurements,
    settling: Option<Settling>,
    /// Whether any sample was decoded.
    has_begun: bool,
    trial: Option<Trial>,
    search: Search,
    /// What was decoded before the store was asked for less because it refused requests.
    decoded_before_relief: Option<Mean>,
    /// What the store delivered at the last trial that failed.
    delivered_at_failure: Option<Mean>,
    changes: VecDeque<TuningChange>,
    /// The changes that are shown.
    shown: VecDeque<TuningChange>,
}

/// The time after a change in which answers still belong to the earlier value.
#[derive(Debug)]
struct Settling {
    answers_left: f64,
    until_s: f64,
}

/// A trial in progress.
#[derive(Debug)]
struct Trial {
    kind: TrialKind,
    objective: Objective,
    /// What it changed, with the values before.
    changed: Vec<(Tunable, u32)>,
    delivered: Option<Mean>,
    decoded: Option<Mean>,
    since_s: f64,
}

impl Trial {
    fn before(&self) -> Option<Mean> {
        match self.objective {
            Objective::Delivered => self.delivered,
            Objective::Decoded | Objective::StillDecoded => self.decoded,
        }
    }
}

impl Tuner {
    /// Creates a tuner with the initial values, or the pinned ones.
    #[must_use]
    pub fn new(settings: &TuningSettings) -> Self {
        let value = |value: Tunable| match settings.of(value) {
            Setting::Auto => TunedValue { value, current: value.initial(), is_pinned: false },
            Setting::Pinned(pinned) => TunedValue { value, current: pinned, is_pinned: true },
        };
        Self {
            now_ms: 0,
            values: Tunable::ALL.map(value),
            measured: TuningMeasurements::default(),
            settling: None,
            has_begun: false,
            trial: None,
            search: Search::default(),
            decoded_before_relief: None,
            delivered_at_failure: None,
            changes: VecDeque::new(),
            shown: VecDeque::new(),
        }
    }

    /// Takes in what was measured in the interval that ended at `now_ms`.
    pub fn handle_interval(&mut self, now_ms: u64, interval: &Interval) {
        self.now_ms = now_ms;
        if let Some(settling) = &mut self.settling {
            settling.answers_left -= interval.answers as f64;
            if settling.answers_left <= 0.0 || now_ms as f64 / 1e3 >= settling.until_s {
                self.settling = None;
            }
            return;
        }
        if !self.has_begun {
            // Before the first samples, datasets are opened, which shows no rate.
            self.has_begun = interval.samples > 0;
            return self.settle(f64::from(self.current(Tunable::Requests)) * WARM);
        }
        self.measured.add(interval);
        if interval.failures as f64 > DISTURBING * interval.answers as f64 {
            return self.measured.clear_rates();
        }
        match self.trial.take() {
            Some(trial) => self.judge(trial),
            None => self.consider(),
        }
    }

    /// Returns the next change to carry out.
    pub fn poll_change(&mut self) -> Option<TuningChange> {
        self.changes.pop_front()
    }

    /// Returns the current choice of a value.
    #[must_use]
    pub const fn current(&self, value: Tunable) -> u32 {
        self.values[value as usize].current
    }

    /// Returns the current choices and the latest changes.
    #[must_use]
    pub fn status(&self) -> TuningStatus {
        TuningStatus { values: self.values.to_vec(), changes: self.shown.iter().cloned().collect() }
    }

    /// Begins a trial if one is due.
    fn consider(&mut self) {
        self.notice_another_store();
        if self.measured.refused() <= REFUSING {
            self.decoded_before_relief = None;
        }
        if self.search.is_resting(self.now_s()) {
            return;
        }
        let Some(kind) = self.search.choose(&self.kinds()) else { return };
        let objective = Objective::of(kind, self.measured.refused() > REFUSING);
        if self.measured.mean(objective).is_none_or(|mean| mean.mean <= 0.0) {
            return;
        }
        if kind == TrialKind::Relief && self.decoded_before_relief.is_none() {
            self.decoded_before_relief = self.measured.mean(objective);
        }
        let (delivered, decoded) = (self.measured.mean(Objective::Delivered), self.measured.mean(Objective::Decoded));
        let mut trial = Trial { kind, objective, changed: Vec::new(), delivered, decoded, since_s: self.now_s() };
        let (value, to) = self.target(kind);
        self.try_value(&mut trial, value, to, self.reason(kind));
        self.trial = Some(trial);
    }

    /// Allows trials again at once if the store has changed since the last one that failed.
    fn notice_another_store(&mut self) {
        let Some((before, now)) = self.delivered_at_failure.zip(self.measured.mean(Objective::Delivered)) else {
            return;
        };
        let (gain, error) = now.gain(&before);
        if gain.abs() - 2.0 * error > CHANGED {
            self.search.start_over();
            self.delivered_at_failure = None;
        }
    }

    /// Returns the trials that the measurements suggest, the most promising first.
    fn kinds(&self) -> Vec<TrialKind> {
        use TrialKind::{DoubleReadAhead, DoubleRequests, FewerRequests, MoreReadAhead, MoreRequests, Relief};
        let is_possible = |kind: &TrialKind| {
            let (value, to) = self.target(*kind);
            !self.values[value as usize].is_pinned && to != self.current(value)
        };
        let relief: &[TrialKind] = if self.measured.refused() > REFUSING { &[Relief] } else { &[] };
        let kinds: &[TrialKind] = if self.measured.starving() < STARVING {
            &[]
        } else if self.measured.held_back() > HELD_BACK {
            &[DoubleRequests, MoreRequests, DoubleReadAhead, FewerRequests, MoreReadAhead]
        } else {
            &[DoubleReadAhead, MoreReadAhead, FewerRequests]
        };
        relief.iter().chain(kinds).copied().filter(is_possible).collect()
    }

    /// Returns the value that a trial changes, and its new number.
    fn target(&self, kind: TrialKind) -> (Tunable, u32) {
        let value = match kind {
            TrialKind::DoubleReadAhead | TrialKind::MoreReadAhead => Tunable::ReadAhead,
            _ => Tunable::Requests,
        };
        let current = self.current(value);
        let to = match kind {
            TrialKind::DoubleRequests | TrialKind::DoubleReadAhead => current.saturating_mul(2),
            TrialKind::MoreRequests | TrialKind::MoreReadAhead => {
                ((f64::from(current) * FINE_STEP).round() as u32).max(current + 1)
            }
            TrialKind::FewerRequests => {
                // Where too little is read ahead to use all requests that may be in flight, a slightly lower limit
                // would change nothing.
                let used = (self.measured.in_flight().ceil() as u32).min(current);
                ((f64::from(used) / FINE_STEP).round() as u32).min(used.saturating_sub(1))
            }
            TrialKind::Relief => current / 2,
        };
        (value, to.clamp(*value.bounds().start(), *value.bounds().end()))
    }

    fn reason(&self, kind: TrialKind) -> String {
        let percent = |part: f64| (100.0 * part).round();
        let held_back = percent(self.measured.held_back());
        match kind {
            TrialKind::DoubleRequests | TrialKind::MoreRequests => {
                format!("a trial: reads wait for others to be answered for {held_back} % of the time")
            }
            TrialKind::FewerRequests => "a trial: the store may be quicker with fewer requests".to_owned(),
            TrialKind::Relief => {
                format!("a trial: the store is too busy for {} % of the requests", percent(self.measured.refused()))
            }
            TrialKind::DoubleReadAhead | TrialKind::MoreReadAhead => {
                let starving = percent(self.measured.starving());
                format!("a trial: decoding waits for bytes for {starving} % of the time")
            }
        }
    }

    /// Keeps the trial or reverts it, once that is decided.
    fn judge(&mut self, mut trial: Trial) {
        let is_late = self.now_s() - trial.since_s > MAX_TRIAL_S;
        let (before, wanted) = match trial.kind {
            TrialKind::Relief => (self.decoded_before_relief, -ACCEPTED_LOSS),
            TrialKind::DoubleRequests | TrialKind::DoubleReadAhead => (trial.before(), WANTED_GAIN),
            _ => (trial.before(), WANTED_FINE_GAIN),
        };
        let Some((before, after)) = before.zip(self.measured.mean(trial.objective)) else {
            return if is_late {
                self.revert(trial, "there was too little to read to judge it".to_owned());
            } else {
                self.trial = Some(trial);
            };
        };
        let is_last = is_late || self.measured.is_full(trial.objective);
        match after.compare(&before, wanted, is_last) {
            Comparison::Open => self.trial = Some(trial),
            Comparison::More => {
                self.search.note_gain(trial.kind);
                if trial.kind != TrialKind::Relief {
                    self.decoded_before_relief = None;
                }
            }
            Comparison::NotMore if self.extend(&mut trial) => self.trial = Some(trial),
            Comparison::NotMore => {
                let (gain, _) = after.gain(&before);
                let unit = trial.objective.unit();
                self.revert(trial, format!("it gave {:+.1} % {unit}, not {:+.1} %", 100.0 * gain, 100.0 * wanted));
            }
        }
    }

    /// Where one value gains nothing because the other one has become the limit, tries both together.
    fn extend(&mut self, trial: &mut Trial) -> bool {
        if trial.changed.len() > 1 || trial.decoded.is_none() || self.measured.starving() < STARVING {
            return false;
        }
        let is_held_back = self.measured.held_back() > HELD_BACK;
        let (other, reason) = match trial.kind {
            TrialKind::DoubleRequests if !is_held_back => {
                (TrialKind::DoubleReadAhead, "a trial: no more is read ahead that more requests could fetch")
            }
            TrialKind::DoubleReadAhead | TrialKind::MoreReadAhead if is_held_back => {
                (TrialKind::MoreRequests, "a trial: more is read ahead than requests can fetch")
            }
            _ => return false,
        };
        let (value, to) = self.target(other);
        if self.values[value as usize].is_pinned || to == self.current(value) {
            return false;
        }
        trial.objective = Objective::Decoded;
        self.try_value(trial, value, to, reason.to_owned());
        true
    }

    fn try_value(&mut self, trial: &mut Trial, value: Tunable, to: u32, reason: String) {
        trial.changed.push((value, self.current(value)));
        self.change(value, to, reason);
    }

    fn revert(&mut self, trial: Trial, reason: String) {
        for (value, before) in trial.changed.into_iter().rev() {
            self.change(value, before, reason.clone());
        }
        self.delivered_at_failure = trial.delivered;
        self.search.note_failure(trial.kind, self.now_s());
    }

    fn change(&mut self, value: Tunable, to: u32, reason: String) {
        let at_ms = self.now_ms;
        let from = std::mem::replace(&mut self.values[value as usize].current, to);
        self.settle(SETTLED * self.measured.in_flight());
        self.measured = TuningMeasurements::default();
        let change = TuningChange { value, from, to, reason, at_ms };
        self.shown.push_back(change.clone());
        if self.shown.len() > SHOWN_CHANGES {
            self.shown.pop_front();
        }
        self.changes.push_back(change);
    }

    /// Ignores measurements until this many requests are answered.
    fn settle(&mut self, answers_left: f64) {
        self.settling = Some(Settling { answers_left, until_s: self.now_s() + MAX_SETTLE_S });
    }

    fn now_s(&self) -> f64 {
        self.now_ms as f64 / 1e3
    }
}
