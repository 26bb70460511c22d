//! `spdl-ctl tokenize`: writes files of tokens from texts and chats. `crates/text` reads these, and `crates/dataset` writes those.

use std::{num::NonZeroUsize, path::Path, process::ExitCode, sync::Arc, thread};

use spdl_dataset::{
    DatasetError, DatasetReport, DocumentSource, NewFolders, PackOrder, PackPart, TokenBuildOptions, TokenBuildReport,
    TokenEncoding, TokenPartReport, build_token_part, build_tokens,
};
use spdl_shard::store::DatasetStore;
use spdl_store::{StoreOptions, blocking};
use spdl_text::{
    DocumentText, MAX_TOKENIZER_BYTES, PlainText, RecordText, SpecialTokens, TextOptions, TextSource, TokenizedSource,
    Tokenizer, TokenizerError,
};
use spdl_types::size::parse_bytes;

use super::{
    CtlError, CtlResult, allocator,
    chats::{self, ChatArgs, MAX_CONFIG_BYTES, TOKENIZER_CONFIG, file_of},
    interrupt,
    output::outln,
    pack::{overwrite, print as print_dataset},
    progress::TokenLine,
    report,
};

/// The file with the tokenizer in a folder.
const TOKENIZER: &str = "tokenizer.json";

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
    /// Name of the dataset; the last part of its URL when not given.
    #[arg(long)]
    name: Option<String>,
    /// Seed of the order of the documents.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Keeps the source's order.
    #[arg(long)]
    no_shuffle: bool,
    /// About the size of a `.bin`, or of a `.ds` with its masks.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    shard_size: u64,
    /// Size of a block, the unit of shuffle, fetch and cache.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_bytes)]
    block_size: u64,
    /// Size of a unit of the source, which is done as a whole; 16 MiB, or one part in 4096 of the source when not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    unit_size: Option<u64>,
    /// Number of threads; that of the cores when not given. The dataset is the same with any number.
    #[arg(long)]
    threads: Option<NonZeroUsize>,
    /// Goes on where a `tokenize` with another source or other options was begun; what was done and still fits is kept. Replaces no dataset.
    #[arg(long)]
    force: bool,
    /// Does nothing if a dataset is there, and prints its report, whatever it was made of.
    #[arg(long, conflicts_with = "force")]
    exist_ok: bool,
    /// Does only part I of N, from 0 to N-1, on any machine. A part that was killed goes on where it ended. When all parts are done,
    /// `spdl-ctl merge` makes the dataset of them.
    #[arg(long, value_name = "I/N", conflicts_with_all = ["force", "exist_ok"])]
    part: Option<PackPart>,
    /// Prints the report as one line of JSON, and no progress.
    #[arg(long)]
    json: bool,
}

/// Runs `tokenize`.
pub(crate) fn run(args: TokenizeArgs) -> CtlResult {
    allocator::return_large_buffers();
    interrupt::run(|mut interrupt| async move {
        if args.exist_ok
            && let Some(there) = DatasetReport::of_existing(&args.dataset).await
        {
            return print_dataset(&there, args.json);
        }
        let (tokenizer, model) = open_tokenizer(&args.tokenizer).await?;
        let (text, from) = if args.chats.are_given() {
            (DocumentText::Chat(Box::new(args.chats.open(&model).await?)), RecordText::Whole)
        } else {
            let append = args.append.as_deref().map(|token| id_of(&tokenizer, &args.tokenizer, token)).transpose()?;
            let eos = eos_token(&model).await.and_then(|token| tokenizer.id(&token));
            let special = if args.special_tokens { SpecialTokens::Add } else { SpecialTokens::Leave };
            let from = args.from.split('|').map(str::to_owned).collect();
            (DocumentText::Document { special, eos, append }, RecordText::Fields(from))
        };
        let encoding = TokenEncoding::of_vocab(tokenizer.vocab())?;
        let encoding = if args.chats.are_given() { encoding.with_masks() } else { encoding };
        let options = TokenBuildOptions {
            name: args.name.clone(),
            order: if args.no_shuffle { PackOrder::AsListed } else { PackOrder::Shuffled { seed: args.seed } },
            shard_bytes: args.shard_size,
            block_bytes: args.block_size,
            overwrite: overwrite(args.force),
            threads: args.threads.map_or_else(threads, NonZeroUsize::get),
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
            let source = Arc::new(TokenizedSource { texts, tokenizer, text });
            if let Some(count) = args.chats.show {
                let (source, in_colours) = (Arc::clone(&source), chats::in_colours());
                chats::print(&blocking(move || source.shown(count, in_colours)).await?)?;
            }
            let source: Arc<dyn DocumentSource> = source;
            let line = TokenLine::new(args.json);
            let (show, stop) = (|progress| line.at(progress), interrupt.asked());
            match args.part {
                Some(part) => {
                    print_part(&build_token_part(&to, &source, &options, part, &show, stop).await?, args.json)
                }
                None => print(&build_tokens(&to, &source, &options, &show, stop).await?, args.json),
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

/// Reads a tokenizer from a file, or from the folder that it lies in, and returns that folder, too.
async fn open_tokenizer(path: &str) -> Result<(Tokenizer, DatasetStore), CtlError> {
    let is_folder = Path::new(path).is_dir() || path.contains("://") && !path.ends_with(".json");
    let (folder, name) = if is_folder { (path, TOKENIZER) } else { file_of(path) };
    let store = DatasetStore::open_with(folder, &StoreOptions::from_env())?.pinned().await?;
    let bytes = store.read(name, MAX_TOKENIZER_BYTES).await?;
    let unusable =
        |error: TokenizerError| DatasetError::Source { path: store.url_of(name), problem: error.to_string() };
    let tokenizer = Tokenizer::open(&bytes).map_err(unusable)?;
    Ok((tokenizer, store))
}

/// Returns the token that ends a text, if a tokenizer_config.json in the folder of a model states it.
async fn eos_token(model: &DatasetStore) -> Option<String> {
    let config = model.read(TOKENIZER_CONFIG, MAX_CONFIG_BYTES).await.ok()?;
    let config: serde_json::Value = serde_json::from_slice(&config).ok()?;
    let token = config.get("eos_token")?;
    token.get("content").unwrap_or(token).as_str().map(str::to_owned)
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
    match built.empty_documents {
        0 => Ok(()),
        empty => outln!("left out: {} without a token", report::count(empty, "empty document", "empty documents")),
    }
}

/// Prints the report about a part.
fn print_part(done: &TokenPartReport, json: bool) -> Result<(), CtlError> {
    if json {
        return report::json(done);
    }
    outln!(
        "{}: part {} of {}: {} of {}, {}, {}",
        done.url,
        done.part,
        done.parts,
        report::count(done.units, "unit", "units"),
        report::grouped(done.all_units),
        report::count(done.documents, "document", "documents"),
        report::count(done.tokens, "token", "tokens"),
    )?;
    outln!("when all parts are done: spdl-ctl merge {}", done.url)
}
