//! `spdl-ctl pack`: writes shards from pictures and the files that belong to them. `pack_tokens.rs` has what it does with tokens.

use std::{path::PathBuf, process::ExitCode};

use spdl_dataset::{
    Annotations, DatasetReport, FieldChoice, Jpegs, NewFolders, Overwrite, PackOptions, PackPart, PackSource,
    PartReport, TokenPackOptions, pack_part_until, pack_until,
};
use spdl_shard::store::DatasetStore;
use spdl_store::StoreOptions;

use super::{
    CtlError, CtlResult,
    class_args::ClassArgs,
    interrupt::{self, Interrupt},
    new_dataset::NewDatasetArgs,
    output::outln,
    pack_tokens::{self, PackedTokens, TokenArgs},
    progress::ProgressLine,
    report, token_part,
};

/// Arguments of `pack`.
#[derive(Debug, clap::Args)]
pub(crate) struct PackArgs {
    /// A folder with one folder per class, on disk or as a URL (s3://, gs://, az:// ...), or a text file with a file's path
    /// (and, after a tab, its label) on each line. Files with the same stem (`0.jpg`, `0.png`, `0.txt`) become one record.
    /// Several folders on disk make one dataset: what is in folders of one name is of one class. With `--to`, a dataset of tokens.
    #[arg(required = true, num_args = 1..)]
    source: Vec<PathBuf>,
    /// Folder or URL of the dataset: a path, s3://, gs://, az:// ...
    dataset: String,
    #[command(flatten)]
    new: NewDatasetArgs,
    /// Which files of a record become its fields, by suffix, and the names of the fields: `jpg,png=mask,txt`. All files
    /// when not given.
    #[arg(long, value_name = "SUFFIX[=NAME],..")]
    fields: Option<String>,
    /// Folder of Pascal VOC annotations, on disk or as a URL, at the same relative paths as the pictures; one sample per
    /// object.
    #[arg(long, value_name = "DIR", conflicts_with = "annotations_beside")]
    annotations: Option<PathBuf>,
    /// Uses the Pascal VOC annotations in the pictures' folders; one sample per object.
    #[arg(long)]
    annotations_beside: bool,
    #[command(flatten)]
    tokens: TokenArgs,
    #[command(flatten)]
    classes: ClassArgs,
    /// Makes classes of folders that are called as splits (`train`, `val`), too.
    #[arg(long)]
    all_splits: bool,
    /// Number of records at which a shard is closed and the next one begun.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..))]
    records_per_shard: Option<u32>,
    /// Rewrites baseline JPEGs without loss, about 1 % larger, with a restart marker after every few MCUs. A random
    /// crop is then decoded without the data that lies before the crop. Progressive JPEGs become baseline ones, some 5 %
    /// larger. Other pictures are stored unchanged.
    #[arg(long)]
    crop_ready: bool,
    /// Packs baseline JPEGs as scalable pictures, some 5 % smaller: of these, workers read and decode what a crop's area
    /// and its scale need, and `unpack` gives back the same files. Only spdl-cluster reads them. Other pictures, and
    /// those that would become larger, are stored unchanged.
    #[arg(long, conflicts_with = "crop_ready")]
    scalable: bool,
    /// Codes videos anew with a key frame in every so many frames, as 8: of a clip, a worker then decodes few frames that it does not have. The
    /// program `ffmpeg` does it, with H.264 or VP9 of high quality. Pixels change, and files become larger. Sound is copied.
    #[arg(long, value_name = "FRAMES", value_parser = clap::value_parser!(u32).range(1..=600))]
    gop: Option<u32>,
    /// Replaces an existing dataset when the new one is complete; until then, both need space. Also deletes what a
    /// killed `pack` has left.
    #[arg(long)]
    force: bool,
}

