//! A simulated store and the worker that reads it, as far as the tuner sees them.

use spdl_types::mix::splitmix64;

use super::{Interval, Tunable, Tuner};

/// The interval between two measurements.
pub(super) const TICK_MS: u64 = 250;
/// A store lets through at once the requests that it allows in this many seconds.
const BURST_S: f64 = 0.1;
/// Bytes of an answer.
const ANSWER_BYTES: f64 = 100e3;

/// A store, and what reads it. Rates are in requests per second.
#[derive(Clone, Copy, Debug)]
pub(super) struct SimulatedStore {
    pub(super) latency_s: f64,
    /// The most that it answers, or that the link carries.
    pub(super) capacity: f64,
    /// Requests beyond this rate are refused.
    pub(super) refuses_above: f64,
    /// With more requests at once, it answers fewer: with four times as many, half.
    pub(super) thrashes_above: f64,
    /// Requests that a step needs.
    pub(super) requests_per_step: f64,
    /// What decoding and the trainer take at most.
    pub(super) demand: f64,
    /// The largest deviation of a measured rate, as a fraction.
    pub(super) noise: f64,
}

impl Default for SimulatedStore {
    /// A fast store behind which the trainer sets the pace.
    fn default() -> Self {
        Self {
            latency_s: 0.01,
            capacity: 1e5,
            refuses_above: f64::INFINITY,
            thrashes_above: f64::INFINITY,
            requests_per_step: 8.0,
            demand: 1_000.0,
            noise: 0.05,
        }
    }
}

/// How the store is used with some values.
#[derive(Clone, Copy, Debug, Default)]
struct Use {
    answers: f64,
    refusals: f64,
    in_flight: f64,
    is_held_back: bool,
}

impl SimulatedStore {
    fn used(&self, requests: u32, read_ahead: u32) -> Use {
        let read_ahead = f64::from(read_ahead) * self.requests_per_step;
        let at_once = f64::from(requests).min(read_ahead);
        let slowed = (at_once / self.thrashes_above).max(1.0).sqrt();
        let possible = (at_once / self.latency_s).min(self.capacity / slowed);
        let wanted = possible.min(self.demand);
        // A refused read waits a second before it asks again: where many are refused, few reads are left to be answered.
        let asking = f64::from(requests).min(read_ahead);
        let answers = match wanted > self.refuses_above {
            true => (BURST_S * self.refuses_above + asking).min(self.refuses_above),
            false => wanted,
        };
        let in_flight = if possible > wanted { wanted * self.latency_s } else { at_once };
        let refusals = (wanted - answers).min(asking);
        Use {
            answers,
            refusals,
            in_flight,
            is_held_back: (possible <= wanted || refusals > 0.0) && read_ahead > f64::from(requests),
        }
    }

    /// Returns the rate with some values.
    pub(super) fn rate(&self, requests: u32, read_ahead: u32) -> f64 {
        self.used(requests, read_ahead).answers
    }

    /// Returns the rate of the best fixed values.
    pub(super) fn best(&self) -> f64 {
        let grid = |value: Tunable| {
            let bounds = value.bounds();
            let steps = (0..).map(|step| 2_f64.powf(f64::from(step) / 4.0).round() as u32);
            steps.skip_while(move |at| !bounds.contains(at)).take_while(move |at| value.bounds().contains(at))
        };
        let rates = grid(Tunable::Requests)
            .flat_map(|requests| grid(Tunable::ReadAhead).map(move |read_ahead| self.rate(requests, read_ahead)));
        rates.fold(0.0, f64::max)
    }

    /// Returns an interval. The fractions of what is counted in whole numbers stay in `rests`, for the next interval.
    fn interval(&self, requests: u32, read_ahead: u32, draw: u64, rests: &mut [f64; 2]) -> Interval {
        let Use { answers, refusals, in_flight, is_held_back } = self.used(requests, read_ahead);
        let seconds = TICK_MS as f64 / 1e3;
        let deviation = 1.0 + self.noise * (2.0 * splitmix64(draw) as f64 / u64::MAX as f64 - 1.0);
        let answers = answers * seconds * deviation;
        let counted = |amount: f64, rest: &mut f64| {
            let amount = amount + *rest;
            *rest = amount.fract();
            amount as u64
        };
        let [answers_rest, refusals_rest] = rests;
        let answered = counted(answers, answers_rest);
        let refused = counted(refusals * seconds, refusals_rest);
        Interval {
            seconds,
            samples: answered,
            bytes: (answers * ANSWER_BYTES) as u64,
            answers: answered,
            refusals: refused,
            failures: 0,
            in_flight,
            active: if refusals > 0.0 { (answers * self.latency_s / seconds).clamp(0.01, 1.0) } else { 1.0 },
            held_back: f64::from(u8::from(is_held_back)),
            starving: 1.0 - self.rate(requests, read_ahead) / self.demand,
        }
    }
}

/// What happened in a time of a simulation.
#[derive(Clone, Debug, Default)]
pub(super) struct Course {
    /// Mean rate over the time.
    pub(super) rate: f64,
    /// The changes.
    pub(super) changes: Vec<super::TuningChange>,
}

/// A store that is read with a tuner.
pub(super) struct TuningSimulation {
    pub(super) tuner: Tuner,
    now_ms: u64,
    draws: u64,
    rests: [f64; 2],
}

impl TuningSimulation {
    pub(super) fn new(tuner: Tuner, seed: u64) -> Self {
        Self { tuner, now_ms: 0, draws: seed << 32, rests: [0.0; 2] }
    }

    /// Reads `store` for some seconds.
    pub(super) fn run(&mut self, store: &SimulatedStore, seconds: u64) -> Course {
        let mut course = Course::default();
        let ticks = seconds * 1_000 / TICK_MS;
        for _ in 0..ticks {
            let [requests, read_ahead] = Tunable::ALL.map(|value| self.tuner.current(value));
            self.now_ms += TICK_MS;
            self.draws += 1;
            self.tuner.handle_interval(self.now_ms, &store.interval(requests, read_ahead, self.draws, &mut self.rests));
            course.rate += store.rate(requests, read_ahead) / ticks as f64;
            course.changes.extend(std::iter::from_fn(|| self.tuner.poll_change()));
        }
        course
    }
}
