//! The task that keeps a rank's slots filled: it carries out the effects of [`FeedCore`].

use std::{collections::BTreeMap, sync::Arc};

use futures::{FutureExt, StreamExt, stream::FuturesUnordered};
use spdl_feed::{FeedCore, FeedEffect};
use spdl_types::Position;
use tokio::sync::{mpsc, watch};
use tracing::Instrument;

use super::{
    FeedError,
    batch::{FilledBatch, PlannedBatches, fill},
    open::{Feed, ReservedFeed},
    progress::FeedPhase,
};
use crate::fetch::BlockSource;

/// An event that a [`RankFeed`](super::RankFeed) reports to its consumer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeedEvent {
    /// A slot holds the next batch.
    Filled {
        /// Number of the batch, from 0.
        sequence: u64,
        /// The slot that holds the batch.
        slot: u32,
        /// Bytes of the batch.
        used_bytes: u64,
    },
    /// The last epoch is delivered.
    End {
        /// Number of batches.
        sequence: u64,
        /// Position at which the stream ends.
        position: Position,
    },
}

/// The task, with what it needs to open its [`Feed`].
pub(super) struct FeedDriver {
    pub(super) reserved: ReservedFeed,
    pub(super) events: mpsc::UnboundedSender<Result<FeedEvent, FeedError>>,
}

impl FeedDriver {
    pub(super) async fn run(self, from: Position, freed: mpsc::UnboundedReceiver<u32>) {
        let result = self.feed(from, freed).await;
        self.reserved.progress.enter(FeedPhase::Over);
        // The receiver is gone if the feed was dropped.
        let _ = self.events.send(result);
    }

    /// Carries out the core's effects until the end of the stream.
    async fn feed(&self, from: Position, mut freed: mpsc::UnboundedReceiver<u32>) -> Result<FeedEvent, FeedError> {
        let ReservedFeed { resources, slab, room, layout, progress, .. } = &self.reserved;
        let feed = Arc::new(self.reserved.open_counted().await?);
        // The phase changes before the first request for a block: a rank that waits for that request does not wait for
        // its dataset to be opened.
        progress.enter(FeedPhase::Filling);
        let mut read_ahead = resources.tuning.read_ahead();
        let steps = *read_ahead.borrow_and_update();
        let mut core = FeedCore::new(feed.session.steps_of(feed.rank), from, slab.slots(), steps);
        // Other workers can ask for the blocks as long as this lives.
        let shared: Vec<Arc<dyn BlockSource>> = feed.datasets.views().map(|view| view.clone() as _).collect();
        for (view, blocks) in feed.datasets.views().zip(&shared) {
            if let Some((session, dataset)) = view.shared_as() {
                resources.fetcher.peers.add_source(session, dataset, blocks);
            }
        }
        let mut planned = PlannedBatches::new(feed.clone());
        let mut filling = FuturesUnordered::new();
        let mut done = BTreeMap::new();
        // Sends the number of the first batch that is not filled. A batch with ragged values counts as filled only once
        // all batches before it are: until then they can take its room.
        let (turn, next) = watch::channel(0);
        loop {
            while let Some(effect) = core.poll_effect() {
                match effect {
                    FeedEffect::Prepare(step) => planned.prepare(step),
                    FeedEffect::Fill { sequence, slot, step } => {
                        let room = room.as_ref().map(|room| room.begin(sequence, slot, layout));
                        let slot = slab.try_take(slot).expect("a slot that the core has filled is free");
                        let (plan, feed, turn) = (planned.take(step, sequence), feed.clone(), next.clone());
                        let filled = async move {
                            let batch = plan.known(&feed).await?;
                            let span = batch.span.clone();
                            fill(feed, sequence, batch, (slot, room), turn).instrument(span).await
                        };
                        filling.push(filled.map(move |filled| (sequence, filled)));
                    }
                    FeedEffect::HandOver { sequence, .. } => {
                        self.publish(sequence, done.remove(&sequence).expect("all batches that were sent are done")?);
                    }
                    FeedEffect::Fail { sequence } => {
                        let failed: Result<FilledBatch, _> = done.remove(&sequence).expect("what failed is done");
                        return Err(failed.expect_err("the core has reported the failure"));
                    }
                    FeedEffect::End { sequence, position } => return Ok(FeedEvent::End { sequence, position }),
                }
            }
            progress.enter(if core.is_filling() { FeedPhase::Filling } else { FeedPhase::NoSlot });
            tokio::select! {
                Some((sequence, filled)) = filling.next() => {
                    if filled.is_ok() { core.handle_filled(sequence) } else { core.handle_failed(sequence) }
                    done.insert(sequence, filled);
                    turn.send_replace(core.next_hand_over());
                }
                Some(slot) = freed.recv() => {
                    if let Some(room) = room {
                        room.free(slab, slot);
                    }
                    assert!(core.handle_freed(slot), "slot {slot} was freed and not lent");
                }
                Ok(()) = read_ahead.changed() => core.set_read_ahead(*read_ahead.borrow_and_update()),
                Some(()) = sweep(&feed) => {}
            }
        }
    }

    fn publish(&self, sequence: u64, FilledBatch { slot, room, used_bytes, batch }: FilledBatch) {
        let slot = slot.publish();
        if let Some(room) = room {
            room.hand_over();
        }
        self.reserved.progress.publish(slot, batch, used_bytes);
        let _ = self.events.send(Ok(FeedEvent::Filled { sequence, slot, used_bytes }));
    }
}

/// Sweeps the shared samples once; returns `None` if this rank shares nothing.
async fn sweep(feed: &Feed) -> Option<()> {
    feed.shared()?.sweep().await;
    Some(())
}
