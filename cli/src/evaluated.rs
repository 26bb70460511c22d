//! What a job chooses, packs and measures of its dataset: the samples of its view, the sequences of its documents, and the sizes of samples.

use std::sync::Arc;

use spdl_dataset::{
    DatasetError, DatasetProgress, EvaluatedSequences, EvaluatedSizes, KeptSequences, LongDocuments, LossRequest,
    MadePacking, SampleMeasure, SequencePacking, SequenceRequest, SizeRequest, evaluate_pools, evaluate_sequences,
    evaluate_sizes,
    view::{EvaluatedView, Undecided, evaluate},
};
use spdl_job::{
    Column, ColumnKind, CostTable, JobError, JobFile, LabelRule, SampleCostFile, Sequence, SizeName, ViewFile,
    decoded_columns,
};
use spdl_order::view::SampleSet;
use spdl_sequence::{LongDocument, PackMethod};
use spdl_shard::{
    format::FieldValue,
    manifest::{Manifest, TokenizerFacts},
    samples::JobSamples,
    sequences::SequenceTable,
    sizes::{SizeTable, open_sizes},
    store::DatasetStore,
};
use spdl_store::{StoreError, StoreOptions};
use spdl_types::Fingerprint;
use spdl_worker::decode::{count_learned, count_pixels, count_tokens};

/// A model has at most one part in so many more ids than the tokenizer, or so many more.
const MAX_ROUNDING: u32 = 16;
const MIN_ROUNDING: u64 = 1024;
/// Packing fewer documents takes some hundredths of a second at most.
const MIN_KEPT_DOCUMENTS: u64 = 1_000_000;

/// What was evaluated of a job on its dataset, or read.
#[derive(Clone, Debug, Default)]
pub(crate) struct EvaluatedJob {
    /// What its samples are.
    pub(crate) samples: JobSamples,
    /// The file of its sequences, with the note about them, if they were evaluated here.
    pub(crate) made: Option<MadePacking>,
    /// The sizes by which its samples are dealt to ranks, if they are measured.
    pub(crate) sizes: Option<Arc<SizeTable>>,
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

/// What is done with sequences that were packed before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum EarlierPackings {
    /// They are read, if they were kept. If not, those of many documents are kept in a folder on disk, if that can be written to, without the
    /// lengths that indexes have.
    Use,
    /// They are packed again.
    Ignore,
}

