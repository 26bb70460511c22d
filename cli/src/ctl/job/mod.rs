//! `spdl-ctl job`: writes, submits, lists, shows, changes and removes jobs.

mod init;
mod place;
mod redact;
mod weights;

use std::{
    path::{Path, PathBuf},
    process::ExitCode,
    time::Duration,
};

use clap::Subcommand;
use spdl_control::{
    coordinator::JobStatus,
    messages::{FromCoordinator, JobReplacement, Refusal, ToCoordinator},
};
use spdl_job::{Callable, Column, Job, JobFile, OrderFile, SampleCostFile, Sequence, SequenceFile, job_file_schema};
use spdl_order::EpochEnd;
use spdl_sequence::PackMethod;
use spdl_shard::{sizes::save_sizes, store::DatasetStore, view::save_view};
use spdl_store::StoreOptions;
use spdl_types::SampleShape;
use spdl_worker::transform::{TransformSettings, UnknownSource, find_sources};

use self::{
    init::InitArgs,
    redact::{RedactArgs, RedactionsArgs},
    weights::WeightsArgs,
};
use super::{
    CtlError, CtlResult,
    coordinator::Connection,
    job_file,
    output::{self, outln},
    report, status,
    table::{Alignment, Table},
    working_set,
};
use crate::{
    datasets::{EvaluatedDataset, EvaluatedDatasets},
    evaluated::EvaluatedJob,
};

/// Limit for reading the dataset, to compare it with the job and to warn of a large working set. When raised, a submission to
/// which the dataset's store does not answer takes longer.
const READING_TIMEOUT: Duration = Duration::from_secs(5);

/// Arguments of `job`.
#[derive(Debug, clap::Args)]
pub(crate) struct JobArgs {
    #[command(subcommand)]
    action: JobAction,
}

