//! What the coordinator reads of datasets, their manifests: to turn the text of a job file into a frozen job, and for the names of
//! classes.

use std::{
    ops::Deref,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use spdl_control::{
    Stores,
    messages::{CLASSES_PAGE_BYTES, FromCoordinator, Refusal},
};
use spdl_job::{Job, JobError, JobFile, SourceDatasetFacts, redact};
use spdl_shard::{
    FormatError,
    manifest::{Manifest, TokenizerFacts},
    samples::{ClassList, JobSamples, check_classes, check_tokenizers},
    store::DatasetStore,
};
use spdl_store::StoreError;
use spdl_types::Fingerprint;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    task::{JoinError, JoinHandle},
};

use super::submit_slots::SubmitSlots;

/// The number of large manifests read at one time: each is held in memory while it is checked.
const LARGE_AT_ONCE: usize = 2;
/// The length up to which a manifest is not large, in bytes: some 60,000 shards.
const SMALL_BYTES: u64 = 16 << 20;
/// Time limit for reading a manifest, after which the request is refused.
const MANIFEST_TIMEOUT: Duration = Duration::from_secs(30);

/// The cause reported for a dataset whose manifest made the reader panic; the panic affects no other job or task.
const PANICKED: &str = "reading its manifest panicked: this is a fault of the coordinator's, see its log";

/// Which datasets a job may use, and how much of them is read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DatasetLimits {
    /// The places where datasets may be. Default: anywhere.
    pub stores: Stores,
    /// The largest manifest that is read, in bytes. Default: 256 MiB, which is some million shards. If raised, creating
    /// a job can take that much more memory, and two at one time twice as much, beside 16 smaller ones of 16 MiB.
    pub manifest_bytes: u64,
}

impl Default for DatasetLimits {
    fn default() -> Self {
        Self { stores: Stores::default(), manifest_bytes: 256 << 20 }
    }
}

/// Reads and checks manifests, a limited number at one time.
pub(crate) struct DatasetChecks {
    slots: SubmitSlots,
    large: Arc<Semaphore>,
    limits: DatasetLimits,
}

impl DatasetChecks {
    pub(crate) fn new(limits: DatasetLimits) -> Self {
        Self { slots: SubmitSlots::default(), large: Arc::new(Semaphore::new(LARGE_AT_ONCE)), limits }
    }

    /// Returns the frozen job that a job file of `submitter` describes. Secrets in URLs are removed from the errors.
    pub(crate) async fn freeze(&self, submitter: &str, toml: &str, origin: &str) -> Result<Job, Refusal> {
        let invalid = |job: &str, cause: String| {
            let cause = redact(&cause).into_owned();
            Refusal::JobInvalid { job: job.to_owned(), cause }
        };
        let mut file = JobFile::parse(toml, origin).map_err(|error| match error {
            JobError::Syntax { source, .. } => invalid(origin, source.to_string().trim_end().to_owned()),
            other => invalid(origin, other.to_string()),
        })?;
        let checked = file.check();
        checked.map_err(|error| invalid(&file.name, format!("job file `{origin}`: {error}")))?;
        let name = file.name.clone();
        let named = |error| invalid(&name, format!("job file `{origin}`: {error}"));
        for (dataset, _) in file.datasets() {
            self.limits.stores.admit(dataset).map_err(named)?;
        }
        let _slot = self.slots.take(submitter).await.map_err(named)?;
        let (mut facts, mut classes, mut tokenizers) = (Vec::new(), Vec::new(), Vec::new());
        for (dataset, evaluated) in file.datasets() {
            let reading = read_facts(dataset.clone(), evaluated, self.limits.clone(), self.large.clone());
            let read = in_time(dataset, reading).await.map_err(named)?;
            *dataset = read.dataset;
            facts.push(read.facts);
            classes.push(read.classes);
            tokenizers.push(read.tokenizer);
        }
        for sounds in file.sound_datasets() {
            self.limits.stores.admit(&sounds.url).map_err(named)?;
            let reading = read_facts(sounds.url.clone(), [None; 2], self.limits.clone(), self.large.clone());
            let read = in_time(&sounds.url, reading).await.map_err(named)?;
            sounds.note(read.facts.given.fingerprint, read.facts.ids).map_err(named)?;
            sounds.url = read.dataset;
        }
        let job = file.freeze_all(&facts).map_err(|error| invalid(&name, error.to_string()))?;
        let alike = check_classes(&job, &classes).and_then(|()| check_tokenizers(&job, &tokenizers));
        alike.map_err(|error| invalid(&name, error.to_string()))?;
        Ok(job)
    }

