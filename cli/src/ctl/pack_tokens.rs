//! `spdl-ctl pack --to`: writes the tokens of a dataset as files of another format.

use std::{num::NonZeroUsize, path::PathBuf, sync::Arc, thread};

use spdl_dataset::{
    DatasetDocuments, DatasetError, DatasetReport, DocumentSource, NewFolders, TokenEncoding, TokenPackOptions,
    TokenPartReport, build_token_part, pack_tokens_until,
};
use spdl_shard::store::DatasetStore;
use spdl_store::StoreOptions;
use spdl_worker::decode::read_tokens;

use super::{
    CtlError, interrupt,
    new_dataset::NewDatasetArgs,
    progress::{ProgressLine, TokenLine},
};

/// Options that are for pictures, and not for tokens.
const OF_PICTURES: [&str; 10] = [
    "fields",
    "annotations",
    "annotations_beside",
    "classes",
    "classes_file",
    "classes_from",
    "all_splits",
    "crop_ready",
    "scalable",
    "gop",
];

/// The formats that tokens are written in.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum TokenFormat {
    /// Pairs of `.bin` and `.idx`, as Megatron-LM and NeMo read them.
    Megatron,
}

/// How tokens are packed.
#[derive(Debug, clap::Args)]
pub(crate) struct TokenArgs {
    /// Packs tokens: writes those of a dataset, which `index` has made of Parquet, MDS, TFRecord or files of tokens, as pairs of
    /// `.bin` and `.idx`. They are a dataset, too.
    #[arg(long, value_name = "FORMAT", requires = "vocab", conflicts_with_all = OF_PICTURES)]
    to: Option<TokenFormat>,
    /// With --to: the number of ids of the tokenizer. It decides whether a token takes 2 or 4 bytes, as in Megatron; a document with
    /// another id is an error.
    #[arg(long, value_name = "IDS", requires = "to")]
    vocab: Option<u32>,
    /// With --to: the field with the tokens; of several, the first that a record has.
    #[arg(long, value_name = "FIELD|..", requires = "to", default_value = "tokens|input_ids")]
    from: String,
    /// With --to: puts this id after each document that has tokens, as Megatron's `--append-eod` does. Without it nothing is added.
    #[arg(long, value_name = "ID", requires = "to")]
    eos: Option<u32>,
}

impl TokenArgs {
    /// Returns how tokens are packed; `None` if pictures are.
    pub(crate) fn options(&self) -> Result<Option<TokenPackOptions>, CtlError> {
        let (Some(TokenFormat::Megatron), Some(vocab)) = (self.to, self.vocab) else { return Ok(None) };
        let encoding = TokenEncoding::of_vocab(vocab)?;
        let from = self.from.split('|').map(str::to_owned).collect();
        let options = TokenPackOptions::new(from, Arc::new(move |value| read_tokens(value, vocab)), encoding);
        Ok(Some(TokenPackOptions { eos: self.eos, ..options }))
    }
}

/// Tokens that were packed.
pub(crate) enum PackedTokens {
    /// All of a dataset.
    Whole(Box<DatasetReport>),
    /// A part of it.
    Part(TokenPartReport),
}

/// Packs the tokens of a dataset, or a part of them.
pub(crate) fn run(
    source: &[PathBuf],
    dataset: &str,
    options: &TokenPackOptions,
    new: &NewDatasetArgs,
) -> Result<PackedTokens, CtlError> {
    let [source] = source else {
        let problem = "packs the tokens of one dataset; give one".to_owned();
        return Err(DatasetError::Option { option: "to", problem }.into());
    };
    let source = source.to_string_lossy();
    interrupt::run(|mut interrupt| async move {
        if let Some(there) = new.existing(dataset).await {
            return Ok(PackedTokens::Whole(Box::new(there)));
        }
        let from = DatasetStore::open(&source)?;
        let folders = NewFolders::of(dataset);
        let to = DatasetStore::create_with(dataset, &StoreOptions::from_env())?;
        if let Some(part) = new.part {
            let documents: Arc<dyn DocumentSource> = Arc::new(DatasetDocuments::open(&from, options).await?);
            let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get);
            let (line, building) = (TokenLine::new(new.json), options.building(threads));
            let show = |progress| line.at(progress);
            let built = build_token_part(&to, &documents, &building, part, &show, interrupt.asked()).await;
            if built.is_err() {
                folders.remove_empty();
            }
            return Ok(PackedTokens::Part(built?));
        }
        let bar = ProgressLine::of_dataset(new.json, "packing");
        let on_progress = |progress| bar.dataset_at(progress);
        let packed = pack_tokens_until(&from, &to, options, &on_progress, interrupt.asked()).await;
        if packed.is_err() {
            folders.remove_empty();
        }
        Ok::<_, CtlError>(PackedTokens::Whole(Box::new(packed?)))
    })
}
