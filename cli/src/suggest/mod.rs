//! Suggests a job for a dataset, from the fields that its records have: `spdl-ctl info` and `job init`, and `suggest` of Python.

mod columns;
mod facts;
mod packing;

use spdl_dataset::{DatasetError, LookAt, SampleReader};
use spdl_job::{Job, JobError, JobFile, decoded_columns};
use spdl_shard::{
    manifest::{Manifest, TokenizerFacts},
    store::DatasetStore,
};
use spdl_types::Fingerprint;

use columns::SuggestedColumns;
pub(crate) use facts::{FieldFacts, RecordFacts};
use packing::SuggestedSequences;

/// The records that are looked at by default.
pub const RECORDS: u32 = 256;
/// The side of the pictures of a job by default, in pixels.
pub const SIZE: u32 = 224;
/// The most fields that are looked for in other records.
const FURTHER_FIELDS: usize = 16;
/// The most samples in a batch, if nothing else is asked for.
const BATCH: u32 = 64;
/// The most bytes of such a batch. Workers and loaders have 1 GiB by default, for four batches and the blocks that they read.
const BATCH_BYTES: u64 = 96 << 20;

/// The line about documents with masks that are longer than a sequence.
const LONG: &str =
    "long = \"drop\"           # a longer document is left out; \"split\" cuts it, \"truncate\" keeps its beginning\n";

/// What the suggested job is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobPurpose {
    /// Training: shuffled, with random crops and flips.
    Training,
    /// Validation: every sample once, with nothing random.
    Validation,
    /// A sheet, which shows whole pictures.
    Sheet,
}

/// How a job is suggested.
#[derive(Clone, Debug)]
pub struct SuggestionOptions {
    /// What the job is for.
    pub purpose: JobPurpose,
    /// The job's name.
    pub name: String,
    /// The folder or URL of the dataset, as the job says it.
    pub dataset: String,
    /// The side of pictures in pixels. Pictures that all have one size, which is smaller, keep it.
    pub size: u32,
    /// Samples of a batch. Default: 64, or fewer where batches would take much memory.
    pub batch: Option<u32>,
}

/// A suggested job.
#[derive(Clone, Debug)]
pub struct SuggestedJob {
    /// The text of its job file, with comments.
    pub text: String,
    /// The number of its columns.
    pub columns: usize,
    /// The fields that no column reads, each with the reason.
    pub left_out: Vec<(String, String)>,
}

/// A dataset of which some records were looked at.
#[derive(Debug)]
pub struct SeenDataset {
    reader: SampleReader,
    url: String,
    facts: RecordFacts,
}

impl SeenDataset {
    /// Looks at records of a dataset.
    ///
    /// # Errors
    /// If there is none, or its records cannot be read. What is wrong with one field leaves that field out.
    pub async fn look(dataset: &str, which: LookAt) -> Result<Self, DatasetError> {
        let store = DatasetStore::open(dataset)?;
        let reader = SampleReader::open(&store).await?;
        let mut facts = RecordFacts::default();
        reader.read(which, |record| facts.add(record, reader.manifest())).await?;
        if facts.records < reader.manifest().records() {
            // The few PNGs among many JPEGs count, too.
            let is_known = |name: &str| facts.fields.contains_key(name);
            for sample in reader.samples_of_further_fields(is_known, FURTHER_FIELDS).await? {
                facts.add(reader.sample(sample).await?.0, reader.manifest());
            }
        }
        Ok(Self { url: store.url().to_owned(), reader, facts })
    }

    /// Returns the URL of the dataset's folder.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Returns the dataset's manifest.
    #[must_use]
    pub const fn manifest(&self) -> &Manifest {
        self.reader.manifest()
    }

    pub(crate) const fn facts(&self) -> &RecordFacts {
        &self.facts
    }

    /// Suggests a job that reads what all of these records have. The pictures of a validation have the size of those of its `training`.
    #[must_use]
    pub fn job(&self, options: &SuggestionOptions, training: Option<&Self>) -> SuggestedJob {
        let sized = training.map_or(&self.facts, |training| &training.facts);
        let columns =
            SuggestedColumns::of(&self.facts, options.purpose, options.size, sized, self.manifest().tokenizer());
        let samples = self.manifest().samples().clamp(1, u32::MAX.into()) as u32;
        let sequences = columns.packed.map(|tokens| tokens.sequences(samples.into()));
        let most = sequences.map_or(samples, |sequences| sequences.batch);
        let mut batch = options.batch.unwrap_or(BATCH).min(most);
        let mut text = self.text(options, &columns, sequences, batch);
        while options.batch.is_none() && batch > 1 {
            let bytes = self.checked(&text).map_or(0, |job| self.sample_bytes(&job));
            if bytes * u64::from(batch) <= BATCH_BYTES {
                break;
            }
            batch /= 2;
            text = self.text(options, &columns, sequences, batch);
        }
        SuggestedJob { text, columns: columns.len(), left_out: columns.left_out }
    }

