//! `spdl-ctl index`: makes a manifest for existing shards, or for loose files.

use std::{path::PathBuf, process::ExitCode, sync::Arc};

use spdl_dataset::{FileTable, FolderPictures, IndexOptions, OldMetadata, ShardList, Splits, index_until, tar::KeyEnd};
use spdl_shard::{
    format::{Format, format_called, format_names, token_files::raw_dtype},
    store::DatasetStore,
};
use spdl_store::StoreOptions;
use spdl_types::{DType, size::parse_bytes};

use super::{CtlResult, class_args::ClassArgs, interrupt, pack, progress::ProgressLine};

/// Arguments of `index`.
#[derive(Debug, clap::Args)]
pub(crate) struct IndexArgs {
    /// Folder or URL with the shards (`*.tar`, `*.tar.gz`, MDS, Parquet, TFRecord, ArrayRecord, tokens of Megatron or datatrove), or with
    /// loose files, such as a folder of pictures per class. Or the shards themselves, or what matches them (`shards/*.tar`): the manifest lies in the folder that
    /// they have in common.
    #[arg(required = true)]
    dataset: Vec<String>,
    /// Format of the dataset; recognised by what is there when not given: `files` if there are pictures and no shards.
    #[arg(long, value_parser = parse_format)]
    format: Option<&'static dyn Format>,
    /// For loose files, and for tars: a table with a row for each record, and any fields. A list of paths, values with tabs
    /// or commas (`.csv`) between them and a header line that names a column `file` or `file_name`, JSON lines (`.jsonl`) with the key `file`, or COCO's annotations (`.json`),
    /// which become the field `objects`. Of speech: a manifest of NeMo, of files or of tars, a table of Common Voice, a data folder of Kaldi, or a folder of
    /// lhotse's Shar. Paths are relative to the folder, or the names of members of its tars. Only these are indexed, with those that have
    /// their stems. Any table is about tars where the folder has these, and not the file of its first row, or with `--format tar`.
    #[arg(long, value_name = "PATH")]
    table: Option<PathBuf>,
    /// For loose files: the pictures of a folder are the frames of a video, which is one sample, in the order of the numbers in their
    /// names. The folders in which those of videos lie are their classes; a row of a `--table` names a folder.
    #[arg(long)]
    frames: bool,
    /// Folder or URL for the manifest and the record indexes, when the shards' folder is read-only: the manifest names
    /// it. A folder that does not exist is made.
    #[arg(long, value_name = "URL")]
    out: Option<String>,
    /// Only these shards, in this order, or only these loose files: `a.tar,b/c.tar`, `train-{000000..000999}.tar`, `train-*`. Paths
    /// are relative to the folder.
    #[arg(long, value_name = "NAME,..")]
    shards: Option<Vec<String>>,
    /// Only the shards of this split, by their names: `train`, `validation`, `test`, or what stands before the numbers, as in
    /// `data/SPLIT-00000-of-00008.parquet` and `NAME-SPLIT.tfrecord-00000-of-00008`.
    #[arg(long, value_name = "NAME", conflicts_with_all = ["all_splits", "shards"])]
    split: Option<String>,
    /// Makes one dataset of all splits.
    #[arg(long)]
    all_splits: bool,
    /// Name of the dataset; the last part of its URL when not given.
    #[arg(long)]
    name: Option<String>,
    /// Field that holds a Pascal VOC annotation (`xml`): one sample per object. Not for loose files: pack these.
    #[arg(long, value_name = "FIELD")]
    boxes: Option<String>,
    /// Of tars: where keys end in the names of files, at the `first-dot`, as in WebDataset, or at the `last-dot`, so that each of
    /// `cat.0.jpg` and `cat.1.jpg` is a record. The first dot when not given; where that makes few records of many pictures, an error.
    #[arg(long, value_name = "DOT", value_parser = KeyEnd::named)]
    key_ends_at: Option<KeyEnd>,
    /// Of files of tokens alone (`--format raw_tokens`: `.npy` without a header, `.bin`): the type of the tokens, such as `u16`. Those of
    /// `.u16` and `.u32` need none.
    #[arg(long, value_name = "TYPE", value_parser = raw_dtype)]
    dtype: Option<DType>,
    /// Of files of tokens alone: the token that ends documents. With it, the format is `raw_tokens`.
    #[arg(long, value_name = "TOKEN", allow_negative_numbers = true)]
    end_token: Option<i64>,
    #[command(flatten)]
    classes: ClassArgs,
    /// Size of a block, the unit of shuffle, fetch and cache; 8 MiB when not given.
    #[arg(long, value_name = "SIZE", value_parser = parse_bytes)]
    block_size: Option<u64>,
    /// Leaves out up to this many shards that are damaged, or no shards of the format, and names them. Without, the first one is an
    /// error.
    #[arg(long, value_name = "N", default_value_t = 0)]
    skip_bad_shards: u32,
    /// Replaces an existing manifest, after all shards are read. Keeps its metadata of shards whose bytes are the
    /// same: their blocks, their samples, the segments of crop-ready pictures, and the classes.
    #[arg(long)]
    force: bool,
    /// With --force: discards that metadata. The result is a different dataset: jobs and checkpoints of the old one do
    /// not work with it.
    #[arg(long, requires = "force")]
    discard_metadata: bool,
    /// Prints the report as one line of JSON, and no progress bar.
    #[arg(long)]
    json: bool,
}

/// Runs `index`.
pub(crate) fn run(args: IndexArgs) -> CtlResult {
    spdl_process::allocator::return_large_buffers();
    let (dataset, shards) = ShardList::of_paths(&args.dataset, args.shards.as_deref().map(ShardList::of_texts))?;
    let table = args.table.as_deref().map(|table| FileTable::read(table, &dataset)).transpose()?;
    let options = IndexOptions {
        format: args.format,
        table: table.map(Arc::new),
        pictures: if args.frames { FolderPictures::Frames } else { FolderPictures::Samples },
        shards,
        splits: Splits::of(args.split, args.all_splits),
        name: args.name,
        boxes: args.boxes,
        key_ends_at: args.key_ends_at,
        dtype: args.dtype,
        end_token: args.end_token,
        block_bytes: args.block_size,
        skip_bad_shards: args.skip_bad_shards,
        overwrite: pack::overwrite(args.force),
        old_metadata: if args.discard_metadata { OldMetadata::Discard } else { OldMetadata::Keep },
        ..IndexOptions::default()
    };
    let report = interrupt::run(|mut interrupt| async move {
        let from = DatasetStore::open(&dataset)?;
        let to = match &args.out {
            Some(out) => DatasetStore::create_with(out, &StoreOptions::from_env())?,
            None => from.clone(),
        };
        let bar = ProgressLine::of_dataset(args.json, "indexing");
        let on_progress = |progress| bar.dataset_at(progress);
        let options = IndexOptions { classes: args.classes.order().await?, ..options };
        Ok::<_, super::CtlError>(index_until(&from, &to, &options, &on_progress, interrupt.asked()).await?)
    })?;
    pack::print(&report, args.json)?;
    Ok(ExitCode::SUCCESS)
}

fn parse_format(name: &str) -> Result<&'static dyn Format, String> {
    format_called(name).ok_or_else(|| format!("known are: {}", format_names().collect::<Vec<_>>().join(", ")))
}
