//! Fills a slot with a batch: waits for room, gets all samples, mixes them, and waits for its turn.

use std::sync::Arc;

use spdl_job::layout::Header;
use spdl_order::Step;
use spdl_types::BatchId;
use spdl_wire::slab::SlotMut;
use tokio::sync::watch;

use super::{
    ahead::PlannedBatch,
    buffer::{BLOCKING_BYTES, BatchBuffer},
    filling::Filling,
};
use crate::feed::{
    FeedError,
    open::{Feed, FeedWork},
    progress::Wait,
    room::{BatchRoom, RoomAnswer},
};

/// A slot that holds a batch and is not published yet.
#[derive(Debug)]
pub(in crate::feed) struct FilledBatch {
    pub(in crate::feed) slot: SlotMut,
    pub(in crate::feed) room: Option<Arc<BatchRoom>>,
    pub(in crate::feed) used_bytes: u64,
    pub(in crate::feed) batch: BatchId,
}

/// Fills a slot with the planned batch, whose ragged values take `room`, if there are any; `turn` is the number of the first batch that is
/// not filled. A batch with ragged values is returned only once all batches before it are
/// filled and the trainer can have it: until then other batches can take its room.
pub(in crate::feed) async fn fill(
    feed: Arc<Feed>,
    sequence: u64,
    mut planned: PlannedBatch,
    (mut slot, room): (SlotMut, Option<BatchRoom>),
    mut turn: watch::Receiver<u64>,
) -> Result<FilledBatch, FeedError> {
    let room = room.map(Arc::new);
    loop {
        if let Some(room) = &room {
            await_room(&feed, sequence, room, &mut slot).await?;
        }
        let filling = Filling::new(feed.clone(), sequence, planned.step.from, room.clone());
        let buffer = filling.run(&mut planned, slot).await?;
        planned.holds.clear();
        let Some(room) = &room else {
            return finish(&feed, sequence, &planned, buffer).await;
        };
        if room.is_short() || room.is_revoked() {
            slot = buffer.into_slot();
        } else {
            let mut filled = finish(&feed, sequence, &planned, buffer).await?;
            room.settle(&mut filled.slot, usize::try_from(filled.used_bytes).expect("a slot lies in memory"));
            if may_hand_over(&feed, sequence, room, &mut turn).await {
                return Ok(FilledBatch { room: Some(room.clone()), ..filled });
            }
            slot = filled.slot;
        }
        restart(&feed, room, &mut slot)?;
    }
}

/// Waits until all batches before a filled one are handed over and the trainer can have this one, too. Returns true
/// then, and false if the batch has to start again.
async fn may_hand_over(feed: &Feed, sequence: u64, room: &BatchRoom, turn: &mut watch::Receiver<u64>) -> bool {
    tokio::select! {
        biased;
        () = comes(turn, sequence) => {}
        () = room.revoked() => return false,
    }
    if !room.is_released() {
        feed.progress.waits_for(sequence, Wait::Trainer);
    }
    let is_released = room.released().await;
    feed.progress.forget_wait(sequence);
    is_released
}

/// Waits until all batches before this one are filled.
async fn comes(turn: &mut watch::Receiver<u64>, sequence: u64) {
    // The driver, which sends it, lives as long as the batches that it fills.
    let _ = turn.wait_for(|next| *next >= sequence).await;
}

/// Waits until a batch may take room for its values.
async fn await_room(feed: &Feed, sequence: u64, room: &BatchRoom, slot: &mut SlotMut) -> Result<(), FeedError> {
    loop {
        if let Some(waits) = room.waits() {
            feed.progress.waits_for(sequence, Wait::Memory(waits));
        }
        match room.answer().await {
            RoomAnswer::Granted => return Ok(()),
            RoomAnswer::Revoked => restart(feed, room, slot)?,
            RoomAnswer::Refused(refusal) => {
                return Err(feed.memory.no_room(&feed.session.job.name, feed.rank, refusal));
            }
        }
    }
}

/// Lets a batch give its room back and wait for as much as it needs.
fn restart(feed: &Feed, room: &BatchRoom, slot: &mut SlotMut) -> Result<(), FeedError> {
    room.restart(slot).map_err(|error| feed.memory.too_large(&feed.session.job.name, feed.rank, &feed.layout, error))
}

/// Mixes the samples of a batch that is decoded, and completes its slot.
async fn finish(
    feed: &Arc<Feed>,
    sequence: u64,
    planned: &PlannedBatch,
    mut buffer: BatchBuffer,
) -> Result<FilledBatch, FeedError> {
    if feed.work == FeedWork::All && !planned.mixes.pairs.is_empty() {
        buffer = mix(feed, planned, buffer).await?;
    }
    let filled = if buffer.value_bytes() < BLOCKING_BYTES {
        written(feed, &planned.step, buffer)
    } else {
        let (of_batch, step) = (feed.clone(), planned.step);
        feed.blocking(move || written(&of_batch, &step, buffer)).await?
    };
    feed.progress.forget_wait(sequence);
    Ok(filled)
}

/// Completes the slot of a batch.
fn written(feed: &Feed, step: &Step, buffer: BatchBuffer) -> FilledBatch {
    let header = Header {
        magic: [0; 4],
        version: 0,
        columns: 0,
        entries: 0,
        capacity: 0,
        epoch: step.from.epoch,
        offset: step.from.offset,
        next_epoch: step.next.epoch,
        next_offset: step.next.offset,
        rank: feed.rank,
        world: feed.session.world,
        used_bytes: 0,
        learned: 0,
        reserved: [0; 7],
    };
    let (slot, used_bytes) = buffer.finish(&feed.layout, header);
    FilledBatch { slot, room: None, used_bytes, batch: feed.batch_id(step.from) }
}

/// Mixes the samples of a batch that is decoded.
async fn mix(feed: &Arc<Feed>, planned: &PlannedBatch, mut buffer: BatchBuffer) -> Result<BatchBuffer, FeedError> {
    let (of_batch, at, pairs) = (feed.clone(), planned.step.from, planned.mixes.pairs.clone());
    let mixed = feed.blocking(move || {
        if let Some(mixer) = &of_batch.mixer {
            mixer.mix(&of_batch.threads(at), &of_batch.layout, &mut buffer, &pairs);
        }
        buffer
    });
    mixed.await
}