    /// Returns the job that a text makes with this dataset. Documents are not packed for that, so their sequences are not counted.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn checked(&self, text: &str) -> Result<Job, JobError> {
        let mut file = JobFile::parse(text, "the suggested job")?;
        if let Some(sequence) = &mut file.sequence {
            sequence.pools.get_or_insert(Fingerprint(0));
        }
        file.freeze(&self.manifest().facts())
    }

    /// Returns the bytes that a sample of the job takes in a batch: of columns of any length, as many as the longest of the values that
    /// were seen.
    fn sample_bytes(&self, job: &Job) -> u64 {
        let seen = |name: &String| self.facts.fields.get(name).map_or(0, FieldFacts::most_bytes);
        let of_column = |column: &spdl_job::Column| match column.sample_shape() {
            Some(_) => column.max_bytes(),
            None => column.max_bytes().min(column.from.iter().map(seen).max().unwrap_or(0)),
        };
        decoded_columns(&job.columns).map(of_column).sum()
    }

    /// Returns the line for what ends documents. Those with masks that have no `eos` are chats.
    fn eos(&self, is_masked: bool) -> String {
        match self.manifest().tokenizer() {
            Some(TokenizerFacts { eos: None, .. }) if is_masked => {
                "# no `eos`: the template of the chats ends turns\n".to_owned()
            }
            Some(TokenizerFacts { ends_with_eos: true, eos: Some(eos), .. }) => {
                format!("# no `eos`: each document ends with id {eos} already\n")
            }
            Some(TokenizerFacts { eos: Some(eos), .. }) => {
                format!("eos = {eos:<17} # the tokenizer's, put after each document\n")
            }
            _ => {
                "# eos = ID              # the id to put after each document, unless documents end with it\n".to_owned()
            }
        }
    }

    fn text(
        &self,
        options: &SuggestionOptions,
        columns: &SuggestedColumns<'_>,
        sequences: Option<SuggestedSequences>,
        batch: u32,
    ) -> String {
        let SuggestionOptions { purpose, name, dataset, .. } = options;
        let (seen, records) = (self.facts.records, self.manifest().records());
        let which = if seen < records { format!("{seen} of {records}") } else { format!("all {records}") };
        let (what, keys) = match purpose {
            JobPurpose::Validation => (
                "# A job for validation: every sample once, in the order of the dataset, and\n# nothing random.",
                format!(
                    "global_batch = {batch}       # samples of a step, over all ranks\n\
                     shuffle = false\n\
                     epochs = 1              # a loader repeats it: each `for` is the whole dataset\n\
                     epoch_end = \"partial\"   # the last batch is short; \"exact\" fills it up with\n\
                     \x20                       # zeros that are not `valid`, \"pad\" with first samples\n"
                ),
            ),
            JobPurpose::Training | JobPurpose::Sheet => (
                "# A job for training. Once it is created it does not change: with other data,\n# columns or seed it is another job.",
                format!(
                    "global_batch = {batch}       # samples of a step, over all ranks\n\
                     epochs = 10\n\
                     seed = 0                # of the order, and of every crop and flip\n"
                ),
            ),
        };
        let [name, dataset] = [name, dataset].map(|text| quoted(text));
        let is_masked = columns.packed.is_some_and(|tokens| tokens.is_masked);
        let packing = match sequences {
            Some(SuggestedSequences { seq_len, .. }) => format!(
                "\n[sequence]              # documents are packed into sequences, each of which is a sample\n\
                 seq_len = {seq_len:<13} # tokens of a sequence: as many as your model is trained on\n{}{}",
                if is_masked { LONG } else { "" },
                self.eos(is_masked)
            ),
            // Each document is a sample, of its own length.
            None if columns.text.contains("decode = \"tokens\"") => {
                "# sequence = { seq_len = 2048 }  # packs documents into sequences of one length, which\n\
                 #                                # `labels` and `document_lengths` can follow; then no\n\
                 #                                # column reads another field than that of the tokens\n"
                    .to_owned()
            }
            None => String::new(),
        };
        format!(
            "{what}\n# Columns read what the dataset's records have ({which} looked at).\n\
             name = {name}\ndataset = {dataset}\n{keys}{packing}{}",
            columns.text
        )
    }
}

fn quoted(text: &str) -> String {
    toml::Value::from(text).to_string()
}
