//! Builds files of tokens from documents that a program makes, in parallel, on one or several machines. What was done stays when it is
//! interrupted, and the files are the same however often that is.
//!
//! A source is cut into units. Each is made into a run, in which its documents are sorted by a hash: in memory while there is room, and
//! else an object beside the manifest. When all runs are there, each shard is merged from a range of hashes of all of them. Objects appear
//! as a whole, so that what is there need not be done again. At the end, the shards are indexed, and the runs are removed.

mod counts;
mod kept;
mod merged;
mod run;
mod shards;
mod units;
mod work;

use std::{
    collections::BTreeMap,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use serde::Serialize;
use spdl_shard::{
    manifest::{DEFAULT_BLOCK_BYTES, MANIFEST_NAME, METADATA_FOLDER, TokenizerFacts},
    store::DatasetStore,
};
use spdl_types::Fingerprint;

use super::{
    TokenEncoding,
    begin::{begin_runs, end_runs},
};
use crate::{
    DEFAULT_SHARD_BYTES, DatasetError, DatasetReport, IndexOptions, Listing, Overwrite, PackOrder, PackPart, ShardList,
    folder::in_use, index::index_as, replace::existing_manifest, report::DatasetTally,
};

use counts::BuildCounts;
use kept::KeptRuns;
use shards::{plan_shards, write_shards};
use units::UnitWork;
use work::{BuildPlan, remove_unfinished_runs, unit_of};

pub use counts::TokenBuildProgress;
pub(crate) use work::{remove_plan_and_runs, remove_runs};

/// Default of the memory in which documents are kept until they are merged, in bytes.
const DEFAULT_KEPT_BYTES: u64 = 256 << 20;

/// A document of a source.
#[derive(Debug)]
pub enum SourceDocument<'d> {
    /// Its ids, and, if the encoding has masks, which of them are learned. One without ids is counted and left out.
    Ids(&'d [u32], Option<&'d [bool]>),
    /// It cannot be made, or was returned as wrong.
    Bad(DatasetError),
}

/// Gets a document. Returns what is wrong with it, to follow its name: it is to be passed again, as a bad one. An error ends the reading.
pub type EachDocument<'e> = dyn FnMut(SourceDocument<'_>) -> Result<Option<String>, DatasetError> + 'e;

