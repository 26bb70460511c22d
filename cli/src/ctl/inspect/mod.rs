//! `spdl-ctl inspect`: shows what a model sees: the packed documents of sequences as text, and which of their tokens are learned.

mod page;
mod sequence;

use std::{path::PathBuf, process::ExitCode};

use spdl_dataset::DatasetError;
use spdl_shard::{
    manifest::{Manifest, TokenizerFacts},
    store::DatasetStore,
};
use spdl_text::Tokenizer;
use spdl_types::Position;
use spdl_worker::budget::Budget;

use super::{
    CtlError, CtlResult, interrupt,
    job_file::{self, JobFileArg},
    machine,
    model::Model,
    output::{outln, raw},
    record_names::RecordNames,
    report,
    shown::{for_terminal, in_colours},
};
use crate::local;
use page::SequencePage;
use sequence::{ShownColumns, ShownSequence};

/// Arguments of `inspect`.
#[derive(Debug, clap::Args)]
pub(crate) struct InspectArgs {
    #[command(flatten)]
    job: JobFileArg,
    /// The tokenizer of the dataset: a tokenizer.json of Hugging Face's `tokenizers`, or the folder of a model with one, on disk or as a URL.
    #[arg(long, value_name = "FILE")]
    tokenizer: String,
    /// Position of the first sequence, as a checkpoint or the log of a training has it.
    #[arg(long, visible_alias = "position", default_value = "0:0", value_name = "EPOCH:SEQUENCE")]
    from: Position,
    /// Number of sequences.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..))]
    sequences: u32,
    /// Writes them to a page, one file that needs nothing else, and not to the terminal.
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
}

/// Where sequences are shown.
enum InspectOutput {
    Terminal { in_colours: bool },
    Page(SequencePage),
}

/// Runs `inspect`.
pub(crate) fn run(args: &InspectArgs) -> CtlResult {
    interrupt::run_or_drop(inspect(args))
}

async fn inspect(args: &InspectArgs) -> CtlResult {
    let file = job_file::read(&args.job.job)?;
    if file.sequence.is_none() {
        return Err(CtlError::NotSequences { job: file.name });
    }
    let tokenizer = Model::open(&args.tokenizer).await?.tokenizer;
    let only = file.source.is_empty().then_some(file.dataset.as_str());
    for dataset in only.into_iter().chain(file.source.iter().map(|source| source.dataset.as_str())) {
        check(&args.tokenizer, &tokenizer, &DatasetStore::open_pinned(dataset).await?.manifest().await?)?;
    }
    let mut output = InspectOutput::open(args, &file.name)?;
    // A sequence is a step, so that memory does not grow with their number.
    let budget = Budget { cores: machine::cores() as f64, memory_bytes: machine::spare_bytes(), disk: None };
    let builder = local::builder(file).start(args.from).global_batch(1).budget(budget).slots(1);
    let (mut loader, datasets) = builder.open_with_datasets().await?;
    let columns = ShownColumns::of(&loader.job().columns);
    let mut names = RecordNames::new(loader.job(), datasets)?;
    let mut done = 0;
    while done < args.sequences
        && let Some(batch) = loader.next().await?
    {
        for (number, entry) in batch.entries().enumerate().filter(|(_, entry)| entry.is_valid()) {
            let documents = names.documents(entry.position(), entry.sample()).await?;
            let source = names.source_of_sequence(entry.sample());
            let sequence = ShownSequence::of((&batch.view(), number), source, &columns, documents, &tokenizer);
            output.show(&sequence)?;
        }
        done += 1;
    }
    loader.close().await;
    output.finish(done)?;
    Ok(ExitCode::SUCCESS)
}

/// Refuses a tokenizer that the tokens of a dataset are not of. A dataset that was tokenized elsewhere takes any.
fn check(path: &str, tokenizer: &Tokenizer, manifest: &Manifest) -> Result<(), CtlError> {
    let Some(TokenizerFacts { fingerprint, vocab, .. }) = manifest.tokenizer() else { return Ok(()) };
    if fingerprint == tokenizer.fingerprint() {
        return Ok(());
    }
    let problem = format!(
        "is `{path}`, with {} ids and fingerprint {}; dataset `{}` was tokenized with {vocab} ids of tokenizer {fingerprint}: give the \
         tokenizer.json that it was made with",
        tokenizer.vocab(),
        tokenizer.fingerprint(),
        manifest.name()
    );
    Err(DatasetError::Option { option: "tokenizer", problem }.into())
}

impl InspectOutput {
    fn open(args: &InspectArgs, job: &str) -> Result<Self, CtlError> {
        match &args.html {
            None => Ok(Self::Terminal { in_colours: in_colours() }),
            Some(path) => SequencePage::create(path, job).map(Self::Page),
        }
    }

    fn show(&mut self, sequence: &ShownSequence) -> Result<(), CtlError> {
        let in_colours = match self {
            Self::Page(page) => return page.add(sequence),
            Self::Terminal { in_colours } => *in_colours,
        };
        outln!("=== {} ===", sequence.facts())?;
        for document in &sequence.documents {
            outln!("--- {}: {} ---", document.name.key, document.facts())?;
            raw(format!("{}\n", for_terminal(&document.parts, in_colours)).as_bytes())?;
        }
        Ok(())
    }

    fn finish(self, sequences: u32) -> Result<(), CtlError> {
        let Self::Page(page) = self else { return Ok(()) };
        let path = page.finish()?;
        outln!("{} in {}", report::count(sequences.into(), "sequence", "sequences"), path.display())
    }
}
