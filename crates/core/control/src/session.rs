//! Checks whether a session that a peer sent can be served, and computes the layout of its batches.

use crate::messages::Session;
use spdl_job::{
    Column, JobError,
    layout::{ALIGN, Entry, Layout},
};
use spdl_order::{BatchParams, EpochEnd, RankSteps};
use spdl_types::Position;

/// The most bytes of a slab. Pages that no batch touches take no memory, so this limit prevents overflows; it does not
/// limit memory.
pub const MAX_SLAB_BYTES: u64 = 1 << 40;

/// The most bytes of a batch, so that a slab of many slots stays below the largest slab.
pub const MAX_BATCH_BYTES: u64 = MAX_SLAB_BYTES / 64;

/// A session for which no batch can be made.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum SessionError {
    #[error("rank {rank} is not below world {world}")]
    Rank { rank: u32, world: u32 },
    #[error("world {world} is more than the global batch of {global_batch}")]
    World { world: u32, global_batch: u32 },
    #[error(
        "world {world} is more than the {samples} samples of an epoch: with epoch_end \"partial\" a rank would have none; start \
         fewer ranks, or set epoch_end to \"exact\""
    )]
    NoShare { world: u32, samples: u64 },
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("a batch of {entries} samples takes {bytes} bytes, more than the {MAX_BATCH_BYTES} it may have")]
    TooLarge { entries: u32, bytes: u128 },
}

impl Session {
    /// Returns how the session's stream is cut into steps.
    #[must_use]
    pub fn batches(&self) -> BatchParams {
        self.job.batches(self.global_batch)
    }

    /// Returns the steps that `rank` takes. The session must have been [checked](Self::check).
    #[must_use]
    pub fn steps_of(&self, rank: u32) -> RankSteps {
        RankSteps::new(self.batches(), self.job.samples, rank, self.world)
    }

    /// Checks that `rank` can take part in the session. Any peer with a certificate may have sent it, so every number
    /// is checked before it is used to compute or allocate anything.
    ///
    /// [`SessionError`] for the first value that is invalid.
    pub fn check(&self, rank: u32) -> Result<(), SessionError> {
        let Self { job, world, global_batch, .. } = self;
        if rank >= *world {
            return Err(SessionError::Rank { rank, world: *world });
        }
        if world > global_batch {
            return Err(SessionError::World { world: *world, global_batch: *global_batch });
        }
        job.check()?;
        if job.epoch_end == EpochEnd::Partial && u64::from(*world) > job.samples {
            return Err(SessionError::NoShare { world: *world, samples: job.samples });
        }
        let entries = self.batches().entries_per_rank(*world);
        let per_sample: u128 = job.columns.iter().map(|column| u128::from(column.max_bytes()) + 8).sum();
        let per_column = 4 * ALIGN as u128;
        let bytes = u128::from(entries) * (per_sample + size_of::<Entry>() as u128)
            + per_column * (job.columns.len() as u128 + 1);
        if bytes > u128::from(MAX_BATCH_BYTES) {
            return Err(SessionError::TooLarge { entries, bytes });
        }
        Ok(())
    }

    /// Returns the bytes beside a slot that a batch of a rank which starts at `from` takes for samples that others are mixed
    /// with, and that are not in the batch. At the end of an epoch it can be more.
    #[must_use]
    pub fn partner_bytes(&self, rank: u32, from: Position) -> u64 {
        let Some(mix) = &self.job.mix else { return 0 };
        let (batches, samples) = (self.batches(), self.job.samples);
        let lanes = if self.job.order.shuffle { self.job.order.lanes } else { 1 };
        let steps = [from, Position::START].into_iter().filter_map(|from| batches.step(samples, from));
        let partners = steps.map(|step| mix.params.partners_elsewhere(&step, lanes, samples, rank, self.world));
        let fixed = self.job.columns.iter().filter(|column| column.sample_shape().is_some());
        let sample_bytes: u64 = fixed.map(Column::max_bytes).sum();
        partners.max().unwrap_or(0) as u64 * sample_bytes
    }

    /// Returns the layout of the session's batches. The session must have been [checked](Self::check).
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::new(&self.job.columns, self.batches().entries_per_rank(self.world))
    }
}
