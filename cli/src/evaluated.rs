//! What a job chooses and packs of its dataset: the samples of its view, and the sequences of its documents.

use std::sync::Arc;

use spdl_dataset::{
    DatasetError, DatasetProgress, EvaluatedSequences, LossRequest, SequenceRequest, evaluate_sequences,
    view::{EvaluatedView, Undecided, evaluate},
};
use spdl_job::{Job, JobError, JobFile, LabelRule};
use spdl_order::{DatasetFacts, Located, OrderParams, Plan, PlanError, view::SampleSet};
use spdl_sequence::{Piece, PoolEpoch, PoolLayout, SequenceParams};
use spdl_shard::{
    format::FieldValue,
    manifest::Manifest,
    sequences::{MadeSequences, SequenceTable},
    store::DatasetStore,
};
use spdl_types::SampleId;
use spdl_worker::{
    decode::{count_learned, count_tokens},
    feed::StoreAccess,
};

/// What was evaluated of a job on its dataset, or read.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvaluatedJob {
    /// The samples of the view, if the job has one.
    pub(crate) view: Option<Arc<SampleSet>>,
    /// The sequences, if the job packs documents.
    pub(crate) sequences: Option<SequenceTable>,
    /// Their file, if they were evaluated here.
    pub(crate) made: Option<MadeSequences>,
}