/// Makes documents of tokens, unit by unit. Whatever thread reads a unit, and however often, it has the same documents.
pub trait DocumentSource: Send + Sync {
    /// Returns the number of units.
    fn units(&self) -> usize;
    /// Returns the bytes of all units, as they are stored.
    fn bytes(&self) -> u64;
    /// Returns the bytes of a unit, as they are stored.
    fn unit_bytes(&self, unit: usize) -> u64;
    /// Returns the bytes that were read so far.
    fn read_bytes(&self) -> u64;
    /// Returns about how many bytes the tokens of all documents have.
    fn token_bytes(&self) -> u64;
    /// Returns the tokenizer that the tokens are of, if it is known.
    fn tokenizer(&self) -> Option<TokenizerFacts>;
    /// Returns the source, in words.
    fn source(&self) -> String;
    /// Returns what stands for the content of a unit: if it is the same, so are the documents.
    fn unit_fingerprint(&self, unit: usize) -> Fingerprint;
    /// Returns what else decides the documents, in words: names and values.
    fn facts(&self) -> BTreeMap<String, String>;
    /// Reads the documents of a unit, in order, on a thread that may be blocked.
    ///
    /// # Errors
    /// If a document cannot be read; and the error of `each`.
    fn read(&self, unit: usize, each: &mut EachDocument<'_>) -> Result<(), DatasetError>;
}

/// How files of tokens are built.
#[derive(Clone, Debug)]
pub struct TokenBuildOptions {
    /// How ids are stored.
    pub encoding: TokenEncoding,
    /// The dataset's name. Default: the last part of its URL.
    pub name: Option<String>,
    /// Order of the documents. Default: shuffled with seed 0.
    pub order: PackOrder,
    /// About the size of the tokens of a shard with their masks, in bytes. Default: 256 MiB.
    pub shard_bytes: u64,
    /// Size at which blocks are cut, in bytes; as in [`PackOptions`](crate::PackOptions). Default: 8 MiB.
    pub block_bytes: u64,
    /// What happens if something exists where the files should go. [`Overwrite::Replace`] goes on with what was begun with another source or
    /// other options, of which it keeps what fits, and replaces no dataset. Default: what was begun with the same goes on, and all else is
    /// refused.
    pub overwrite: Overwrite,
    /// Number of threads. Default: 1.
    pub threads: usize,
    /// Memory in which the first documents stay until they are merged, in bytes; all others are written, and read again. A part of several
    /// writes all. With a higher value, more is made again after a kill. Default: 256 MiB.
    pub memory_bytes: u64,
    /// Upper limit of the bad documents that are left out; one more ends the work. Default: 0.
    pub skip_bad: u64,
}

impl TokenBuildOptions {
    /// Returns the defaults for an encoding.
    #[must_use]
    pub const fn new(encoding: TokenEncoding) -> Self {
        Self {
            encoding,
            name: None,
            order: PackOrder::Shuffled { seed: 0 },
            shard_bytes: DEFAULT_SHARD_BYTES,
            block_bytes: DEFAULT_BLOCK_BYTES,
            overwrite: Overwrite::Refuse,
            threads: 1,
            memory_bytes: DEFAULT_KEPT_BYTES,
            skip_bad: 0,
        }
    }
}

/// The report about files of tokens that were built.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenBuildReport {
    /// The dataset that they are.
    #[serde(flatten)]
    pub dataset: DatasetReport,
    /// Number of tokens.
    pub tokens: u64,
    /// Number of documents without a token, which were left out.
    pub empty_documents: u64,
    /// Number of bad documents, which were left out.
    pub bad_documents: u64,
    /// What is wrong with the first of those that this call found.
    pub first_bad: Vec<String>,
}

/// The report about a part that was tokenized.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenPartReport {
    /// URL of the dataset's folder.
    pub url: String,
    /// Number of the part, from 0.
    pub part: u32,
    /// Number of parts.
    pub parts: u32,
    /// Number of units in this part.
    pub units: u64,
    /// Number of units in all parts.
    pub all_units: u64,
    /// Number of documents in this part.
    pub documents: u64,
    /// Number of their tokens.
    pub tokens: u64,
    /// Number of bad documents, which were left out.
    pub bad_documents: u64,
    /// What is wrong with the first of those that this call found.
    pub first_bad: Vec<String>,
}

