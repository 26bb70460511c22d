//! `spdl-ctl tokenize`: writes files of tokens from texts and chats. `crates/text` reads these, and `crates/dataset` writes those.

use std::{num::NonZeroUsize, process::ExitCode, sync::Arc, thread};

use spdl_dataset::{
    DatasetError, DocumentSource, NewFolders, TokenBuildOptions, TokenBuildReport, TokenEncoding, build_token_part,
    build_tokens,
};
use spdl_process::allocator::use_arenas;
use spdl_shard::store::DatasetStore;
use spdl_store::{StoreOptions, blocking};
use spdl_text::{
    DocumentText, PlainText, RecordText, SpecialTokens, TextOptions, TextSource, TokenizedSource, Tokenizer,
};
use spdl_types::size::parse_bytes;

use super::{
    CtlError, CtlResult,
    chats::{self, ChatArgs},
    interrupt,
    model::Model,
    new_dataset::NewDatasetArgs,
    output::outln,
    pack::{overwrite, print as print_dataset},
    progress::TokenLine,
    report,
    token_part::{print_bad, print_part},
};

/// Threads that share an arena of the allocator.
const THREADS_AN_ARENA: usize = 8;

/// How plain text is divided.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum PlainTextSplit {
    /// A file is a document.
    Files,
    /// Blank lines are between documents.
    BlankLines,
}

/// Arguments of `tokenize`.
#[derive(Debug, clap::Args)]
pub(crate) struct TokenizeArgs {
    /// Files, folders and patterns, on disk or as URLs (s3://, gs://, az://, hf:// ...): JSON lines (`.jsonl`, `.json`, `.ndjson`), also
    /// with `.gz` or `.zst` behind it, Parquet (`.parquet`), and plain text (all others, a document each).
    #[arg(required = true, num_args = 1..)]
    source: Vec<String>,
    /// Folder or URL of the dataset: a path, s3://, gs://, az:// ...
    dataset: String,
    /// The tokenizer: a tokenizer.json of Hugging Face's `tokenizers`, or the folder of a model with one, on disk or as a URL.
    #[arg(long, value_name = "FILE")]
    tokenizer: String,
    /// The field or column with the text; of several, the first that a record has.
    #[arg(long, value_name = "FIELD|..", default_value = "text|content", conflicts_with = "chats")]
    from: String,
    /// Where plain text is divided into documents.
    #[arg(long, value_name = "WHERE", value_enum, default_value_t = PlainTextSplit::Files, conflicts_with = "chats")]
    split: PlainTextSplit,
    /// Ends each document with this token, such as `<|endoftext|>`. Without it nothing is appended, and a job has `eos` put there.
    #[arg(long, value_name = "TOKEN", conflicts_with = "chats")]
    append: Option<String>,
    /// Adds the tokens that the tokenizer puts around a text, such as `<s>`.
    #[arg(long, conflicts_with = "chats")]
    special_tokens: bool,
    #[command(flatten)]
    chats: ChatArgs,
    #[command(flatten)]
    new: NewDatasetArgs,
    /// Size of a unit of the source, which is done as a whole; 16 MiB, or one part in 4096 of the source when not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    unit_size: Option<u64>,
    /// Number of threads; that of the cores when not given. The dataset is the same with any number.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Memory in which the first units stay until shards are written of them; all others are written beside the dataset, and read again. What
    /// is there when the process is killed is made again.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes, conflicts_with = "part")]
    memory: u64,
    /// Leaves out so many records that are refused, and tells how many there were and what was wrong with the first of them; one more ends
    /// the work. Of a part, so many of that part.
    #[arg(long, value_name = "MOST", default_value_t = 0)]
    skip_bad: u64,
    /// Goes on where a `tokenize` with another source or other options was begun; what was done and still fits is kept. Replaces no dataset.
    #[arg(long)]
    force: bool,
}