/// Why the view or the sequences of a job cannot be evaluated.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EvaluateError {
    /// A key of the job is wrong.
    #[error(transparent)]
    Job(#[from] JobError),
    /// The dataset cannot be read, or does not fit the job.
    #[error(transparent)]
    Dataset(#[from] DatasetError),
}

/// Receives how far the evaluation is, and what it is of.
pub(crate) type OnEvaluation<'p> = &'p (dyn Fn(&'static str, DatasetProgress) + Send + Sync);

/// Evaluates the view and the sequences of a job, and notes their fingerprints in its file. What is noted already must be the same.
/// Also returns the facts that freezing the job needs, and calls `warn` with what the user should know.
///
/// # Errors
/// If the job is not valid, or the dataset cannot be read.
pub(crate) async fn evaluate_job(
    file: &mut JobFile,
    (store, manifest): (&DatasetStore, &Manifest),
    progress: OnEvaluation<'_>,
    warn: &(dyn Fn(&str) + Send + Sync),
) -> Result<(EvaluatedJob, DatasetFacts), EvaluateError> {
    let columns = file.check()?;
    let (mut found, mut facts) = (EvaluatedJob::default(), manifest.facts());
    let undecided_allowed = file.undecided_allowed(manifest.records());
    if let Some(view) = &mut file.view {
        let on_progress = |at| progress("evaluating view", at);
        let EvaluatedView { set, samples, facts: of_view, missing_keys, undecided, .. } =
            evaluate(store, manifest, view, undecided_allowed, &on_progress).await?;
        if let Undecided { records, first: Some(first) } = &undecided {
            warn(&format!("the view leaves out {records} of the dataset's records, which cannot be read: {first}"));
        }
        missing_keys.iter().for_each(|missing| warn(&missing.to_string()));
        if let Some(noted) = view.samples.replace(samples).filter(|noted| *noted != samples) {
            let problem = format!("is {noted}; evaluating it gives {samples}");
            return Err(DatasetError::View { key: "samples", problem }.into());
        }
        (found.view, facts) = (Some(set), of_view);
    }
    if let (Some(keys), Some(sequence)) = (file.sequence_keys()?, &mut file.sequence) {
        let tokens = columns.iter().find(|column| column.kind.name() == "tokens").expect("a checked job has one");
        let loss = LabelRule::counted(&columns).and_then(|LabelRule { shifted, loss_from }| {
            let count = move |mask: &FieldValue, tokens| count_learned(&keys, shifted, mask, tokens);
            Some(LossRequest { from: loss_from?.to_owned(), count: Arc::new(count) })
        });
        let request = SequenceRequest {
            from: tokens.from.clone(),
            params: keys.params(),
            pool_tokens: keys.pool_tokens,
            view: found.view.clone(),
            unread_allowed: undecided_allowed,
            count: Arc::new(count_tokens),
            loss,
        };
        let on_progress = |at| progress("packing documents", at);
        let EvaluatedSequences { made, table, facts: of_sequences, unread, first_unlearned, .. } =
            evaluate_sequences(store, manifest, request, &on_progress).await?;
        if let Undecided { records, first: Some(first) } = &unread {
            warn(&format!("{records} documents are left out, which cannot be read: {first}"));
        }
        if let (Some(learned), Some(first)) = (table.learned(), first_unlearned) {
            let documents = learned.unlearned_documents;
            warn(&format!("{documents} documents have no token that is learned; the first is {first}"));
        }
        let pools = made.fingerprint;
        if let Some(noted) = sequence.pools.replace(pools).filter(|noted| *noted != pools) {
            let problem = format!("`pools` is {noted}; packing the documents gives {pools}");
            return Err(DatasetError::Sequence { problem }.into());
        }
        (found.sequences, found.made, facts) = (Some(table), Some(made), of_sequences);
    }
    Ok((found, facts))
}

impl EvaluatedJob {
    /// Returns the plan of a job with these parameters of the order.
    ///
    /// # Errors
    /// [`PlanError`] if there is none.
    pub(crate) fn plan(&self, job: &Job, manifest: &Manifest, order: OrderParams) -> Result<Plan, PlanError> {
        let blocks = || manifest.block_samples();
        match (&self.sequences, &self.view) {
            (Some(sequences), _) => Plan::new(sequences.pools().sequences(), job.seed, order),
            (None, None) => Plan::new(&blocks(), job.seed, order),
            (None, Some(view)) => Plan::of_view(&blocks(), view, job.seed, order),
        }
    }

    /// Returns how the dataset is read: what was evaluated here need not be stored.
    pub(crate) fn stores(&self) -> StoreAccess {
        let (views, sequences) = (self.view.iter().cloned().collect(), self.made.iter().cloned().collect());
        StoreAccess { views, sequences, ..StoreAccess::default() }
    }
}

/// Finds the documents of a job's sequences.
pub(crate) struct PackedDocuments {
    table: SequenceTable,
    view: Option<Arc<SampleSet>>,
    params: SequenceParams,
    seed: u64,
    /// The pool that was used last, with its epoch and number.
    last: Option<((u64, u32), PoolEpoch)>,
}

impl PackedDocuments {
    /// Returns what finds the documents of `job`; `None` if the job has no sequences.
    pub(crate) fn new(job: &Job, evaluated: EvaluatedJob) -> Option<Self> {
        let EvaluatedJob { view, sequences, .. } = evaluated;
        let (table, params) = (sequences?, job.sequence.as_ref()?.params());
        Some(Self { table, view, params, seed: job.seed, last: None })
    }

    /// Returns the documents of a sequence, as samples of the dataset, in the order of their places. `at` is the folder of the
    /// manifest.
    ///
    /// # Errors
    /// If the lengths of documents cannot be read, or are not those that were packed.
    pub(crate) async fn of(
        &mut self,
        at: &DatasetStore,
        epoch: u64,
        located: Located,
    ) -> Result<Vec<SampleId>, DatasetError> {
        let key = (epoch, located.block);
        if self.last.as_ref().is_none_or(|(last, _)| *last != key) {
            let documents = self.table.read_pool(at, located.block).await?;
            let layout = PoolLayout::new(&self.params, documents.lengths);
            let layout = layout.map_err(|error| DatasetError::Sequence { problem: error.to_string() })?;
            self.last = Some((key, PoolEpoch::new(Arc::new(layout), self.seed, epoch, located.block)));
        }
        let (_, pool) = self.last.as_ref().expect("it was set");
        let mut pieces = Vec::new();
        pool.pieces(located.index, &mut pieces);
        let first = self.table.documents(located.block).start;
        let document = |piece: &Piece| {
            let number = first + u64::from(piece.document);
            self.view.as_ref().map_or(SampleId(number), |set| set.select(number))
        };
        Ok(pieces.iter().map(document).collect())
    }
}
