//! The history of the last hour for people: how the ranks waited, and how the workers' stages spent their time.
//!
//! The memory is bounded: 6 kB for each of 1,000 ranks and 24 kB for each of 250 workers, about 12 MB at most. Further
//! ranks and workers have no history.

mod series;

use std::collections::BTreeMap;

use serde::Serialize;

use spdl_types::{SessionId, Stage, StageStats, WorkerId};

use self::series::{Series, TIERS};
use super::{CoordinatorCore, session::SessionState, status::worker_text};

/// The largest number of ranks whose history is kept.
const MAX_RANKS: usize = 1_000;
/// The largest number of workers whose history is kept.
const MAX_WORKERS: usize = 250;
/// A rank or worker that was silent for longer, in milliseconds, makes room for another one.
const IDLE_MS: u64 = 30_000;
/// The largest number of ranks, and of workers, in an answer.
pub const SHOWN_SERIES: usize = 64;
/// The stages of this version, which are those with a history.
const STAGES: usize = Stage::KNOWN.len();

/// The position of a rank in samples since the start of the run, and the milliseconds for which it waited.
type RankTotals = (u128, u64);
/// For each stage the time that its units were busy, waited for input, waited for output, and were throttled.
type StageTimes = [[u64; 4]; STAGES];

/// The progress of a rank in a step.
#[derive(Clone, Copy, Debug)]
struct RankPoint {
    samples_per_s: f32,
    /// The thousandths of the step in which it waited.
    waiting: u16,
}

/// For each stage, how many hundredths of the units' time each of the four states took.
type WorkerPoint = [[u8; 4]; STAGES];

/// The history of ranks and workers.
#[derive(Clone, Debug, Default)]
pub(super) struct ClusterHistory {
    ranks: Room<(SessionId, u32), RankTotals, RankPoint>,
    workers: Room<WorkerId, StageTimes, WorkerPoint>,
}

/// A bounded number of series.
#[derive(Clone, Debug)]
struct Room<K, T, P> {
    series: BTreeMap<K, Series<T, P>>,
    /// Until this time, in milliseconds, no series can be idle for long enough to be replaced.
    full_until_ms: u64,
}

impl<K, T, P> Default for Room<K, T, P> {
    fn default() -> Self {
        Self { series: BTreeMap::new(), full_until_ms: 0 }
    }
}

impl<K: Ord + Copy, T: Clone, P: Copy> Room<K, T, P> {
    /// Returns the series of `key`. A new series replaces an idle one if there is no room; returns `None` if no series
    /// is idle.
    fn of(&mut self, key: K, most: usize, now_ms: u64) -> Option<&mut Series<T, P>> {
        if self.series.len() >= most && !self.series.contains_key(&key) {
            if now_ms < self.full_until_ms {
                return None;
            }
            let idlest = self.series.iter().min_by_key(|(_, series)| series.heard_ms()).map(|(key, _)| *key)?;
            if now_ms.saturating_sub(self.series[&idlest].heard_ms()) < IDLE_MS {
                self.full_until_ms = now_ms + IDLE_MS;
                return None;
            }
            self.series.remove(&idlest);
        }
        Some(self.series.entry(key).or_default())
    }
}

impl ClusterHistory {
    /// Records how far a rank of a session is and how long it has waited. The job has `epoch_samples` samples.
    pub(super) fn note_rank(&mut self, now_ms: u64, session: &SessionState, rank: u32, epoch_samples: u64) {
        let Some(series) = self.ranks.of((session.id, rank), MAX_RANKS, now_ms) else { return };
        let state = &session.ranks[&rank];
        let totals = (state.acknowledged.samples(epoch_samples), state.waited_ms);
        let world = f64::from(session.world.max(1));
        series.note(now_ms, &totals, |before, now, seconds| RankPoint {
            samples_per_s: (now.0.saturating_sub(before.0) as f64 / world / seconds) as f32,
            waiting: (now.1.saturating_sub(before.1) as f64 / seconds).round().clamp(0.0, 1e3) as u16,
        });
    }

    /// Records the totals of a worker's stages.
    pub(super) fn note_worker(&mut self, now_ms: u64, worker: WorkerId, stages: &[StageStats]) {
        let Some(series) = self.workers.of(worker, MAX_WORKERS, now_ms) else { return };
        series.note(now_ms, &times(stages), |before, now, _| {
            std::array::from_fn(|stage| shares(&before[stage], &now[stage]))
        });
    }

    /// Forgets the ranks of a session.
    pub(super) fn forget(&mut self, session: SessionId) {
        self.ranks.series.retain(|(of, _), _| *of != session);
    }
}

fn times(stages: &[StageStats]) -> StageTimes {
    std::array::from_fn(|at| {
        let stage = stages.iter().find(|stats| stats.stage == Stage::KNOWN[at]);
        stage.map_or([0; 4], |stats| [stats.busy_ns, stats.input_wait_ns, stats.output_wait_ns, stats.throttled_ns])
    })
}

/// Returns the share of each state in the time between two totals of a stage, in hundredths; 0 for a stage without
/// units.
fn shares(before: &[u64; 4], now: &[u64; 4]) -> [u8; 4] {
    let passed: [u64; 4] = std::array::from_fn(|state| now[state].saturating_sub(before[state]));
    let all = passed.iter().sum::<u64>().max(1) as f64;
    passed.map(|ns| (100.0 * ns as f64 / all).round() as u8)
}

