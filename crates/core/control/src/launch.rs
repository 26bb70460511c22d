//! The types for a launch of a trainer: which run of a job, where it starts and why there, which ranks hold it.

use std::fmt;

use serde::{Deserialize, Serialize};
use spdl_types::{Position, SessionId};

/// A run: one training with a job, which may take several launches. Each run has its own sessions and positions, so
/// several runs of one job can go on at once.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunName {
    /// The job's name.
    pub job: String,
    /// The run's name among those of the job.
    pub run: String,
}

impl fmt::Display for RunName {
    /// Writes only the job if the run has the job's name.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.run == self.job {
            true => write!(f, "job `{}`", self.job),
            false => write!(f, "run `{}` of job `{}`", self.run, self.job),
        }
    }
}

/// Where a launch starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Start {
    /// At the first sample of the first epoch.
    #[default]
    Beginning,
    /// At the last position that every rank of the run's last session had acknowledged; at the beginning if the run has
    /// had no session.
    Resume,
    /// At this position.
    At(Position),
}

/// Why a session starts where it does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum StartReason {
    /// The launch started at the beginning.
    Beginning,
    /// It continues at the position that every rank of this session had reached.
    Resumed {
        /// The previous session.
        session: SessionId,
    },
    /// The launch set the position.
    #[default]
    Given,
}

/// Where a loader started, and why there. Prints as `at 1:80, where all ranks of session 3 had got to`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Started {
    /// The start position.
    pub position: Position,
    /// Why the loader started there.
    pub reason: StartReason,
}

impl fmt::Display for Started {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "at {}, ", self.position)?;
        match self.reason {
            StartReason::Beginning => f.write_str("the beginning"),
            StartReason::Resumed { session } => write!(f, "where all ranks of {session} had got to"),
            StartReason::Given => f.write_str("as the launch requested"),
        }
    }
}

/// The ranks that hold a run and so block another launch. The fields describe the first of these ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Holder {
    /// r, the rank.
    pub rank: u32,
    /// W, the number of ranks of its session.
    pub world: u32,
    /// Process id and host of its client.
    pub client: String,
    /// How many other ranks of the session appear alive.
    pub others: u32,
    /// When its client was started, by that client's clock: seconds since 1970.
    pub since_unix_s: u64,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rank, world, client, others, since_unix_s } = self;
        write!(f, "rank {rank} of {world} ({client})")?;
        match others {
            0 => {}
            1 => f.write_str(" and 1 more rank")?,
            others => write!(f, " and {others} more ranks")?,
        }
        write!(f, ", since {}", Utc(*since_unix_s))
    }
}

/// Formats seconds since 1970 as a date and time.
struct Utc(u64);

impl fmt::Display for Utc {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, second) = (self.0 / 86_400, self.0 % 86_400);
        // Howard Hinnant, "chrono-compatible low-level date algorithms": civil_from_days, for days that are not negative.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        let year = year_of_era + era * 400 + u64::from(month <= 2);
        let (hour, minute) = (second / 3_600, second / 60 % 60);
        write!(f, "{year}-{month:02}-{day:02} {hour:02}:{minute:02}:{:02} UTC", second % 60)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_of_its_jobs_name_is_called_by_the_job() {
        let name = |run: &str| RunName { job: "train".into(), run: run.into() }.to_string();
        assert_eq!(name("train"), "job `train`");
        assert_eq!(name("lr-3e-4"), "run `lr-3e-4` of job `train`");
    }

    #[test]
    fn a_holder_is_named_with_its_process_and_since_when() {
        let holder = |others, since_unix_s| {
            Holder { rank: 0, world: 4, client: "process 12 on a".into(), others, since_unix_s }.to_string()
        };
        assert_eq!(holder(0, 0), "rank 0 of 4 (process 12 on a), since 1970-01-01 00:00:00 UTC");
        let leap = holder(3, 951_868_799);
        assert_eq!(leap, "rank 0 of 4 (process 12 on a) and 3 more ranks, since 2000-02-29 23:59:59 UTC");
        assert!(
            holder(1, 1_795_309_262).ends_with(" and 1 more rank, since 2026-11-22 01:01:02 UTC"),
            "{}",
            holder(1, 1_795_309_262)
        );
        let _ = holder(u32::MAX, u64::MAX);
    }

    #[test]
    fn the_start_of_a_loader_is_logged_with_the_reason() {
        let started = |reason| Started { position: Position::new(1, 80), reason }.to_string();
        let resumed = started(StartReason::Resumed { session: SessionId(3) });
        assert_eq!(resumed, "at 1:80, where all ranks of session 3 had got to");
        assert_eq!(started(StartReason::Given), "at 1:80, as the launch requested");
    }
}
