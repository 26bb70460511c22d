//! What the samples of a job are, on its dataset.

use std::sync::Arc;

use spdl_order::{DatasetFacts, OrderParams, Plan, PlanError, view::SampleSet};
use spdl_store::StoreError;
use spdl_types::Fingerprint;

use crate::{
    manifest::Manifest,
    sequences::{SequenceTable, open_sequences},
    store::DatasetStore,
    view::open_view,
};

/// What the samples of a job are.
#[derive(Clone, Debug, Default)]
pub enum JobSamples {
    /// Those of the dataset.
    #[default]
    All,
    /// Those that its view keeps.
    View(Arc<SampleSet>),
    /// Sequences of documents, which are the dataset's samples or those of a view.
    Sequences(SequenceTable),
}

impl JobSamples {
    /// Reads what was evaluated of a job: its view and its pools, if it has them. `at` is the folder of the manifest.
    ///
    /// # Errors
    /// If it cannot be read, or is of another dataset or view.
    pub async fn open(
        at: &DatasetStore,
        manifest: &Manifest,
        view: Option<Fingerprint>,
        pools: Option<Fingerprint>,
    ) -> Result<Self, StoreError> {
        let view = match view {
            Some(view) => Some(open_view(at, manifest, view).await?),
            None => None,
        };
        match pools {
            Some(pools) => open_sequences(at, manifest, view, pools).await.map(Self::Sequences),
            None => Ok(view.map_or(Self::All, Self::View)),
        }
    }

    /// Returns the view, if there is one: of samples, or of documents.
    #[must_use]
    pub const fn view(&self) -> Option<&Arc<SampleSet>> {
        match self {
            Self::All => None,
            Self::View(view) => Some(view),
            Self::Sequences(table) => table.view(),
        }
    }

    /// Returns the sequences, if samples are sequences.
    #[must_use]
    pub const fn sequences(&self) -> Option<&SequenceTable> {
        if let Self::Sequences(table) = self { Some(table) } else { None }
    }

    /// Returns the facts that creating a job needs: about the samples, and the blocks or pools that hold them.
    #[must_use]
    pub fn facts(&self, manifest: &Manifest) -> DatasetFacts {
        let mut facts = manifest.facts();
        if let Some(view) = self.view() {
            let has_samples = |block: &u32| !manifest.kept_samples(*block, Some(view)).is_empty();
            let blocks = (0..manifest.block_count()).filter(has_samples).count() as u64;
            facts = DatasetFacts { samples: view.len(), documents: view.len(), blocks, ..facts };
        }
        self.sequences().map_or(facts, |table| table.facts(facts))
    }

    /// Returns the plan of a job with this seed and order. Its blocks are those of the dataset, or pools of them.
    ///
    /// # Errors
    /// [`PlanError`] if there is none.
    pub fn plan(&self, manifest: &Manifest, seed: u64, order: OrderParams) -> Result<Plan, PlanError> {
        match self {
            Self::All => Plan::new(&manifest.block_samples(), seed, order),
            Self::View(view) => Plan::of_view(&manifest.block_samples(), view, seed, order),
            Self::Sequences(table) => Plan::new(table.pools().sequences(), seed, order),
        }
    }
}
