//! `spdl-ctl verify`: reads a whole dataset, and checks every byte against the manifest and every picture against its
//! original.

use std::{path::Path, process::ExitCode};

use spdl_dataset::{Against, FieldChoice, PackSource, PictureCheck, VerifyOptions, VerifyReport, verify};
use spdl_job::JobFile;
use spdl_order::DatasetFacts;
use spdl_shard::{
    manifest::{MANIFEST_NAME, MetadataPlace},
    store::DatasetStore,
};
use spdl_types::{Fingerprint, SampleId, size::parse_bytes};
use spdl_worker::{
    decode::{BadSampleProblem, Decoder, FieldTarget, SampleKey},
    own_frame_decoders,
};

use super::{CtlError, CtlResult, output::outln, progress::ProgressLine, report};

/// Arguments of `verify`.
#[derive(Debug, clap::Args)]
pub(crate) struct VerifyArgs {
    /// Folder or URL of the dataset.
    dataset: String,
    /// Compares every record with its source: a folder with one folder per class, a text file that lists pictures, or
    /// another dataset (its folder or URL). Pictures must have the same coefficients, which give the same pixels in
    /// every decoder, also after `pack --crop-ready`; scalable pictures must give back the same files.
    #[arg(long, value_name = "SOURCE")]
    against: Option<String>,
    /// With --against files: the files that became fields, as given to `pack --fields`.
    #[arg(long, value_name = "SUFFIX[=NAME],..", requires = "against")]
    fields: Option<String>,
    /// Decodes every picture completely, with training's decoder, and names the pictures that would be bad samples.
    /// Takes about 10 ms of a core for each picture.
    #[arg(long)]
    decode: bool,
    /// With --decode: memory for the pictures that are being decoded. A picture that takes more is named and not decoded.
    #[arg(long, value_name = "SIZE", default_value = "80MiB", value_parser = parse_bytes, requires = "decode")]
    decode_memory: u64,
    /// Prints the report as one line of JSON, and no progress bar.
    #[arg(long)]
    json: bool,
}

/// Runs `verify`; the exit code is 1 when there are faults.
pub(crate) fn run(args: &VerifyArgs) -> CtlResult {
    spdl_process::allocator::return_large_buffers();
    let found = super::runtime()?.block_on(async {
        let store = DatasetStore::open(&args.dataset)?;
        let against = args.against.as_deref().map(originals).transpose()?;
        let fields = args.fields.as_deref().map(FieldChoice::parse).transpose()?;
        let decode = args.decode.then(|| picture_check(args.decode_memory));
        let options = VerifyOptions { against, fields, decode };
        let bar = ProgressLine::of_dataset(args.json, "verifying");
        Ok::<_, CtlError>(verify(&store, &options, &|progress| bar.dataset_at(progress)).await?)
    })?;
    if args.json {
        report::json(&found)?;
    } else {
        print(&found, args.against.is_some())?;
    }
    Ok(if found.faults.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Opens the originals at a path or URL: a dataset for a URL or a folder with a manifest, else files.
fn originals(source: &str) -> Result<Against, CtlError> {
    let path = Path::new(source);
    let mut manifests = MetadataPlace::ALL.iter().map(|place| path.join(place.path(MANIFEST_NAME)));
    if source.contains("://") || manifests.any(|manifest| manifest.exists()) {
        return Ok(Against::Dataset(DatasetStore::open(source)?));
    }
    Ok(Against::Files(PackSource::of(path)))
}

/// Returns a check that decodes whole pictures with the decoder that training uses.
fn picture_check(memory_bytes: u64) -> PictureCheck {
    // Resizing to one pixel without a crop decodes all pixels.
    let text = "name = \"verify\"\ndataset = \"-\"\nglobal_batch = 1\n[[column]]\nname = \"picture\"\nfrom = \"picture\"\n\
                decode = \"image\"\nops = [{ resize = { size = [1, 1] } }]";
    let facts = DatasetFacts::new(Fingerprint::default(), 1, 1);
    let job = JobFile::parse(text, "verify").and_then(|file| file.freeze(&facts)).expect("the job makes sense");
    let decoder = Decoder::new(&job, []).expect("the job uses no classes").with_memory_bytes(memory_bytes);
    let decoder = decoder.with_frames(own_frame_decoders(1));
    PictureCheck::new(move |content| {
        let key = SampleKey { epoch: 0, id: SampleId(0), sample_in_record: 0 };
        let mut pixel = [0; 3];
        let field = |_: &str| Some(content.clone().into());
        let decoded = decoder.decode_sample(key, &field, &mut [FieldTarget::Fixed(&mut pixel)]);
        decoded.map_err(|cause| match cause.problem {
            BadSampleProblem::TooMuchMemory { width, height, needed_bytes, max_bytes, .. } => format!(
                "was not decoded: a picture of {width}x{height} takes {} of memory, and --decode-memory allows {}",
                report::bytes(needed_bytes),
                report::bytes(max_bytes)
            ),
            problem => {
                let problem = problem.to_string();
                problem.strip_prefix("field `picture` ").unwrap_or(&problem).to_owned()
            }
        })
    })
}

fn print(found: &VerifyReport, is_compared: bool) -> Result<(), CtlError> {
    for fault in &found.faults {
        let shard = fault.shard.as_ref().map(|shard| format!("shard `{shard}`"));
        let record = fault.record.as_ref().map(|key| format!("record `{key}`"));
        let place: Vec<String> = shard.into_iter().chain(record).collect();
        outln!("{}: {}", place.join(", "), fault.problem)?;
    }
    outln!(
        "{}, {}, {}, {}: {}",
        report::count(found.shards, "shard", "shards"),
        report::count(found.records, "record", "records"),
        report::count(found.fields, "field", "fields"),
        report::bytes(found.bytes),
        report::count(found.faults.len() as u64, "fault", "faults"),
    )?;
    if found.crop_ready_pictures > 0 {
        outln!(
            "{} crop-ready pictures decode and have their segments at the offsets in their tables",
            report::grouped(found.crop_ready_pictures)
        )?;
    }
    if found.scalable_pictures > 0 {
        let pictures = report::count(found.scalable_pictures, "scalable picture gives", "scalable pictures give");
        outln!("{pictures} back a whole file")?;
    }
    match found.decoded_pictures {
        Some(decoded) => outln!("{} decoded whole", report::count(decoded, "picture was", "pictures were"))?,
        None if found.fields_without_checksum > 0 => outln!("pictures were not decoded; --decode finds bad ones")?,
        None => outln!("pictures were not decoded: their bytes are those that were packed; --decode finds bad ones")?,
    }
    if found.fields_without_checksum > 0 {
        outln!(
            "{} no checksum, as loose files: only sizes were compared, and etags where the store has them",
            report::count(found.fields_without_checksum, "field has", "fields have")
        )?;
    }
    if found.other_etags > 0 {
        outln!(
            "{} another etag than the manifest has, as copies do: their bytes were compared",
            report::count(found.other_etags, "shard has", "shards have")
        )?;
    }
    if is_compared {
        outln!(
            "{} pictures have the coefficients of their originals, {} other fields are the same, {} originals were left out \
             without an annotation",
            report::grouped(found.same_pictures),
            report::grouped(found.same_fields),
            report::grouped(found.left_out),
        )?;
    }
    Ok(())
}
