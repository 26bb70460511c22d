//! `spdl-ctl pack`: writes shards from pictures and the files beside them.

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
};

use spdl_shard::{
    dataset::{
        Annotations, DatasetReport, FieldChoice, Jpegs, Overwrite, PackOptions, PackOrder, PackSource, pack_until,
    },
    store::{DatasetStore, StoreOptions},
};
use spdl_worker::size::parse_bytes;

use super::{
    CtlError, Outcome,
    interrupt::{self, Interrupt},
    output::outln,
    progress::ProgressLine,
    report,
};

/// Arguments of `pack`.
#[derive(Debug, clap::Args)]
pub(crate) struct PackArgs {
    /// A folder with one folder per class, or a text file with a file's path (and, after a tab, its label) per line. Files with one stem
    /// (`0.jpg`, `0.png`, `0.txt`) are one record.
    source: PathBuf,
    /// Folder or URL of the dataset: a path, s3://, gs://, az:// ...
    dataset: String,
    /// Name of the dataset; the last part of its URL when not given.
    #[arg(long)]
    name: Option<String>,
    /// Which files of a record become its fields, by suffix, and what the fields are called: `jpg,png=mask,txt`. All when not given.
    #[arg(long, value_name = "SUFFIX[=NAME],..")]
    fields: Option<String>,
    /// Pascal VOC annotations lie under this folder, at the pictures' paths; one sample per object.
    #[arg(long, value_name = "DIR", conflicts_with = "annotations_beside")]
    annotations: Option<PathBuf>,
    /// Pascal VOC annotations lie beside the pictures; one sample per object.
    #[arg(long)]
    annotations_beside: bool,
    /// The classes in the order of their numbers, so that two datasets agree.
    #[arg(long, value_delimiter = ',', value_name = "NAME,..")]
    classes: Option<Vec<String>>,
    /// Seed of the records' order.
    #[arg(long, default_value_t = 0)]
    seed: u64,
    /// Keeps the source's order: blocks then hold few classes each, which makes the shuffle coarse.
    #[arg(long)]
    no_shuffle: bool,
    /// Size that shards are closed at.
    #[arg(long, value_name = "SIZE", default_value = "256MiB", value_parser = parse_bytes)]
    shard_size: u64,
    /// Records that shards are closed at.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    records_per_shard: Option<u32>,
    /// Size that blocks are cut at: the unit of shuffle, fetch and cache.
    #[arg(long, value_name = "SIZE", default_value = "8MiB", value_parser = parse_bytes)]
    block_size: u64,
    /// Writes baseline JPEGs anew, without loss and about 1 % larger, with a restart marker behind every few MCUs: random
    /// crops of them are decoded without reading what lies before the crop. Other pictures stay as they are.
    #[arg(long)]
    crop_ready: bool,
    /// Replaces a dataset that is there, once the new one is complete: until then, there has to be room for both. Also clears away what
    /// a run has left that was killed.
    #[arg(long)]
    force: bool,
    /// Prints the report as one line of JSON, and no progress bar.
    #[arg(long)]
    json: bool,
}

