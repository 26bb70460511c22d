//! How far a session is with its run, how long it still takes, and what is to be started where nothing runs yet.

use serde::{Deserialize, Serialize};
use spdl_job::Job;
use spdl_order::BatchParams;

use super::{CoordinatorCore, RankStatus, session::SessionState};

/// How far a session is with its run. The samples that an epoch leaves out at its end count nowhere.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct SessionProgress {
    /// The run's samples up to the position that all ranks have acknowledged.
    pub done_samples: u64,
    /// The samples of all epochs of the run, up to the end of the stream.
    pub all_samples: u64,
    /// The part of the run that is done. It is 1 where no batch is left, even if that leaves samples over.
    pub done: f64,
    /// Whether no batch is left.
    pub is_finished: bool,
    /// The epoch under way, counted from 1; at the end the last one.
    pub epoch: u64,
    /// The samples of an epoch.
    pub epoch_samples: u64,
    /// The part of that epoch that is done.
    pub epoch_done: f64,
    /// The samples per second that the run took in the last seconds: as its slowest rank did. Unknown without a rank.
    pub samples_per_s: Option<f64>,
    /// The time that the rest of the epoch takes at that rate.
    pub epoch_left_ms: Option<u64>,
    /// The time that the rest of the run takes at that rate.
    pub left_ms: Option<u64>,
    /// The samples that this session delivered.
    pub session_samples: u64,
    /// The samples per second of the whole session; unknown if the coordinator started again since it began.
    pub mean_samples_per_s: Option<f64>,
    /// The fraction of the session's time in which its ranks waited for batches, on average; unknown likewise.
    pub waited: Option<f64>,
}

/// A step that leads to a first training.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstStep {
    /// What to do, as a sentence.
    pub text: String,
    /// The command, or call, that does it.
    pub command: String,
    /// Whether it is done.
    pub is_done: bool,
}

impl SessionProgress {
    /// Returns the progress of a session of a job, with the ranks as the status shows them.
    pub(super) fn of(session: &SessionState, job: &Job, ranks: &[RankStatus]) -> Self {
        let batches = BatchParams { epochs: session.epochs, ..job.batches(session.global_batch) };
        let epoch_samples = batches.epoch_samples(job.samples);
        let samples_at =
            |epoch: u64, offset: u64| epoch.saturating_mul(epoch_samples).saturating_add(offset.min(epoch_samples));
        let at = session.acknowledged();
        let done_samples = samples_at(at.epoch, at.offset);
        let end = batches.end_position(job.samples);
        let all_samples = samples_at(end.epoch, end.offset);
        let is_finished = batches.steps_left(job.samples, at) == 0;
        let epochs = batches.epochs_with_steps(job.samples);
        let epoch = batches.epoch_at(job.samples, at).saturating_add(1).min(epochs);
        let epoch_end = samples_at(epoch, 0).min(all_samples);
        let epoch_left = epoch_end.saturating_sub(done_samples);
        let of_epoch = epoch_end.saturating_sub(samples_at(epoch.saturating_sub(1), 0));
        let session_samples = done_samples.saturating_sub(samples_at(session.start.epoch, session.start.offset));
        let rates = ranks.iter().filter(|rank| rank.is_alive).filter_map(|rank| rank.job_samples_per_s);
        let samples_per_s = rates.reduce(f64::min);
        let left_ms =
            |samples: u64| samples_per_s.filter(|rate| *rate > 0.0).map(|rate| (1e3 * samples as f64 / rate) as u64);
        let lasted_ms = session.lasted_ms().filter(|ms| *ms > 0).map(|ms| ms as f64);
        let waited_ms: f64 = session.ranks.values().map(|rank| rank.waited_ms as f64).sum();
        let waited_ms = waited_ms / session.ranks.len().max(1) as f64;
        Self {
            done_samples,
            all_samples,
            done: if is_finished { 1.0 } else { part(done_samples, all_samples) },
            is_finished,
            epoch,
            epoch_samples,
            epoch_done: if is_finished { 1.0 } else { 1.0 - part(epoch_left, of_epoch) },
            samples_per_s,
            epoch_left_ms: if is_finished { Some(0) } else { left_ms(epoch_left) },
            left_ms: if is_finished { Some(0) } else { left_ms(all_samples.saturating_sub(done_samples)) },
            session_samples,
            mean_samples_per_s: lasted_ms.map(|ms| 1e3 * session_samples as f64 / ms),
            waited: lasted_ms.map(|ms| (waited_ms / ms).min(1.0)),
        }
    }
}

impl CoordinatorCore {
    /// Returns the steps to a first training; none once there was a session.
    pub(super) fn first_steps(&self) -> Vec<FirstStep> {
        if !self.sessions.is_empty() {
            return Vec::new();
        }
        let job = self.jobs.keys().next();
        let name = job.map_or("JOB", String::as_str);
        let step = |text: &str, command: String, is_done| FirstStep { text: text.to_owned(), command, is_done };
        vec![
            step(
                "Start a worker on each node of GPUs.",
                "spdl-worker --coord ADDRESS --certs DIR".to_owned(),
                !self.workers.is_empty(),
            ),
            step(
                "Submit a job: what to read, and how to make batches of it.",
                "spdl-ctl job submit train.toml".to_owned(),
                job.is_some(),
            ),
            step(
                "Connect a trainer, from each of its ranks, or try it without one.",
                format!("spdl_cluster.connect(job=\"{name}\")  or  spdl-ctl pull --job {name}"),
                false,
            ),
        ]
    }
}

fn part(of: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { of as f64 / all as f64 }
}