    /// Returns a page of the names of a job's classes, from class `from` on, for a request of `client`.
    pub(crate) async fn classes(&self, client: &str, job: &Job, from: u32) -> Result<FromCoordinator, Refusal> {
        let unknown = |cause: String| {
            let cause = redact(&cause).into_owned();
            Refusal::ClassesUnknown { job: job.name.clone(), cause }
        };
        if let Some(listed) = job.listed_classes() {
            return Ok(page(listed.iter().map(String::as_str), from));
        }
        let _slot = self.slots.take(client).await.map_err(unknown)?;
        // The sources of a job with numbers of classes have the same ones.
        let first = job.datasets()[0];
        let (dataset, limits, large) = (first.url.to_owned(), self.limits.clone(), self.large.clone());
        let reading = async move {
            let (_, manifest) = manifest(&dataset, &limits, &large).await?;
            Ok((manifest.fingerprint(), page(manifest.classes(), from)))
        };
        let (fingerprint, page) = in_time(first.url, reading).await.map_err(unknown)?;
        if fingerprint == first.fingerprint {
            return Ok(page);
        }
        Err(unknown(format!("dataset `{}` has changed since the job was created", first.url)))
    }
}

/// Returns the names from the class `first` on that fit into a reply.
fn page<'c>(classes: impl Iterator<Item = &'c str>, first: u32) -> FromCoordinator {
    let (mut names, mut bytes) = (Vec::new(), 0);
    let mut left = classes.skip(first as usize).peekable();
    while let Some(name) = left.next_if(|name| names.is_empty() || bytes + name.len() <= CLASSES_PAGE_BYTES) {
        bytes += name.len();
        names.push(name.to_owned());
    }
    FromCoordinator::Classes { names, is_last: left.peek().is_none() }
}

/// Waits for what is read of a dataset, for a while.
async fn in_time<T: Send + 'static>(
    dataset: &str,
    reading: impl Future<Output = Result<T, String>> + Send + 'static,
) -> Result<T, String> {
    match tokio::time::timeout(MANIFEST_TIMEOUT, AbortOnDrop(tokio::spawn(reading))).await {
        Ok(Ok(read)) => read,
        Ok(Err(_)) => Err(format!("dataset `{dataset}`: {PANICKED}")),
        Err(_) => {
            Err(format!("dataset `{dataset}`: its manifest could not be read in {} s", MANIFEST_TIMEOUT.as_secs()))
        }
    }
}

/// A task that is aborted when this value is dropped.
struct AbortOnDrop<T>(JoinHandle<T>);

impl<T> Future for AbortOnDrop<T> {
    type Output = Result<T, JoinError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        Pin::new(&mut self.0).poll(cx)
    }
}

impl<T> Drop for AbortOnDrop<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Returns what is wrong with a dataset, in words.
fn text(error: StoreError) -> String {
    match (&error, error.hint()) {
        // The error does not reveal what the file is instead.
        (StoreError::Format { url, source }, _)
            if matches!(source.error.downcast_ref(), Some(FormatError::WrongMagic { .. })) =>
        {
            format!("`{url}` is not a manifest")
        }
        (StoreError::TooLarge { .. }, _) => format!("{error}; `spdl-coord --manifest-bytes` is the most"),
        (_, Some(hint)) => format!("{error}; {hint}"),
        (_, None) => error.to_string(),
    }
}