#[derive(Debug, Subcommand)]
enum JobAction {
    /// Writes a first job for a dataset, and one for validation where there is data for it.
    Init(InitArgs),
    /// Creates a job from a job file; does nothing when the same job exists.
    Submit {
        /// The job file (TOML).
        file: PathBuf,
        /// Python interpreter that finds the source of the job's functions (`transform`), with numpy and their modules, so that
        /// workers with another version are refused; default: python3.
        #[arg(long, env = "SPDL_PYTHON", value_name = "PATH")]
        python: Option<PathBuf>,
        #[command(flatten)]
        connection: Connection,
        /// Replaces a job of this name that differs. Its runs keep their positions if the order and the bytes of the samples are the same, but
        /// for stages of sources from there on; otherwise it is another job, whose runs begin at the beginning.
        #[arg(long)]
        replace: bool,
        /// Prints the job as one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Lists the jobs: state, position and dataset.
    List {
        #[command(flatten)]
        connection: Connection,
        /// Prints the jobs as one line of JSON, in the form of `status --json`.
        #[arg(long)]
        json: bool,
    },
    /// Shows the frozen parameters of a job.
    Show {
        /// Its name.
        name: String,
        #[command(flatten)]
        connection: Connection,
        /// Prints the job as one line of JSON.
        #[arg(long)]
        json: bool,
    },
    /// Gives the sources of a job other weights from a sample on that no rank has reached, also while ranks train.
    Weights(WeightsArgs),
    /// Redacts samples of a job from a sample on that no rank has reached, also while ranks train: they do not come any more.
    Redact(RedactArgs),
    /// Prints the redactions of a job, as tables for its file.
    Redactions(RedactionsArgs),
    /// Removes a job, with its positions and its ledger of bad samples.
    Remove {
        /// Its name.
        name: String,
        #[command(flatten)]
        connection: Connection,
    },
    /// Prints the JSON Schema of job files, which editors use to complete and check them.
    Schema,
}

/// Runs `job`.
pub(crate) fn run(args: JobArgs) -> CtlResult {
    super::runtime()?.block_on(async {
        match args.action {
            JobAction::Init(args) => init::init(&args).await?,
            JobAction::Submit { file, python, connection, replace, json } => {
                let (name, done) = match replace {
                    true => self::replace(&connection, &file, python).await?,
                    false => {
                        let name = submit(&connection, &file, python).await?;
                        (name.clone(), format!("job `{name}` is there"))
                    }
                };
                if let Some(warning) = working_set_warning(&connection, &name).await? {
                    output::warn(&warning);
                }
                if json {
                    report::json(&describe(&connection, &name).await?)?;
                } else {
                    outln!("{done}")?;
                }
            }
            JobAction::List { connection, json } => {
                let (_, status) = status::ask(&connection).await?;
                if json {
                    report::json(&status.jobs)?;
                } else {
                    list(&status.jobs, |job| status::state(&status, job))?;
                }
            }
            JobAction::Show { name, connection, json } => {
                let job = describe(&connection, &name).await?;
                if json { report::json(&job)? } else { show(&job)? }
            }
            JobAction::Weights(args) => weights::run(args).await?,
            JobAction::Redact(args) => redact::run(args).await?,
            JobAction::Redactions(args) => redact::print(args).await?,
            JobAction::Remove { name, connection } => {
                connection.ask(&ToCoordinator::RemoveJob { name: name.clone() }).await?;
                outln!("job `{name}` is removed")?;
            }
            JobAction::Schema => output::raw(job_file_schema().as_bytes())?,
        }
        Ok(ExitCode::SUCCESS)
    })
}

/// Submits a job file and returns the job's name. Reading the file has made a relative dataset path absolute, because
/// the coordinator and the workers run in other folders. `python` finds the sources of the job's functions.
pub(crate) async fn submit(connection: &Connection, path: &Path, python: Option<PathBuf>) -> Result<String, CtlError> {
    let file = prepared(path, python).await?;
    let (toml, origin) = texts(&file, path);
    connection.ask(&ToCoordinator::SubmitJob { toml, origin }).await?;
    Ok(file.name)
}

/// Submits a job file in place of the job of its name, and returns that name and what has become of the job.
pub(crate) async fn replace(
    connection: &Connection,
    path: &Path,
    python: Option<PathBuf>,
) -> Result<(String, String), CtlError> {
    let mut file = prepared(path, python).await?;
    if let Ok(existing) = describe(connection, &file.name).await {
        keep_order(&mut file, &existing);
    }
    let (toml, origin) = texts(&file, path);
    let name = file.name;
    let replaced = match connection.ask(&ToCoordinator::ReplaceJob { toml, origin }).await {
        Err(CtlError::Refused(cause)) if matches!(*cause, Refusal::RunInUse { .. }) => {
            return Err(CtlError::JobHeld { job: name, cause });
        }
        reply => match reply? {
            FromCoordinator::Replaced(replaced) => replaced,
            _ => return Err(CtlError::Reply { request: "a replacement" }),
        },
    };
    let done = match replaced {
        JobReplacement::Created => format!("job `{name}` is there"),
        JobReplacement::Unchanged => format!("job `{name}` is there, and the same"),
        JobReplacement::Changed { differences } => {
            format!(
                "job `{name}` has changed in {differences}: its runs keep their positions, and what they have read stays the same"
            )
        }
        JobReplacement::New { differences } => {
            format!("job `{name}` is another one now, by {differences}: its runs begin at the beginning")
        }
    };
    Ok((name, done))
}

/// Leaves the parameters of the order as they were chosen for the existing job, where the file leaves them out: they were chosen for that
/// job's batch, which may be another one now.
fn keep_order(file: &mut JobFile, existing: &Job) {
    let (of_job, shuffle) = (file.order.unwrap_or_default(), file.shuffle);
    for source in &mut file.source {
        let kept = existing.sources.iter().find(|kept| kept.name == source.name && kept.dataset == source.dataset);
        if let Some(kept) = kept.filter(|_| shuffle == existing.order.shuffle) {
            let OrderFile { lanes, window } = source.order.unwrap_or_default();
            let (lanes, window) = (lanes.or(of_job.lanes), window.or(of_job.window));
            source.order = Some(OrderFile { lanes: lanes.or(Some(kept.lanes)), window: window.or(Some(kept.window)) });
        }
    }
    if !file.source.is_empty() {
        return;
    }
    if file.dataset == existing.dataset && file.shuffle == existing.order.shuffle {
        let OrderFile { lanes, window } = file.order.unwrap_or_default();
        let (lanes, window) = (lanes.or(Some(existing.order.lanes)), window.or(Some(existing.order.window)));
        file.order = Some(OrderFile { lanes, window });
    }
}

/// Returns the text of a job file, and the origin of the text.
fn texts(file: &JobFile, path: &Path) -> (String, String) {
    (toml::to_string(file).expect("a job file serialises"), path.display().to_string())
}

/// Reads a job file, evaluates its views and its sequences, measures its samples, and finds the sources of its functions.
async fn prepared(path: &Path, python: Option<PathBuf>) -> Result<JobFile, CtlError> {
    let mut file = job_file::read(path)?;
    file.check()?;
    let views = file.view.iter().chain(file.source.iter().filter_map(|source| source.view.as_ref()));
    let is_unpacked = |sequence: &SequenceFile| match &file.source[..] {
        [] => sequence.pools.is_none(),
        sources => sources.iter().any(|source| source.pools.is_none()),
    };
    let is_left = views.into_iter().any(|view| view.samples.is_none())
        || file.sequence.as_ref().is_some_and(is_unpacked)
        || file.cost.as_ref().is_some_and(SampleCostFile::is_unmeasured);
    let mut evaluated = None;
    if is_left {
        let datasets = job_file::evaluated(&mut file).await?;
        for EvaluatedDataset { store, manifest, evaluated: EvaluatedJob { samples, made, sizes } } in datasets.iter() {
            if samples.view().is_none() && made.is_none() && sizes.is_none() {
                continue;
            }
            let folder = DatasetStore::create_with(store.url(), &StoreOptions::from_env())?;
            if let Some(view) = samples.view() {
                save_view(&folder, manifest, &view).await?;
            }
            if let Some(made) = made {
                made.keep(&folder).await?;
            }
            if let Some(sizes) = sizes {
                save_sizes(&folder, manifest, sizes).await?;
            }
        }
        evaluated = Some(datasets);
    }
    compare_with_datasets(file.clone(), evaluated).await?;
    Ok(with_sources(file, python).await)
}

/// Refuses a job that names what a dataset of it does not have, as far as this machine can read the datasets in a while: the
/// coordinator reads no more of them than their manifests. What was evaluated of the job is not read again.
async fn compare_with_datasets(mut file: JobFile, evaluated: Option<EvaluatedDatasets>) -> Result<(), CtlError> {
    let compare = async {
        let opened = match evaluated {
            Some(datasets) => Ok(datasets),
            None => EvaluatedDatasets::open_noted(&mut file).await,
        };
        let Ok(datasets) = opened else { return Ok(()) };
        // What else is wrong with it the coordinator says.
        let Ok(job) = datasets.freeze(&file) else { return Ok(()) };
        match job_file::refuse_misfits(&datasets, &job).await {
            Err(CtlError::Store(_)) => Ok(()),
            compared => compared,
        }
    };
    tokio::time::timeout(READING_TIMEOUT, compare).await.unwrap_or(Ok(()))
}

/// Sets the digests of the sources of the job's Python functions, as far as they are not set. Warns of those that are not found.
async fn with_sources(mut file: JobFile, python: Option<PathBuf>) -> JobFile {
    let settings = TransformSettings::default();
    let settings = TransformSettings { python: python.unwrap_or(settings.python), ..settings };
    let finding = tokio::task::spawn_blocking(move || {
        let unknown = find_sources(&mut file, &settings);
        (file, unknown)
    });
    let (file, unknown) = finding.await.expect("it does not panic");
    for UnknownSource { function, problem } in unknown {
        output::warn(&format!(
            "the source of the function `{function}` is not found here ({problem}), so workers with different versions of it \
             are not told apart; `--python` names an interpreter that has its module"
        ));
    }
    file
}

/// Returns the warning for a job whose working set exceeds the workers' caches. It needs the dataset, which this machine may
/// not be able to read; then there is none.
async fn working_set_warning(connection: &Connection, name: &str) -> Result<Option<String>, CtlError> {
    let job = describe(connection, name).await?;
    let manifests = async {
        let mut manifests = Vec::new();
        for dataset in job.datasets() {
            let manifest = DatasetStore::open(dataset.url).ok()?.manifest().await.ok()?;
            if manifest.fingerprint() != dataset.fingerprint {
                return None;
            }
            manifests.push(manifest);
        }
        Some(manifests)
    };
    let Ok(Some(manifests)) = tokio::time::timeout(READING_TIMEOUT, manifests).await else { return Ok(None) };
    let (_, status) = status::ask(connection).await?;
    Ok(working_set::warning(&job, &manifests, &status))
}

pub(crate) async fn describe(connection: &Connection, name: &str) -> Result<Job, CtlError> {
    match connection.ask(&ToCoordinator::DescribeJob { name: name.to_owned() }).await? {
        FromCoordinator::Job(job) => Ok(*job),
        _ => Err(CtlError::Reply { request: "a job" }),
    }
}

fn list(jobs: &[JobStatus], state: impl Fn(&JobStatus) -> &'static str) -> Result<(), CtlError> {
    if jobs.is_empty() {
        return outln!("no jobs; `spdl-ctl job submit JOB.toml` creates one");
    }
    let header = [
        ("JOB", Alignment::Left),
        ("STATE", Alignment::Left),
        ("POSITION", Alignment::Right),
        ("EPOCHS", Alignment::Right),
        ("SAMPLES", Alignment::Right),
        ("BAD", Alignment::Right),
    ];
    let mut table = Table::new(header, "DATASET");
    for job in jobs {
        let JobStatus { name, acknowledged, epochs, samples, bad_sample_count, dataset, .. } = job;
        let numbers = [*epochs, *samples, *bad_sample_count].map(report::grouped);
        let [epochs, samples, bad] = numbers;
        let cells = [name.clone(), state(job).to_owned(), acknowledged.to_string(), epochs, samples, bad];
        table.push(cells, dataset.clone());
    }
    table.lines().iter().try_for_each(|line| outln!("{line}"))
}

fn show(job: &Job) -> Result<(), CtlError> {
    let end = match job.epoch_end {
        EpochEnd::Drop => "samples that do not fill a batch are left out of the epoch",
        EpochEnd::Pad => "the last batch of an epoch is filled up with its first samples",
        EpochEnd::Continuous => "epochs go over into each other within a batch",
        EpochEnd::Exact => "the last batch of an epoch is filled up with entries that are not valid",
        EpochEnd::Partial => "the last batch of an epoch is short",
    };
    let shuffle = if job.order.shuffle { "shuffled" } else { "not shuffled" };
    let bad = format!("{:?}", job.bad_samples).to_lowercase();
    let allowed = job.bad_samples_allowed();
    let total = job
        .total_samples
        .map_or_else(String::new, |total| format!(", up to {} in all", report::count(total, "sample", "samples")));
    let lines = [
        ("job", job.name.clone()),
        ("dataset", if job.sources.is_empty() { job.dataset.clone() } else { job.dataset_text() }),
        ("", format!("{}, fingerprint {}", report::count(job.samples, "sample", "samples"), job.dataset_fingerprint)),
        ("view", job.view.map_or_else(|| "all samples".to_owned(), |view| format!("samples {view}"))),
        (
            "sequences",
            job.sequence.as_deref().map_or_else(
                || "none: each sample is a record".to_owned(),
                |sequence| sequence_text(sequence, job.sources.is_empty()),
            ),
        ),
        ("seed", job.seed.to_string()),
        ("global batch", report::count(job.global_batch.into(), "sample", "samples")),
        ("epochs", format!("{}{total}; {end}", report::grouped(job.epochs))),
        (
            "order",
            format!(
                "{shuffle}; {}, windows of {}",
                report::count(job.order.lanes.into(), "lane", "lanes"),
                report::count(job.order.window, "sample", "samples")
            ),
        ),
        ("bad samples", format!("{bad}; the job fails above {} of them", report::grouped(allowed))),
        ("fingerprint", job.fingerprint().to_string()),
    ];
    for (key, value) in lines {
        outln!("{}", format!("{key:<13} {value}").trim_end())?;
    }
    for (what, text) in report::source_texts(job) {
        outln!("{what:<13} {text}")?;
    }
    for column in &job.columns {
        outln!("{:<13} {}", "column", column_text(column))?;
    }
    Ok(())
}

/// Describes how documents are packed, for example `of 2 048 tokens, by best fit; pools 7a0d...`.
fn sequence_text(sequence: &Sequence, is_of_one_dataset: bool) -> String {
    let method = match sequence.packing {
        PackMethod::BestFit { .. } => "by best fit",
        PackMethod::Chunk => "end to end",
    };
    let pools = match is_of_one_dataset {
        true => format!("; pools {}", sequence.pools),
        false => ", each source by itself".to_owned(),
    };
    format!("of {}, {method}{pools}", report::count(sequence.seq_len.into(), "token", "tokens"))
}

/// Describes a column, for example `image: u8 [224, 224, 3] from jpg|png`, or `iso: i64 a number from json at camera.iso, or -1`.
fn column_text(column: &Column) -> String {
    let shape = match column.shape() {
        SampleShape::Fixed(shape) if shape.is_empty() => "a number".to_owned(),
        SampleShape::Fixed(shape) => format!("{shape:?}"),
        SampleShape::Rows { row, max_rows } if row.is_empty() => format!("[up to {max_rows}]"),
        SampleShape::Rows { row, max_rows } => format!("[up to {max_rows}, {}", &format!("{row:?}")[1..]),
        SampleShape::Bytes { max_bytes } => format!("up to {} of bytes", report::bytes(max_bytes.into())),
    };
    let mut from = column.from.join("|");
    if !column.path().is_empty() {
        from.push_str(&format!(" at {}", column.path().join(".")));
    }
    if let Some(default) = &column.value.default {
        from.push_str(&format!(", or {default}"));
    }
    if let (true, Some(followed)) = (from.is_empty(), column.kind.follows()) {
        from.push_str(followed);
    }
    let origin = match (&column.transform, column.returned()) {
        (_, Some(returned)) => {
            let takes = returned.call.takes().into_iter().map(|taken| taken.name).collect::<Vec<_>>().join(", ");
            format!("{takes}, by {}", function_text(&returned.call.function))
        }
        (Some(transform), None) => format!("{from}, by {}", function_text(&transform.function)),
        (None, None) => from,
    };
    format!("{}: {} {shape} from {origin}", column.name, column.dtype.name())
}

/// Names a function, with the source that it was created with.
fn function_text(function: &Callable) -> String {
    function.source.map_or_else(|| function.to_string(), |source| format!("{function}, source {source}"))
}
