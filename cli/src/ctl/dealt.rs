//! Which samples each rank gets in a step: its slice of the plan, or what is dealt to it by cost if the job has `cost`.

use std::sync::Arc;

use spdl_job::{SampleCost, Sequence};
use spdl_order::{BalancedBatch, CostSpread, Item, ItemKind, Plan, Step};
use spdl_shard::sizes::SizeTable;
use spdl_store::StoreError;

use super::job_file::OpenJob;
use crate::packed_documents::PackedDocuments;

/// Deals the steps of a job to ranks.
pub(crate) struct StepDealer {
    plan: Plan,
    world: u32,
    costs: Option<SampleCosts>,
}

/// Finds what the samples of a job cost.
enum SampleCosts {
    Sequences(Box<SequenceCosts>),
    Sizes(Arc<SizeTable>, SampleCost),
}

/// A step that is dealt to ranks.
pub(crate) enum DealtStep<'p> {
    /// Each rank has its slice.
    Sliced { plan: &'p Plan, step: Step, world: u32 },
    /// Ranks have samples by what these cost.
    Balanced { batch: BalancedBatch, costs: Vec<u64>, world: u32 },
}

/// Finds what the sequences of a job cost.
struct SequenceCosts {
    cost: SampleCost,
    sequence: Sequence,
    documents: PackedDocuments,
}

impl StepDealer {
    /// Deals the steps of a job to `world` ranks.
    pub(crate) fn new(open: &OpenJob, world: u32) -> Self {
        let of_sequences = |cost| {
            let sequence = *open.job.sequence.as_deref()?;
            let documents = PackedDocuments::new(&open.job, &open.datasets)?;
            Some(SampleCosts::Sequences(Box::new(SequenceCosts { cost, sequence, documents })))
        };
        let costs = open.job.cost.and_then(|cost| match &open.datasets.first().evaluated.sizes {
            Some(sizes) => Some(SampleCosts::Sizes(sizes.clone(), cost)),
            None => of_sequences(cost),
        });
        Self { plan: open.plan.clone(), world, costs }
    }

    /// Deals a step.
    ///
    /// # Errors
    /// If the lengths of documents cannot be read, or are not those that were packed.
    pub(crate) async fn deal(&mut self, step: &Step) -> Result<DealtStep<'_>, StoreError> {
        let Self { plan, world, costs } = self;
        let (world, step) = (*world, *step);
        let sequences = match costs {
            None => return Ok(DealtStep::Sliced { plan, step, world }),
            Some(SampleCosts::Sizes(sizes, cost)) => {
                let (batch, costs) = sizes.deal(plan.step_items(&step), cost, world);
                return Ok(DealtStep::Balanced { batch, costs, world });
            }
            Some(SampleCosts::Sequences(sequences)) => sequences,
        };
        let items = plan.step_items(&step);
        let mut costs = Vec::with_capacity(items.len());
        for item in &items {
            costs.push(sequences.of(item).await?);
        }
        let batch = BalancedBatch::new(items, &costs, world, sequences.cost.within);
        Ok(DealtStep::Balanced { batch, costs, world })
    }

    /// Returns the padding of a step if each rank pads its samples to its longest one: with the job's buckets, and without them. `None` if
    /// the job has none.
    pub(crate) fn padding(&self, step: &Step) -> Option<[PaddedPlaces; 2]> {
        let Some(SampleCosts::Sizes(sizes, cost)) = &self.costs else { return None };
        cost.measured?.bucket?;
        let of = |plan: &Plan| {
            let (batch, _) = sizes.deal(plan.step_items(step), cost, self.world);
            let mut padding = PaddedPlaces::default();
            for rank in 0..self.world {
                let valid = batch.rank_items(rank).filter(|item| item.kind != ItemKind::Invalid);
                let of_rank = valid.map(|item| u64::from(sizes.of(item.located.id)));
                let (count, sum, most) =
                    of_rank.fold((0, 0, 0), |(count, sum, most), size| (count + 1, sum + size, size.max(most)));
                padding.places += count * most;
                padding.filled += sum;
            }
            padding
        };
        Some([of(&self.plan), of(&self.plan.unbucketed())])
    }
}

/// The places of samples that are padded to the longest one of their rank, and those that are filled.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct PaddedPlaces {
    pub(crate) places: u64,
    pub(crate) filled: u64,
}

impl SequenceCosts {
    async fn of(&mut self, item: &Item) -> Result<u64, StoreError> {
        if item.kind == ItemKind::Invalid {
            return Ok(0);
        }
        let pieces = self.documents.pieces(item).await?;
        Ok(self.cost.of(self.sequence.segments(&pieces)))
    }
}

impl DealtStep<'_> {
    /// Replaces the contents of `items` by those of `rank`.
    pub(crate) fn rank_items(&self, rank: u32, items: &mut Vec<Item>) {
        match self {
            Self::Sliced { plan, step, world } => plan.rank_items(step, rank, *world, items),
            Self::Balanced { batch, .. } => {
                items.clear();
                items.extend(batch.rank_items(rank));
            }
        }
    }

    /// Returns how even a step is that is dealt by cost.
    pub(crate) fn spread(&self) -> Option<CostSpread> {
        match self {
            Self::Sliced { .. } => None,
            Self::Balanced { batch, costs, world } => Some(batch.spread(costs, *world)),
        }
    }
}