/// Runs `pack`.
pub(crate) fn run(args: PackArgs) -> Outcome {
    let source = PackSource::of(&args.source);
    let options = PackOptions {
        name: args.name,
        fields: args.fields.as_deref().map(FieldChoice::parse).transpose()?,
        annotations: match args.annotations {
            Some(root) => Some(Annotations::Under(root)),
            None => args.annotations_beside.then_some(Annotations::Beside),
        },
        classes: args.classes,
        order: if args.no_shuffle { PackOrder::AsListed } else { PackOrder::Shuffled { seed: args.seed } },
        shard_bytes: args.shard_size,
        shard_records: args.records_per_shard,
        block_bytes: args.block_size,
        jpegs: if args.crop_ready { Jpegs::CropReady } else { Jpegs::AsTheyAre },
        overwrite: overwrite(args.force),
        ..PackOptions::new(source)
    };
    let report = interrupt::run(|interrupt| write(&args.dataset, &options, args.json, interrupt))?;
    print(&report, args.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Packs, with a bar unless `quiet`; leaves nothing behind when interrupted.
pub(crate) async fn write(
    dataset: &str,
    options: &PackOptions,
    quiet: bool,
    mut interrupt: Interrupt,
) -> Result<DatasetReport, CtlError> {
    let made = missing_folders(dataset);
    let store = DatasetStore::create_with(dataset, &StoreOptions::from_env())?;
    let bar = ProgressLine::of_dataset(quiet, "packing");
    let packed = pack_until(&store, options, &|progress| bar.dataset_at(progress), interrupt.asked()).await;
    if packed.is_err() {
        // Only empty ones go: what somebody else has put there stays.
        made.iter().for_each(|folder| drop(std::fs::remove_dir(folder)));
    }
    Ok(packed?)
}

/// The folders that will be made for a dataset on disk, the innermost first.
fn missing_folders(dataset: &str) -> Vec<PathBuf> {
    if dataset.contains("://") {
        return Vec::new();
    }
    let folders =
        Path::new(dataset).ancestors().take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists());
    folders.map(Path::to_owned).collect()
}

/// What `--force` means.
pub(crate) const fn overwrite(force: bool) -> Overwrite {
    if force { Overwrite::Replace } else { Overwrite::Refuse }
}

/// Prints what was made.
pub(crate) fn print(made: &DatasetReport, json: bool) -> Result<(), CtlError> {
    if json {
        return report::json(made);
    }
    outln!(
        "{}: {} in {}, {}, {}, {}",
        made.url,
        report::count(made.samples, "sample", "samples"),
        report::count(made.records, "record", "records"),
        report::count(made.blocks.into(), "block", "blocks"),
        report::count(made.shards.into(), "shard", "shards"),
        report::bytes(made.bytes),
    )?;
    if made.crop_ready_pictures > 0 {
        let growth = made.crop_ready_bytes as f64 / made.crop_ready_source_bytes as f64 - 1.0;
        outln!(
            "{} crop-ready: {} instead of {}, {:+.2} %, their tables in the record indexes included",
            report::count(made.crop_ready_pictures, "picture", "pictures"),
            report::bytes(made.crop_ready_bytes),
            report::bytes(made.crop_ready_source_bytes),
            growth * 100.0,
        )?;
    }
    print_content(made)?;
    outln!("fingerprint {}", made.fingerprint)?;
    for note in &made.notes {
        outln!("note: {note}")?;
    }
    Ok(())
}

/// Prints what was found and what was left out, so that nobody has to guess what is in the dataset.
fn print_content(made: &DatasetReport) -> Result<(), CtlError> {
    if made.classes > 0 {
        let shown: Vec<&str> = made.class_names.iter().map(String::as_str).take(SHOWN_NAMES).collect();
        let more = if made.classes > shown.len() { ", ..." } else { "" };
        let classes = report::count(made.classes as u64, "class", "classes");
        outln!("{classes}: {}{more}", shown.join(", "))?;
    }
    let fields = made.fields.iter().map(|(field, records)| match made.records - records {
        0 => format!("{field} in all records"),
        lacking => format!("{field} in {} ({} lack it)", report::grouped(*records), report::grouped(lacking)),
    });
    outln!("fields: {}", fields.collect::<Vec<_>>().join(", "))?;
    for left_out in &made.left_out {
        let suffix = if left_out.suffix.is_empty() { String::new() } else { format!("`{}` ", left_out.suffix) };
        let files = if left_out.files == 1 { "file" } else { "files" };
        outln!(
            "left out: {} {suffix}{files}: {} (`{}`)",
            report::grouped(left_out.files),
            left_out.why.text(),
            left_out.example
        )?;
    }
    for odd in &made.odd_members {
        outln!("note: {} {} (`{}` in shard `{}`)", report::grouped(odd.count), odd.what.text(), odd.first, odd.shard)?;
    }
    Ok(())
}

/// Classes that are shown by name.
const SHOWN_NAMES: usize = 10;