/// Builds files of the documents of a source in the folder `to`, and makes a dataset of them. What an earlier call has left, with the
/// same source and options, is used. It stops when `stop` is ready; what is done stays.
///
/// # Errors
/// If a document cannot be read or has an id that is not in the vocabulary, there is none, the store cannot be written, or the folder
/// has something else; and [`DatasetError::Parts`] if it was stopped.
pub async fn build_tokens(
    to: &DatasetStore,
    source: &Arc<dyn DocumentSource>,
    options: &TokenBuildOptions,
    progress: &(dyn Fn(TokenBuildProgress) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Result<TokenBuildReport, DatasetError> {
    let mut stop = std::pin::pin!(stop);
    let plan = begin(to, &**source, options).await?;
    if existing_manifest(to).await?.is_some() {
        return finished(to, &plan).await;
    }
    let counts = Arc::new(BuildCounts::default());
    let kept = KeptRuns::within(options.memory_bytes);
    remove_unfinished_runs(to, |_| true)?;
    let built = async {
        let report = || progress(counts.progress(source.read_bytes(), source.bytes()));
        let units = (0..plan.units()).collect();
        let work = Arc::new(UnitWork::new(to, source, &plan, options, units, &kept, &counts));
        work.run(options.threads, &report, &mut stop).await?;
        finish(to, &plan, options.threads, &kept, &counts, progress, stop).await
    };
    let built = built.await;
    if built.is_err() {
        // The first error is the one to report.
        let _ = kept.write(to, &plan).await;
    }
    built
}

/// Makes the runs of one part of a source, of which [`merge_tokens`] makes a dataset when all parts are done. It stops when `stop` is
/// ready; what is done stays.
///
/// # Errors
/// As for [`build_tokens`].
pub async fn build_token_part(
    to: &DatasetStore,
    source: &Arc<dyn DocumentSource>,
    options: &TokenBuildOptions,
    part: PackPart,
    progress: &(dyn Fn(TokenBuildProgress) + Send + Sync),
    stop: impl Future<Output = ()>,
) -> Result<TokenPartReport, DatasetError> {
    let mut stop = std::pin::pin!(stop);
    if options.overwrite == Overwrite::Replace {
        let problem = "would remove what other parts have made; tokenize into another folder".to_owned();
        return Err(DatasetError::Option { option: "force", problem });
    }
    let plan = begin(to, &**source, options).await?;
    if let Some(manifest) = existing_manifest(to).await? {
        return in_use(to, &manifest);
    }
    // Neighbours are mostly alike, so that parts of every so manieth unit take about the same time.
    let is_own = |unit: u32| unit % part.count == part.number;
    let units: Vec<u32> = (0..plan.units()).filter(|unit| is_own(*unit)).collect();
    let count = units.len() as u64;
    let total_bytes = units.iter().map(|unit| source.unit_bytes(*unit as usize)).sum();
    let counts = Arc::new(BuildCounts::default());
    remove_unfinished_runs(to, is_own)?;
    let report = || progress(counts.progress(source.read_bytes(), total_bytes));
    // What merges all parts is another process.
    let kept = KeptRuns::within(0);
    Arc::new(UnitWork::new(to, source, &plan, options, units, &kept, &counts))
        .run(options.threads, &report, &mut stop)
        .await?;
    Ok(TokenPartReport {
        url: to.url().to_owned(),
        part: part.number,
        parts: part.count,
        units: count,
        all_units: plan.units().into(),
        documents: counts.documents.load(Relaxed),
        tokens: counts.tokens.load(Relaxed),
        bad_documents: counts.bad(),
        first_bad: counts.first_bad(),
    })
}

/// Makes a dataset of the runs of all parts, if parts of a source were tokenized in the folder. If it is killed, another call completes
/// it.
///
/// # Errors
/// [`DatasetError::Parts`] if a unit is missing, or runs do not fit together; and if the store cannot be read or written.
pub async fn merge_tokens(to: &DatasetStore, threads: usize) -> Result<Option<TokenBuildReport>, DatasetError> {
    let Some(plan) = BuildPlan::read(to).await? else { return Ok(None) };
    if existing_manifest(to).await?.is_some() {
        return finished(to, &plan).await.map(Some);
    }
    let runs = Listing::of_metadata(to, |name| unit_of(name).is_some_and(|unit| unit < plan.units())).await?;
    if runs.len() < plan.units() as usize {
        let missing = (0..plan.units()).find(|unit| runs.find_by(|name| name.cmp(&work::run_name(*unit))).is_none());
        let problem = format!(
            "lacks {} of {} units of the source, the first of them unit {}: run each part to its end",
            plan.units() as usize - runs.len(),
            plan.units(),
            missing.unwrap_or_default(),
        );
        return Err(DatasetError::Parts { url: to.url().to_owned(), problem });
    }
    let counts = Arc::new(BuildCounts::default());
    let kept = KeptRuns::within(0);
    finish(to, &plan, threads, &kept, &counts, &|_| {}, std::pin::pin!(std::future::pending())).await.map(Some)
}

/// Begins to build, or goes on with what has the same plan.
async fn begin(
    to: &DatasetStore,
    source: &dyn DocumentSource,
    options: &TokenBuildOptions,
) -> Result<BuildPlan, DatasetError> {
    if options.shard_bytes == 0 {
        return Err(DatasetError::Option { option: "shard-size", problem: "is 0; give at least 1".to_owned() });
    }
    let plan = BuildPlan::of(source, options)?;
    if options.overwrite == Overwrite::Refuse
        && let Some(begun) = BuildPlan::read(to).await?
    {
        return begun.go_on(to, plan);
    }
    begin_runs(to, options.overwrite).await?;
    plan.write(to).await?;
    Ok(plan)
}

/// Merges all runs, and makes a dataset of the shards.
async fn finish(
    to: &DatasetStore,
    plan: &BuildPlan,
    threads: usize,
    kept: &Arc<KeptRuns>,
    counts: &Arc<BuildCounts>,
    progress: &(dyn Fn(TokenBuildProgress) + Send + Sync),
    mut stop: impl Future<Output = ()> + Unpin,
) -> Result<TokenBuildReport, DatasetError> {
    let encoding = plan.encoding()?;
    to.remove_temporaries_below(METADATA_FOLDER)?;
    let merging = async {
        let (shards, totals) = plan_shards(to, plan, kept).await?;
        if shards.is_empty() {
            kept.clear();
            end_runs(to).await?;
            let problem = format!("no document has a token: {} are empty, and {} bad", totals.empty, totals.bad);
            return Err(DatasetError::Nothing { origin: "the source".to_owned(), problem });
        }
        let names = write_shards(to, encoding, shards, threads, kept, counts).await?;
        Ok((names, totals))
    };
    let (names, totals) = tokio::select! {
        biased;
        () = &mut stop => return Err(stopped(to)),
        merged = with_reports(merging, || progress(counts.progress(0, 0))) => merged?,
    };
    // Once there is a manifest, runs may be missing.
    plan.with_totals(totals).write(to).await?;
    let options = IndexOptions {
        format: Some(encoding.format()),
        shards: ShardList::Named(names),
        name: plan.name.clone(),
        block_bytes: Some(plan.block_bytes),
        tokenizer: plan.tokenizer(),
        ..IndexOptions::default()
    };
    let indexed = index_as(to, to, &options, None, &|_| {}, &mut stop).await;
    let dataset = indexed.map_err(|failed| failed.error)?;
    end_runs(to).await?;
    Ok(totals.report(dataset, counts.first_bad()))
}

/// Calls `report` now and then until the work is done.
async fn with_reports<T>(work: impl Future<Output = T>, report: impl Fn()) -> T {
    let mut work = std::pin::pin!(work);
    let mut ticks = tokio::time::interval(std::time::Duration::from_millis(200));
    loop {
        tokio::select! {
            done = &mut work => {
                report();
                return done;
            }
            _ = ticks.tick() => report(),
        }
    }
}

/// Ends what was killed after the manifest was written.
async fn finished(to: &DatasetStore, plan: &BuildPlan) -> Result<TokenBuildReport, DatasetError> {
    let manifest = to.manifest().await?;
    if manifest.format().name() != plan.encoding()?.format().name() {
        return in_use(to, &manifest.place().path(MANIFEST_NAME));
    }
    let totals = plan.totals().unwrap_or_default();
    end_runs(to).await?;
    let bytes = manifest.shards().map(|shard| shard.bytes).sum();
    let dataset = DatasetTally { bytes, ..DatasetTally::default() }.report(to.url(), &manifest);
    Ok(totals.report(dataset, Vec::new()))
}

fn stopped(to: &DatasetStore) -> DatasetError {
    let problem = "was not finished: it was stopped, and the same command goes on where it ended".to_owned();
    DatasetError::Parts { url: to.url().to_owned(), problem }
}