/// Which part of the history to show.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HistoryQuery {
    /// The length of a step in milliseconds: 1,000 for the last 5 minutes, 10,000 for the last 75.
    pub step_ms: u64,
    /// The number of the first step to show; 0 for all that are kept.
    pub first: u64,
    /// The session of `ranks`.
    pub session: SessionId,
    /// The ranks to show, [`SHOWN_SERIES`] at most.
    pub ranks: Vec<u32>,
    /// The workers to show, [`SHOWN_SERIES`] at most.
    pub workers: Vec<WorkerId>,
}

impl HistoryQuery {
    /// Returns why the query has no answer; `None` if it has one.
    #[must_use]
    pub fn problem(&self) -> Option<String> {
        let [fine, coarse] = TIERS.map(|(step_ms, _)| step_ms);
        if ![fine, coarse].contains(&self.step_ms) {
            return Some(format!("`step_ms` is {}; there are steps of {fine} and {coarse}", self.step_ms));
        }
        let asked = [("ranks", self.ranks.len()), ("workers", self.workers.len())];
        let (name, count) = asked.into_iter().find(|(_, count)| *count > SHOWN_SERIES)?;
        Some(format!("`{name}` lists {count}; ask for {SHOWN_SERIES} at most, and again for others"))
    }
}

/// A part of the history. Step `k` begins `k * step_ms` after time zero of the coordinator, and is shown once it is over.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct HistoryPage {
    /// The coordinator's time.
    pub now_ms: u64,
    pub step_ms: u64,
    pub ranks: Vec<RankHistory>,
    pub workers: Vec<WorkerHistory>,
}

/// What a rank did in each step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct RankHistory {
    /// The rank.
    pub rank: u32,
    /// The number of the first step.
    pub first: u64,
    /// Thousandths of each step in which the trainer waited for a batch.
    pub waiting: Vec<u16>,
    /// The samples per second that the rank took.
    pub samples_per_s: Vec<f32>,
}

/// How the units of a worker's stages spent their time in each step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct WorkerHistory {
    /// The worker's id, as in the status.
    pub worker: String,
    /// The number of the first step.
    pub first: u64,
    /// The stages that had units.
    pub stages: Vec<StageShares>,
}

/// Hundredths of the time of a stage's units, in each step.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[allow(missing_docs)]
pub struct StageShares {
    #[serde(rename = "name")]
    pub stage: Stage,
    pub busy: Vec<u8>,
    pub input_wait: Vec<u8>,
    pub output_wait: Vec<u8>,
    pub throttled: Vec<u8>,
}

impl CoordinatorCore {
    /// Returns a part of the history, without the ranks, workers and steps that are not kept.
    #[must_use]
    pub fn history(&self, query: &HistoryQuery) -> HistoryPage {
        let ranks = query.ranks.iter().take(SHOWN_SERIES).filter_map(|&rank| {
            let (first, points) =
                self.history.ranks.series.get(&(query.session, rank))?.since(query.step_ms, query.first);
            let waiting = points.iter().map(|point| point.waiting).collect();
            let samples_per_s = points.iter().map(|point| (point.samples_per_s * 10.0).round() / 10.0).collect();
            Some(RankHistory { rank, first, waiting, samples_per_s })
        });
        let workers = query.workers.iter().take(SHOWN_SERIES).filter_map(|&worker| {
            let (first, points) = self.history.workers.series.get(&worker)?.since(query.step_ms, query.first);
            let stages = (0..STAGES).filter_map(|stage| StageShares::of(stage, &points)).collect();
            Some(WorkerHistory { worker: worker_text(worker), first, stages })
        });
        HistoryPage { now_ms: self.now_ms, step_ms: query.step_ms, ranks: ranks.collect(), workers: workers.collect() }
    }
}

impl StageShares {
    /// Returns the shares of the stage with this index in [`Stage::KNOWN`]; `None` if it had no units.
    fn of(stage: usize, points: &[WorkerPoint]) -> Option<Self> {
        if points.iter().all(|point| point[stage] == [0; 4]) {
            return None;
        }
        let state = |state: usize| points.iter().map(|point| point[stage][state]).collect();
        let [busy, input_wait, output_wait, throttled] = [0, 1, 2, 3].map(state);
        Some(Self { stage: Stage::KNOWN[stage].clone(), busy, input_wait, output_wait, throttled })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_memory_is_what_the_documentation_says() {
        let steps: usize = TIERS.iter().map(|(_, kept)| kept).sum();
        assert_eq!((steps * size_of::<RankPoint>(), steps * size_of::<WorkerPoint>()), (6_000, 24_000));
    }

    #[test]
    fn a_full_room_takes_a_new_series_in_place_of_one_that_is_idle_and_of_no_other() {
        let mut room = Room::<u32, u64, u64>::default();
        let mut note = |key, now_ms| match room.of(key, 2, now_ms) {
            Some(series) => {
                series.note(now_ms, &0, |_, _, _| 0);
                true
            }
            None => false,
        };
        assert!(note(1, 0) && note(2, IDLE_MS / 2));
        assert!(!note(3, IDLE_MS - 1), "both were heard lately");
        assert!(note(2, 2 * IDLE_MS) && note(3, 2 * IDLE_MS), "1 is idle");
        assert!(!note(1, 2 * IDLE_MS));
        assert_eq!(room.series.keys().copied().collect::<Vec<_>>(), [2, 3]);
    }
}
