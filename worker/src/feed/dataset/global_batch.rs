//! What each rank is told of a whole global batch of sequences, so that ranks need not ask each other. It follows from the plan.

use std::{collections::VecDeque, sync::Arc};

use futures::future::try_join_all;
use parking_lot::Mutex;
use spdl_job::Job;
use spdl_order::{ItemKind, Plan, Step};
use tokio::sync::OnceCell;

use super::{DatasetSequences, SequencePieces};
use crate::feed::FeedError;

/// Number of steps that are kept: those that ranks of a worker fill at once, and some more.
const KEPT_STEPS: usize = 64;

/// The sequences of all ranks in a step.
#[derive(Debug, Default)]
pub(crate) struct GlobalBatch {
    /// The labels that are learned, if the job has labels and the plan knows it. Bad documents are among them: they are found later.
    pub(crate) learned: Option<u64>,
}

/// The global batches that were used last, the latest first. Ranks share them.
#[derive(Default)]
pub(super) struct GlobalBatches(Mutex<VecDeque<(Step, GlobalBatchCell)>>);

type GlobalBatchCell = Arc<OnceCell<Arc<GlobalBatch>>>;

impl GlobalBatches {
    fn cell(&self, step: &Step) -> GlobalBatchCell {
        let mut steps = self.0.lock();
        if let Some((_, cell)) = steps.iter().find(|(other, _)| other == step) {
            return cell.clone();
        }
        steps.truncate(KEPT_STEPS - 1);
        steps.push_front((*step, GlobalBatchCell::default()));
        steps[0].1.clone()
    }
}

impl DatasetSequences {
    /// Returns what ranks are told of a step.
    ///
    /// # Errors
    /// If the lengths of a pool's documents cannot be read, or are not those that were packed.
    pub(crate) async fn global_batch(
        &self,
        job: &Job,
        plan: &Plan,
        step: &Step,
    ) -> Result<Arc<GlobalBatch>, FeedError> {
        let cell = self.global_batches.cell(step);
        let made = cell.get_or_try_init(|| async {
            let mut items = Vec::new();
            plan.rank_items(step, 0, 1, &mut items);
            items.retain(|item| item.kind != ItemKind::Invalid);
            let found = try_join_all(items.iter().map(|item| self.pieces(job, item.at, item.located))).await?;
            let learned = |pieces: &SequencePieces| pieces.learned;
            Ok::<_, FeedError>(Arc::new(GlobalBatch { learned: found.iter().map(learned).sum() }))
        });
        made.await.cloned()
    }
}
