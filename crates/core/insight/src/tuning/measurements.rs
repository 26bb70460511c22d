//! The measurements since the last change of a value.

use super::{
    Interval,
    rates::{Mean, Rates},
    search::TrialKind,
};

/// The time after which a measurement counts for 1/e of what it did, in seconds.
const MEMORY_S: f64 = 5.0;
/// An interval in which requests were in flight for less than this part of the time shows no rate of the store.
const LEAST_ACTIVE: f64 = 0.5;
/// The fewest answers of a store from which a rate is taken.
const ENOUGH_ANSWERS: f64 = 8.0;

/// What a trial has to improve.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Objective {
    /// The bytes per second that stores deliver while there is something to request. It is steady where requests are held
    /// back all the time.
    Delivered,
    /// The samples per second that are decoded. It counts every wait, and only bytes that were of use.
    Decoded,
    /// Like `Decoded`, for a trial that need not gain, but must not lose more than is accepted.
    StillDecoded,
}

impl Objective {
    /// Returns what a trial has to improve. Where a store refuses requests, reads wait while no request is in flight.
    /// The bytes do not show that, so samples are counted.
    pub(super) const fn of(kind: TrialKind, is_refusing: bool) -> Self {
        match kind {
            TrialKind::Relief => Self::StillDecoded,
            TrialKind::DoubleReadAhead | TrialKind::MoreReadAhead => Self::Decoded,
            _ if is_refusing => Self::Decoded,
            _ => Self::Delivered,
        }
    }

    pub(super) const fn unit(self) -> &'static str {
        match self {
            Self::Delivered => "bytes/s",
            Self::Decoded | Self::StillDecoded => "samples/s",
        }
    }

    /// Returns the least and the greatest number of moments that a trial is judged by. Samples come in batches, so they
    /// need more moments than bytes do, and so does a small loss.
    pub(super) const fn moments(self) -> (usize, usize) {
        match self {
            Self::Delivered => (6, 24),
            Self::Decoded => (8, 24),
            Self::StillDecoded => (8, 32),
        }
    }
}

/// The measurements since the last change; those of long ago count for less.
#[derive(Clone, Debug, Default)]
pub(super) struct TuningMeasurements {
    delivered: Rates,
    decoded: Rates,
    seconds: f64,
    starving_s: f64,
    held_back_s: f64,
    in_flight_s: f64,
    answers: f64,
    refusals: f64,
}

impl TuningMeasurements {
    pub(super) fn add(&mut self, interval: &Interval) {
        let kept = (-interval.seconds / MEMORY_S).exp();
        let fade = |sum: &mut f64, added: f64| *sum = *sum * kept + added;
        fade(&mut self.seconds, interval.seconds);
        fade(&mut self.starving_s, interval.starving * interval.seconds);
        fade(&mut self.held_back_s, interval.held_back * interval.seconds);
        fade(&mut self.in_flight_s, interval.in_flight * interval.seconds);
        fade(&mut self.answers, interval.answers as f64);
        fade(&mut self.refusals, interval.refusals as f64);
        let enough = (self.in_flight() / 2.0).max(ENOUGH_ANSWERS);
        let answers = interval.answers as f64;
        if interval.active > LEAST_ACTIVE {
            let active_s = interval.active * interval.seconds;
            self.delivered.add(interval.bytes as f64, active_s, answers, enough);
        }
        self.decoded.add(interval.samples as f64, interval.seconds, answers, enough);
    }

    /// Forgets the rates: something else than the values has disturbed them.
    pub(super) fn clear_rates(&mut self) {
        self.delivered.clear();
        self.decoded.clear();
    }

    /// Returns the mean of what a trial has to improve, once it was measured for long enough.
    pub(super) fn mean(&self, objective: Objective) -> Option<Mean> {
        self.rates(objective).mean(objective.moments().0)
    }

    /// Returns whether it was measured for as long as a trial may last.
    pub(super) fn is_full(&self, objective: Objective) -> bool {
        self.rates(objective).moments() >= objective.moments().1
    }

    const fn rates(&self, objective: Objective) -> &Rates {
        match objective {
            Objective::Delivered => &self.delivered,
            Objective::Decoded | Objective::StillDecoded => &self.decoded,
        }
    }

    /// Returns the fraction of the time in which decoding waited for bytes.
    pub(super) fn starving(&self) -> f64 {
        self.part(self.starving_s)
    }

    /// Returns the fraction of the time in which reads waited because as many requests as may be were in flight.
    pub(super) fn held_back(&self) -> f64 {
        self.part(self.held_back_s)
    }

    /// Returns the mean number of requests in flight.
    pub(super) fn in_flight(&self) -> f64 {
        self.part(self.in_flight_s)
    }

    fn part(&self, seconds: f64) -> f64 {
        seconds / self.seconds.max(f64::MIN_POSITIVE)
    }

    /// Returns the fraction of the requests that a store refused because it was busy.
    pub(super) fn refused(&self) -> f64 {
        self.refusals / (self.refusals + self.answers).max(1.0)
    }
}