/// Receives how far the evaluation is, and what it is of.
pub(crate) type OnEvaluation<'p> = &'p (dyn Fn(&'static str, DatasetProgress) + Send + Sync);

/// Evaluates the view, the sequences and the sizes of a job on one of its datasets, and notes their fingerprints in its file: those of its only
/// dataset, or of source number `source`. What is noted already must be the same. Calls `warn` with what the user should know.
///
/// # Errors
/// If the job is not valid, or the dataset cannot be read.
pub(crate) async fn evaluate_job(
    file: &mut JobFile,
    source: Option<usize>,
    (store, manifest): (&DatasetStore, &Manifest),
    earlier: EarlierPackings,
    (progress, warn): (OnEvaluation<'_>, &(dyn Fn(&str) + Send + Sync)),
) -> Result<EvaluatedJob, EvaluateError> {
    let columns = file.check()?;
    check_vocab(&columns, manifest)?;
    let mut found = EvaluatedJob::default();
    let of = source.map_or_else(String::new, |number| format!("source `{}`: ", file.source[number].name));
    let warn = |text: &str| warn(&format!("{of}{text}"));
    let undecided_allowed = file.bad_allowed(manifest.records());
    let view = match source {
        Some(number) => &mut file.source[number].view,
        None => &mut file.view,
    };
    if let Some(view) = view {
        found.samples = evaluate_view(view, (store, manifest), undecided_allowed, progress, &warn).await?;
    }
    let view = view.as_ref().and_then(|view| view.samples);
    let documents = found.samples.kept().map_or_else(|| manifest.samples(), |kept| kept.len());
    let unread_allowed = file.bad_allowed(documents);
    if let (Some(keys), Some(sequence)) = (file.sequence_keys()?, &mut file.sequence) {
        let packed = PackedColumns { keys, columns: &columns, long: sequence.long, view, unread_allowed };
        let dataset = (store, manifest, found.samples.kept().cloned());
        let (table, made) = pack_documents(packed, dataset, earlier, (progress, &warn)).await?;
        let pools = table.fingerprint();
        let noted = match source {
            Some(number) => &mut file.source[number].pools,
            None => &mut sequence.pools,
        };
        if let Some(noted) = noted.replace(pools).filter(|noted| *noted != pools) {
            let problem = format!("{of}`pools` is {noted}; packing the documents gives {pools}");
            return Err(DatasetError::Sequence { problem }.into());
        }
        found = EvaluatedJob { samples: JobSamples::Sequences(table), made, sizes: None };
    }
    if let Some(cost) = &mut file.cost {
        let of = (found.samples.view().map(|view| view.kept().clone()), unread_allowed);
        found.sizes = measure_samples(cost, &columns, (store, manifest), of, progress, &warn).await?;
    }
    Ok(found)
}

/// What of a job decides how documents are packed, and what is said of them.
struct PackedColumns<'j> {
    keys: Sequence,
    columns: &'j [Column],
    /// What happens to a long document, if the file has it.
    long: Option<LongDocument>,
    /// The fingerprint of the documents, if these are not all of the dataset.
    view: Option<Fingerprint>,
    unread_allowed: u64,
}

/// Packs the documents of a dataset, or of a view of it. Returns what is to be kept of a packing that was made, too.
async fn pack_documents(
    PackedColumns { keys, columns, long, view, unread_allowed }: PackedColumns<'_>,
    (store, manifest, documents): (&DatasetStore, &Manifest, Option<Arc<SampleSet>>),
    earlier: EarlierPackings,
    (progress, warn): (OnEvaluation<'_>, &(dyn Fn(&str) + Send + Sync)),
) -> Result<(SequenceTable, Option<MadePacking>), EvaluateError> {
    let tokens = columns.iter().find(|column| column.kind.name() == "tokens").expect("a checked job has one");
    let mut masks = String::new();
    let loss = LabelRule::counted(columns).and_then(|LabelRule { shifted, loss_from }| {
        let count = move |mask: &FieldValue, tokens| count_learned(&keys, shifted, mask, tokens);
        let from = loss_from?.to_owned();
        masks = format!("{from:?} {shifted} {:?} {:?} {}", keys.bos, keys.eos, keys.eos_in_loss);
        Some(LossRequest { from, count: Arc::new(count) })
    });
    // Where a mask says what is learned, a document is a question with its answer; who has chosen `long` knows of it.
    let warns_of_long = loss.is_some() && long.is_none() && keys.packing != PackMethod::Chunk;
    let request = SequenceRequest {
        from: tokens.from.clone(),
        params: keys.params(),
        pool_tokens: keys.pool_tokens,
        view: documents,
        unread_allowed,
        count: Arc::new(count_tokens),
        loss,
    };
    let packing = SequencePacking { manifest, view, request: &request, loss: &masks };
    let on_progress = |at| progress("packing documents", at);
    let (packed, made) = packed_sequences(store, packing, earlier, &on_progress).await?;
    let KeptSequences { table, unread, first_unlearned, long } = packed;
    if let Undecided { records, first: Some(first) } = &unread {
        warn(&format!("{records} documents are left out, which cannot be read: {first}"));
    }
    if let (Some(learned), Some(first)) = (table.learned(), first_unlearned) {
        let documents = learned.unlearned_documents;
        warn(&format!("{documents} documents have no token that is learned; the first is {first}"));
    }
    if let (true, LongDocuments { documents, longest, first: Some(first) }) = (warns_of_long, long) {
        let (are, is_cut) = match documents {
            1 => ("document with a mask is", "is cut"),
            _ => ("documents with masks are", "are cut"),
        };
        warn(&format!(
            "{documents} {are} longer than a sequence of {} tokens, and {is_cut}: a part can have an answer without its question. \
             The first is {first}; with `seq_len = {longest}` all are whole. In `sequence`, `long = \"drop\"` leaves longer ones \
             out, `\"truncate\"` keeps their beginnings, and `\"split\"` cuts them without this warning",
            keys.seq_len
        ));
    }
    Ok((table, made))
}

/// Packs documents, or reads how they were packed. Returns what is to be kept of a packing that was made, too.
async fn packed_sequences(
    store: &DatasetStore,
    packing: SequencePacking<'_>,
    earlier: EarlierPackings,
    progress: &(dyn Fn(DatasetProgress) + Send + Sync),
) -> Result<(KeptSequences, Option<MadePacking>), DatasetError> {
    if earlier == EarlierPackings::Use
        && let Some(kept) = packing.kept(store).await
    {
        return Ok((kept, None));
    }
    let SequencePacking { manifest, request, .. } = packing;
    let is_kept = earlier == EarlierPackings::Use
        && request.documents_of(manifest) >= MIN_KEPT_DOCUMENTS
        && store.local_folder().is_some();
    let found = match is_kept {
        true => evaluate_pools(store, manifest, request.clone(), progress).await?,
        false => evaluate_sequences(store, manifest, request.clone(), progress).await?,
    };
    let made = packing.made(&found);
    if is_kept {
        match keep(store, &made).await {
            // What is kept need not be in memory.
            Ok(()) => {
                if let Some(kept) = packing.kept(store).await {
                    return Ok((kept, None));
                }
            }
            Err(error) => tracing::debug!(%error, "each process packs the documents, as the result cannot be kept"),
        }
    }
    let EvaluatedSequences { table, unread, first_unlearned, long, .. } = found;
    Ok((KeptSequences { table, unread, first_unlearned, long }, Some(made)))
}

async fn keep(store: &DatasetStore, made: &MadePacking) -> Result<(), StoreError> {
    made.keep(&DatasetStore::create_with(store.url(), &StoreOptions::from_env())?).await
}

/// Measures the samples of a view, or all, if their cost is of what is measured, and notes the fingerprint of their sizes.
async fn measure_samples(
    cost: &mut SampleCostFile,
    columns: &[Column],
    (store, manifest): (&DatasetStore, &Manifest),
    (view, unread_allowed): (Option<Arc<SampleSet>>, u64),
    progress: OnEvaluation<'_>,
    warn: &(dyn Fn(&str) + Send + Sync),
) -> Result<Option<Arc<SizeTable>>, EvaluateError> {
    let CostTable { of, field, scale, sizes: noted, .. } = cost.table();
    let column = |is_of: fn(&ColumnKind) -> bool| {
        decoded_columns(columns).find(|column| is_of(&column.kind)).expect("a checked job has one")
    };
    let measure = match (of, field) {
        (_, Some(field)) => SampleMeasure::Number { field, scale: scale.unwrap_or(1) },
        (Some(SizeName::Pixels), None) => {
            let picture = column(|kind| matches!(kind, ColumnKind::Image(_)));
            SampleMeasure::Pixels { from: picture.from.clone(), count: Arc::new(count_pixels) }
        }
        (Some(SizeName::Seconds), None) => {
            let sound = column(|kind| matches!(kind, ColumnKind::Audio(_)));
            let span = match &sound.kind {
                ColumnKind::Audio(audio) => audio.span.clone().map(|span| [span.start, span.seconds]),
                _ => None,
            };
            SampleMeasure::Milliseconds { from: sound.from.clone(), span: span.unwrap_or_default() }
        }
        (Some(SizeName::Tokens) | None, None) => return Ok(None),
    };
    let on_progress = |at| progress("measuring samples", at);
    let request = SizeRequest { measure, view, unread_allowed };
    if let Some(noted) = noted
        && let Ok(stored) = open_sizes(store, manifest, noted).await
        && stored.measured() == request.text()
    {
        return Ok(Some(stored));
    }
    let EvaluatedSizes { sizes, unread, .. } = evaluate_sizes(store, manifest, request, &on_progress).await?;
    if let Undecided { records, first: Some(first) } = &unread {
        warn(&format!("{records} samples cannot be measured, and cost nothing: {first}"));
    }
    let found = sizes.fingerprint();
    if let Some(noted) = cost.note_sizes(found).filter(|noted| *noted != found) {
        let problem = format!("has `sizes` = {noted}; measuring the samples gives {found}");
        return Err(DatasetError::Option { option: "cost", problem }.into());
    }
    Ok(Some(sizes))
}

/// Evaluates a view, and notes the fingerprint of its samples.
async fn evaluate_view(
    view: &mut ViewFile,
    (store, manifest): (&DatasetStore, &Manifest),
    undecided_allowed: u64,
    progress: OnEvaluation<'_>,
    warn: &(dyn Fn(&str) + Send + Sync),
) -> Result<JobSamples, EvaluateError> {
    let on_progress = |at| progress("evaluating view", at);
    let EvaluatedView { set, samples, missing_keys, undecided, .. } =
        evaluate(store, manifest, view, undecided_allowed, &on_progress).await?;
    if let Undecided { records, first: Some(first) } = &undecided {
        warn(&format!("the view leaves out {records} of the dataset's records, which cannot be read: {first}"));
    }
    missing_keys.iter().for_each(|missing| warn(&missing.to_string()));
    if let Some(noted) = view.samples.replace(samples).filter(|noted| *noted != samples) {
        let problem = format!("is {noted}; evaluating it gives {samples}");
        return Err(DatasetError::View { key: "samples", problem }.into());
    }
    Ok(JobSamples::View(set))
}

/// Checks that columns of tokens have the vocabulary that the dataset was tokenized with, if its manifest has that. A model may have a few
/// more ids than the tokenizer, for matrices of round sizes.
fn check_vocab(columns: &[Column], manifest: &Manifest) -> Result<(), DatasetError> {
    let Some(TokenizerFacts { vocab: ids, fingerprint, .. }) = manifest.tokenizer() else { return Ok(()) };
    let most = u64::from(ids) + u64::from(ids / MAX_ROUNDING).max(MIN_ROUNDING);
    let wrong = columns.iter().find_map(|column| match &column.kind {
        ColumnKind::Tokens(tokens) => {
            let vocab = tokens.vocab.filter(|vocab| !(u64::from(ids)..=most).contains(&(*vocab).into()))?;
            Some((&column.name, vocab))
        }
        _ => None,
    });
    let Some((column, vocab)) = wrong else { return Ok(()) };
    let name = manifest.name();
    let problem = format!(
        "is {vocab} in column `{column}`, and dataset `{name}` was tokenized with {ids} ids (tokenizer {fingerprint}): give {ids}, or up to \
         {most} if the model has some more; otherwise the dataset is another model's"
    );
    Err(DatasetError::Option { option: "vocab", problem })
}
