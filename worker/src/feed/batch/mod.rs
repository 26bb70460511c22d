//! One batch of a rank, from the plan to its slot. Read from top to bottom:
//!
//! 1. [`ahead`] asks the order for the batch's samples, groups them by block, starts to fetch the blocks, and keeps the batch
//!    until it is filled. Meanwhile [`early`] may have samples of it decoded.
//! 2. [`mod@fill`] waits for room and lets [`filling`] get all samples. Those that another rank has decoded are there; of the others
//!    [`records`] finds the records in the shard's index and waits for their bytes, and [`mod@parts`] reads of large scalable
//!    pictures what their crops need, if the worker is to. Of videos, [`video_parts`] and [`series_frames`] read the packets that frames
//!    need. [`mod@dataset_sounds`] reads the recordings of other datasets that operations take.
//! 3. When the scheduler grants a permit for what has come, [`decode`] writes it to the slot. The decoding threads take from one
//!    [`SampleSource`](threads::SampleSource) after the other: where all columns are numbers, the columns ([`mod@gather`]); the samples that
//!    are there; those to decode, while [`lend`] has helpers decode what would wait for long. Frames of [videos](mod@shared_videos) that
//!    several samples take are decoded once.
//! 4. [`settle`] decides about the samples that were not decoded: other bytes, a substitute, or the end of the
//!    job. Those to be decoded go back to 2.
//! 5. If samples are sequences, [`mod@sequence`] finds the pieces of documents that they have, which take the way of samples from 2 to 4, and
//!    writes them.
//! 6. The pairs of [`mod@mix`] are a source, too, if the job has a mix.
//! 7. [`buffer`] copies the values of ragged columns to their places, whose lengths are known by then, and writes the header. The driver
//!    publishes the slot.
//!
//! Values of ragged columns take [room](super::room) as they are decoded. Where there is none, the rest of the batch is
//! decoded only to learn how much it needs; then the batch gives back all it has, waits for as much, and begins again at 2.

mod ahead;
mod buffer;
mod dataset_sounds;
mod decode;
mod early;
mod field_parts;
mod fields;
mod fill;
mod filling;
mod gather;
mod held;
mod lend;
mod mix;
mod part_reads;
mod parts;
mod picture_parts;
mod records;
mod sample;
mod sequence;
mod series;
mod series_frames;
mod settle;
mod shared_videos;
mod sound_parts;
mod threads;
mod video_parts;
mod video_tables;

#[cfg(test)]
mod tests;

pub use self::held::HeldSamples;
pub(super) use self::{
    ahead::PlannedBatches,
    buffer::EarlySample,
    fill::{FilledBatch, fill},
    mix::Mixer,
    part_reads::PartReads,
    threads::BatchThreads,
};