/// Runs `pack`.
pub(crate) fn run(args: PackArgs) -> CtlResult {
    spdl_process::allocator::return_large_buffers();
    let new = args.new;
    if let Some(options) = args.tokens.options()? {
        let options = TokenPackOptions {
            name: new.name.clone(),
            order: new.order(),
            shard_bytes: new.shard_size,
            shard_records: args.records_per_shard,
            block_bytes: new.block_size,
            overwrite: overwrite(args.force),
            ..options
        };
        match pack_tokens::run(&args.source, &args.dataset, &options, &new)? {
            PackedTokens::Whole(report) => print(&report, new.json)?,
            PackedTokens::Part(report) => token_part::print_part(&report, new.json)?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let source = PackSource::open_all(&args.source)?;
    let options = PackOptions {
        name: new.name.clone(),
        fields: args.fields.as_deref().map(FieldChoice::parse).transpose()?,
        annotations: match args.annotations {
            Some(root) => Some(Annotations::under(&root)?),
            None => args.annotations_beside.then_some(Annotations::Beside),
        },
        all_splits: args.all_splits,
        order: new.order(),
        shard_bytes: new.shard_size,
        shard_records: args.records_per_shard,
        block_bytes: new.block_size,
        jpegs: match (args.crop_ready, args.scalable) {
            (true, _) => Jpegs::CropReady,
            (_, true) => Jpegs::Scalable,
            _ => Jpegs::AsTheyAre,
        },
        gop: args.gop,
        overwrite: overwrite(args.force),
        ..PackOptions::new(source)
    };
    let classes = args.classes;
    if let Some(part) = new.part {
        let report = interrupt::run(|interrupt| async {
            let options = PackOptions { classes: classes.order().await?, ..options };
            write_part(&args.dataset, &options, part, new.json, interrupt).await
        })?;
        print_part(&report, new.json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let report = interrupt::run(|interrupt| async {
        if let Some(there) = new.existing(&args.dataset).await {
            return Ok(there);
        }
        let options = PackOptions { classes: classes.order().await?, ..options };
        write(&args.dataset, &options, new.json, interrupt).await
    })?;
    print(&report, new.json)?;
    Ok(ExitCode::SUCCESS)
}

/// Packs a dataset, with a progress bar unless `quiet`. Leaves no files behind when interrupted.
pub(crate) async fn write(
    dataset: &str,
    options: &PackOptions,
    quiet: bool,
    mut interrupt: Interrupt,
) -> Result<DatasetReport, CtlError> {
    let folders = NewFolders::of(dataset);
    let store = DatasetStore::create_with(dataset, &StoreOptions::from_env())?;
    let bar = ProgressLine::of_dataset(quiet, "packing");
    let packed = pack_until(&store, options, &|progress| bar.dataset_at(progress), interrupt.asked()).await;
    if packed.is_err() {
        folders.remove_empty();
    }
    Ok(packed?)
}

/// Packs a part of a dataset, with a progress bar unless `quiet`.
async fn write_part(
    dataset: &str,
    options: &PackOptions,
    part: PackPart,
    quiet: bool,
    mut interrupt: Interrupt,
) -> Result<PartReport, CtlError> {
    let store = DatasetStore::create_with(dataset, &StoreOptions::from_env())?;
    let bar = ProgressLine::of_dataset(quiet, "packing");
    let on_progress = |progress| bar.dataset_at(progress);
    Ok(pack_part_until(&store, options, part, &on_progress, interrupt.asked()).await?)
}

/// Prints the report about a part.
fn print_part(packed: &PartReport, json: bool) -> Result<(), CtlError> {
    if json {
        return report::json(packed);
    }
    let kept = match packed.kept_shards {
        0 => String::new(),
        kept => format!(" ({} packed before)", report::grouped(kept)),
    };
    outln!(
        "{}: part {} of {}: {}{kept} of {}, {}, {}, {}",
        packed.url,
        packed.part,
        packed.parts,
        report::count(packed.shards, "shard", "shards"),
        report::grouped(packed.all_shards),
        report::count(packed.samples, "sample", "samples"),
        report::count(packed.records, "record", "records"),
        report::bytes(packed.bytes),
    )?;
    outln!("when all parts are packed: spdl-ctl merge {}", packed.url)
}

/// Translates `--force`.
pub(crate) const fn overwrite(force: bool) -> Overwrite {
    if force { Overwrite::Replace } else { Overwrite::Refuse }
}

/// Prints the report about a dataset.
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
    let rewritten = |pictures: u64, kind: &str, [bytes, source_bytes]: [u64; 2], beside: &str| {
        if pictures == 0 {
            return Ok(());
        }
        outln!(
            "{} {kind}: {} instead of {}, {:+.2} %{beside}",
            report::count(pictures, "picture", "pictures"),
            report::bytes(bytes),
            report::bytes(source_bytes),
            (bytes as f64 / source_bytes as f64 - 1.0) * 100.0,
        )
    };
    let crop_ready_bytes = [made.crop_ready_bytes, made.crop_ready_source_bytes];
    let tables = ", their tables in the record indexes included";
    rewritten(made.crop_ready_pictures, "crop-ready", crop_ready_bytes, tables)?;
    let scalable_bytes = [made.scalable_bytes, made.scalable_source_bytes];
    rewritten(made.scalable_pictures, "scalable", scalable_bytes, "")?;
    if made.coded_videos > 0 {
        outln!(
            "{} coded anew, with other pixels than their files: {} instead of {}, {:+.2} %",
            report::count(made.coded_videos, "video", "videos"),
            report::bytes(made.coded_video_bytes),
            report::bytes(made.coded_video_source_bytes),
            (made.coded_video_bytes as f64 / made.coded_video_source_bytes as f64 - 1.0) * 100.0,
        )?;
    }
    for (why, pictures) in &made.jpegs_as_they_are {
        outln!("{} not scalable: {}", report::count(*pictures, "JPEG", "JPEGs"), why.text())?;
    }
    print_content(made)?;
    outln!("fingerprint {}", made.fingerprint)?;
    for note in &made.notes {
        outln!("note: {note}")?;
    }
    Ok(())
}

/// Prints the classes, the fields, and the files that were left out.
fn print_content(made: &DatasetReport) -> Result<(), CtlError> {
    if made.classes > 0 {
        let shown: Vec<&str> = made.class_names.iter().map(String::as_str).take(SHOWN_NAMES).collect();
        let more = if made.classes > shown.len() { ", ..." } else { "" };
        let classes = report::count(made.classes as u64, "class", "classes");
        outln!("{classes}: {}{more}", shown.join(", "))?;
    }
    let fields = made.fields.iter().map(|(field, records)| match made.records - records {
        _ if made.uncounted_fields.contains(field) => {
            format!("{field} in up to {} (which have it is seen when they are read)", report::grouped(*records))
        }
        0 => format!("{field} in all records"),
        lacking => format!("{field} in {} ({} do not have it)", report::grouped(*records), report::grouped(lacking)),
    });
    if !made.fields.is_empty() {
        outln!("fields: {}", fields.collect::<Vec<_>>().join(", "))?;
    }
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
    for bad in &made.bad_shards {
        outln!("left out: shard `{}`: {}", bad.shard, bad.problem)?;
    }
    for odd in &made.odd_members {
        outln!("note: {} {} (`{}` in shard `{}`)", report::grouped(odd.count), odd.what.text(), odd.first, odd.shard)?;
    }
    Ok(())
}

/// Number of classes that are shown by name.
const SHOWN_NAMES: usize = 10;