/// Reads the manifest of a dataset. The permit is for a large one, and is to be kept as long as the manifest.
async fn manifest(
    dataset: &str,
    limits: &DatasetLimits,
    large: &Arc<Semaphore>,
) -> Result<(DatasetStore, HeldManifest), String> {
    let store = DatasetStore::open_pinned(dataset).await.map_err(text)?;
    let small_bytes = SMALL_BYTES.min(limits.manifest_bytes);
    let (permit, manifest) = match store.manifest_within(small_bytes).await {
        Err(StoreError::TooLarge { .. }) if limits.manifest_bytes > small_bytes => {
            let permit = large.clone().acquire_owned().await.expect("it is never closed");
            (Some(permit), store.manifest_within(limits.manifest_bytes).await)
        }
        read => (None, read),
    };
    Ok((store, HeldManifest { manifest: manifest.map_err(text)?, _permit: permit }))
}

/// A manifest, with the permit to hold a large one.
struct HeldManifest {
    manifest: Manifest,
    _permit: Option<OwnedSemaphorePermit>,
}

impl Deref for HeldManifest {
    type Target = Manifest;

    fn deref(&self) -> &Manifest {
        &self.manifest
    }
}

/// What is read of a dataset to create a job.
struct ReadDataset {
    facts: SourceDatasetFacts,
    /// Its classes, as far as they are compared with those of other sources.
    classes: ClassList,
    /// The tokenizer that its tokens are of, if it is known.
    tokenizer: Option<TokenizerFacts>,
    /// The URL by which the job names it.
    dataset: String,
}

/// Reads the facts about a dataset, or about an evaluated view of it or its sequences.
async fn read_facts(
    dataset: String,
    [view, pools]: [Option<Fingerprint>; 2],
    limits: DatasetLimits,
    large: Arc<Semaphore>,
) -> Result<ReadDataset, String> {
    let (store, manifest) = manifest(&dataset, &limits, &large).await?;
    // The folder of the shards need not exist on this machine, but it must be in an allowed store if it is elsewhere.
    let shards = store.shards_url(&manifest).map_err(text)?;
    if manifest.base().is_some() {
        limits.stores.admit(&shards).map_err(|problem| format!("`{dataset}` has its shards elsewhere: {problem}"))?;
    }
    let samples = JobSamples::open(&store, &manifest, view, pools).await.map_err(text)?;
    let facts = SourceDatasetFacts { given: samples.facts(&manifest), ids: manifest.samples() };
    let (classes, tokenizer) = (ClassList::of(&manifest), manifest.tokenizer());
    Ok(ReadDataset { facts, classes, tokenizer, dataset: store.pinned_url(&dataset) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_come_in_pages_that_hold_each_of_them_once() {
        let long = "x".repeat(CLASSES_PAGE_BYTES / 3);
        let classes: Vec<String> = (0..8).map(|number| format!("{number}{long}")).collect();
        let (mut found, mut pages) = (Vec::new(), 0);
        loop {
            let first = u32::try_from(found.len()).unwrap();
            let FromCoordinator::Classes { names, is_last } = page(classes.iter().map(String::as_str), first) else {
                panic!("another reply");
            };
            found.extend(names);
            pages += 1;
            if is_last {
                break;
            }
        }
        assert_eq!((found, pages), (classes, 4));
        let none = FromCoordinator::Classes { names: Vec::new(), is_last: true };
        assert_eq!((page(std::iter::empty(), 0), page(["a"].into_iter(), 7)), (none.clone(), none));
        let huge = "y".repeat(2 * CLASSES_PAGE_BYTES);
        let whole = FromCoordinator::Classes { names: vec![huge.clone()], is_last: true };
        assert_eq!(page([huge.as_str()].into_iter(), 0), whole, "one name is sent whatever its length");
    }
}
