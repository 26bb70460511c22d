//! What each rank is told of a whole global batch of sequences, so that ranks need not ask each other. It follows from the plan.

use std::sync::Arc;

use spdl_job::{Job, SampleCost};
use spdl_order::{BalancedBatch, Item, Plan, Step};
use tokio::sync::OnceCell;

use super::{DatasetSequences, OpenPools, kept_steps::KeptSteps};
use crate::feed::FeedError;

/// The pieces of so many sequences are found in less time than another thread takes to begin.
const FEW_SEQUENCES: usize = 32;

/// The sequences of all ranks in a step.
#[derive(Debug, Default)]
pub(crate) struct GlobalSequences {
    /// The labels that are learned, if the job has labels and the plan knows it. Bad documents are among them: they are found later.
    pub(crate) learned: Option<u64>,
    /// The lengths of the documents of each sequence, as a column has them, if the job has such a column.
    pub(crate) lengths: Vec<i32>,
    /// The sequences as they are dealt to ranks, if the job has `cost`.
    pub(crate) balanced: Option<BalancedBatch>,
}

/// The global batches that were used last. The ranks of a session share them.
pub(super) type KeptGlobalSequences = KeptSteps<OnceCell<Arc<GlobalSequences>>>;

impl DatasetSequences {
    /// Returns what the ranks of a `world` are told of a step.
    ///
    /// # Errors
    /// If the lengths of a pool's documents cannot be read, or are not those that were packed.
    pub(crate) async fn global_batch(
        self: &Arc<Self>,
        job: &Job,
        plan: &Plan,
        (step, world): (&Step, u32),
    ) -> Result<Arc<GlobalSequences>, FeedError> {
        // Ranks that are told nothing need no pools of the others.
        if self.labels.is_none() && !self.has_global_lengths && job.cost.is_none() {
            return Ok(Arc::default());
        }
        let cell = self.global_batches.cell((*step, world));
        let made = cell.get_or_try_init(|| async {
            let items = plan.step_items(step);
            let pools = self.open(&items).await?;
            let (sequences, cost) = (self.clone(), job.cost);
            if items.len() <= FEW_SEQUENCES {
                return Ok(Arc::new(sequences.of_all(&pools, items, (cost, world))));
            }
            let found = tokio::task::spawn_blocking(move || sequences.of_all(&pools, items, (cost, world))).await;
            found.map(Arc::new).map_err(|_| FeedError::Panicked { job: job.name.clone() })
        });
        made.await.cloned()
    }

    fn of_all(&self, pools: &OpenPools, items: Vec<Item>, (cost, world): (Option<SampleCost>, u32)) -> GlobalSequences {
        let (mut learned, mut lengths, mut costs) = (Some(0), Vec::new(), Vec::new());
        for item in &items {
            let found = self.pieces(pools, item);
            learned = learned.zip(found.learned).map(|(all, learned)| all + learned);
            let segments = || self.sequence.segments(&found.pieces);
            if self.has_global_lengths {
                lengths.extend(self.sequence.global_lengths_of(segments()));
            }
            costs.extend(cost.map(|cost| cost.of(segments())));
        }
        let balanced = cost.map(|cost| BalancedBatch::new(items, &costs, world, cost.within));
        GlobalSequences { learned, lengths, balanced }
    }
}
