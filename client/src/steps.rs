//! Counts the steps of a job and of an epoch with arithmetic alone, without the job's plan.

use spdl_core::{
    Position,
    job::{EpochEnd, Job},
};

/// Returns the number of steps in an epoch, or `None` where a batch can span two epochs.
pub(crate) fn steps_per_epoch(job: &Job, global_batch: u32) -> Option<u64> {
    let batch = u64::from(global_batch);
    match job.epoch_end {
        EpochEnd::Drop => Some(job.samples / batch),
        EpochEnd::Pad | EpochEnd::Exact => Some(job.samples.div_ceil(batch)),
        EpochEnd::Continuous => job.samples.is_multiple_of(batch).then_some(job.samples / batch),
    }
}

/// Returns whether the batch `from`..`next` is the last that starts in its epoch.
pub(crate) fn ends_epoch(job: &Job, global_batch: u32, from: Position, next: Position) -> bool {
    next.epoch != from.epoch || rest_is_dropped(job, global_batch, next)
}

/// Returns the epoch in which the batch at `position` starts, or the number of epochs when no batch is left.
pub(crate) fn epoch(job: &Job, global_batch: u32, position: Position) -> u64 {
    if job.steps_left(global_batch, position) == 0 {
        job.epochs
    } else {
        position.epoch + u64::from(rest_is_dropped(job, global_batch, position))
    }
}

fn rest_is_dropped(job: &Job, global_batch: u32, position: Position) -> bool {
    job.epoch_end == EpochEnd::Drop && job.samples.saturating_sub(position.offset) < u64::from(global_batch)
}

#[cfg(test)]
mod tests {
    use super::*;
    use spdl_core::client::testing::job;

    #[test]
    fn steps_follow_the_policy_at_the_end_of_an_epoch() {
        // 100 samples, 2 epochs, batches of 24.
        for (epoch_end, per_epoch, all, from_90, at_end) in [
            (EpochEnd::Drop, Some(4), 8, 4, 0),
            (EpochEnd::Pad, Some(5), 10, 6, 0),
            (EpochEnd::Exact, Some(5), 10, 6, 0),
            (EpochEnd::Continuous, None, 8, 4, 0),
        ] {
            let job = Job { epoch_end, ..job() };
            let left = |epoch, offset| job.steps_left(24, Position::new(epoch, offset));
            assert_eq!(steps_per_epoch(&job, 24), per_epoch, "{epoch_end:?}");
            assert_eq!([left(0, 0), left(0, 90), left(2, 0), left(3, 7)], [all, from_90, at_end, 0], "{epoch_end:?}");
        }
        let job = Job { epoch_end: EpochEnd::Continuous, ..job() };
        assert_eq!(steps_per_epoch(&job, 25), Some(4));
    }

    #[test]
    fn the_next_batch_is_of_the_next_epoch_where_the_rest_of_this_one_is_dropped() {
        for (epoch_end, position, expected) in [
            (EpochEnd::Drop, (0, 76), 0),
            (EpochEnd::Drop, (0, 96), 1),
            (EpochEnd::Drop, (1, 96), 2),
            (EpochEnd::Exact, (0, 96), 0),
            (EpochEnd::Exact, (2, 0), 2),
            (EpochEnd::Continuous, (0, 96), 0),
            (EpochEnd::Continuous, (1, 92), 2),
        ] {
            let job = Job { epoch_end, ..job() };
            assert_eq!(epoch(&job, 24, Position::new(position.0, position.1)), expected, "{epoch_end:?} {position:?}");
        }
    }

    #[test]
    fn an_epoch_ends_with_the_last_batch_that_starts_in_it() {
        let ends = |epoch_end, from, next| {
            let at = |(epoch, offset)| Position::new(epoch, offset);
            ends_epoch(&Job { epoch_end, ..job() }, 24, at(from), at(next))
        };
        for (epoch_end, from, next, expected) in [
            (EpochEnd::Drop, (0, 48), (0, 72), false),
            (EpochEnd::Drop, (0, 72), (0, 96), true),
            (EpochEnd::Drop, (0, 72), (1, 0), true),
            (EpochEnd::Exact, (1, 72), (1, 96), false),
            (EpochEnd::Exact, (1, 96), (2, 0), true),
            (EpochEnd::Continuous, (0, 96), (1, 20), true),
            (EpochEnd::Continuous, (0, 72), (0, 96), false),
        ] {
            assert_eq!(ends(epoch_end, from, next), expected, "{epoch_end:?} {from:?}..{next:?}");
        }
    }
}