/// Runs `tokenize`.
pub(crate) fn run(args: TokenizeArgs) -> CtlResult {
    let threads = args.threads.map_or_else(threads, NonZeroUsize::get);
    // Threads mostly read, encode and sort in memory of their own, and rarely wait for others of their arena.
    use_arenas(threads.div_ceil(THREADS_AN_ARENA));
    interrupt::run(|mut interrupt| async move {
        let new = &args.new;
        if let Some(there) = new.existing(&args.dataset).await {
            return print_dataset(&there, new.json);
        }
        let model = Model::open(&args.tokenizer).await?;
        let (text, from) = if args.chats.are_given() {
            (DocumentText::Chat(Box::new(args.chats.open(&model.folder).await?)), RecordText::Whole)
        } else {
            let append =
                args.append.as_deref().map(|token| id_of(&model.tokenizer, &args.tokenizer, token)).transpose()?;
            let eos = model.eos_token().await?.and_then(|token| model.tokenizer.id(&token));
            let special = if args.special_tokens { SpecialTokens::Add } else { SpecialTokens::Leave };
            let from = args.from.split('|').map(str::to_owned).collect();
            (DocumentText::Document { special, eos, append }, RecordText::Fields(from))
        };
        let encoding = TokenEncoding::of_vocab(model.tokenizer.vocab())?;
        let encoding = if args.chats.are_given() { encoding.with_masks() } else { encoding };
        let options = TokenBuildOptions {
            name: new.name.clone(),
            order: new.order(),
            shard_bytes: new.shard_size,
            block_bytes: new.block_size,
            overwrite: overwrite(args.force),
            threads,
            memory_bytes: args.memory,
            skip_bad: args.skip_bad,
            ..TokenBuildOptions::new(encoding)
        };
        let folders = NewFolders::of(&args.dataset);
        let to = DatasetStore::create_with(&args.dataset, &StoreOptions::from_env())?;
        let reading = TextOptions {
            from,
            plain_text: match args.split {
                PlainTextSplit::Files => PlainText::Whole,
                PlainTextSplit::BlankLines => PlainText::BlankLines,
            },
            unit_bytes: args.unit_size,
        };
        let done = async {
            let texts = TextSource::open(&args.source, reading, &to).await?;
            let source = Arc::new(TokenizedSource { texts, tokenizer: model.tokenizer, text });
            if let Some(count) = args.chats.show {
                let source = Arc::clone(&source);
                chats::print(&blocking(move || source.shown(count)).await?)?;
            }
            let source: Arc<dyn DocumentSource> = source;
            let line = TokenLine::new(new.json);
            let (show, stop) = (|progress| line.at(progress), interrupt.asked());
            match new.part {
                Some(part) => print_part(&build_token_part(&to, &source, &options, part, &show, stop).await?, new.json),
                None => print(&build_tokens(&to, &source, &options, &show, stop).await?, new.json),
            }
        };
        let done = done.await;
        if done.is_err() {
            folders.remove_empty();
        }
        done
    })?;
    Ok(ExitCode::SUCCESS)
}

fn threads() -> usize {
    thread::available_parallelism().map_or(1, NonZeroUsize::get)
}

/// Returns the id of a token that is appended.
fn id_of(tokenizer: &Tokenizer, path: &str, token: &str) -> Result<u32, CtlError> {
    tokenizer.id(token).ok_or_else(|| {
        let problem =
            format!("is `{token}`, which is no token of `{path}`; write it as it is in the tokenizer's vocabulary");
        DatasetError::Option { option: "append", problem }.into()
    })
}

/// Prints the report about files of tokens.
pub(crate) fn print(built: &TokenBuildReport, json: bool) -> Result<(), CtlError> {
    if json {
        return report::json(built);
    }
    print_dataset(&built.dataset, false)?;
    outln!(
        "{} in {}",
        report::count(built.tokens, "token", "tokens"),
        report::count(built.dataset.records, "document", "documents")
    )?;
    if built.empty_documents > 0 {
        outln!(
            "left out: {}",
            report::count(built.empty_documents, "document without a token", "documents without a token")
        )?;
    }
    print_bad(built.bad_documents, &built.first_bad)
}
