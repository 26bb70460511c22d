//! Checks whether a session that a peer sent can be served, and computes the layout of its batches.

use crate::{
    job::JobError,
    layout::{ALIGN, Entry, Layout},
    messages::Session,
    order::BatchParams,
};

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
    #[error(transparent)]
    Job(#[from] JobError),
    #[error("a batch of {entries} samples takes {bytes} bytes, more than the {MAX_BATCH_BYTES} it may have")]
    TooLarge { entries: u32, bytes: u128 },
}

impl Session {
    /// Returns how the session's stream is cut into steps.
    #[must_use]
    pub const fn batches(&self) -> BatchParams {
        self.job.batches(self.global_batch)
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

    /// Returns the layout of the session's batches. The session must have been [checked](Self::check).
    #[must_use]
    pub fn layout(&self) -> Layout {
        Layout::new(&self.job.columns, self.batches().entries_per_rank(self.world))
    }
}
