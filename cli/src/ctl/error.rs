//! The errors of the subcommands, and hints on what to do about them.

use spdl_control::client::RankError;
use std::{io, path::PathBuf};

use crate::{dev_cluster::DevClusterError, evaluated::EvaluateError, local::LocalError};
use spdl_client::ClientError;
use spdl_control::messages::Refusal;
use spdl_coordinator::StartError;
use spdl_dataset::DatasetError;
use spdl_job::JobError;
use spdl_order::PlanError;
use spdl_store::StoreError;
use spdl_types::Fingerprint;
use spdl_wire::{certs::CertError, coordinators::CoordinatorError, quic::QuicError};

/// An error that a command prints on standard error. The text names the subject; [`CtlError::hint`] suggests a remedy.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CtlError {
    #[error("cannot start the runtime: {0}")]
    Runtime(io::Error),
    #[error("interrupted")]
    Interrupted,
    #[error("cannot write to standard output: {0}")]
    Output(io::Error),
    #[error("cannot read `{}`: {source}", path.display())]
    ReadFile { path: PathBuf, source: io::Error },
    #[error("cannot write `{}`: {source}", path.display())]
    WriteFile { path: PathBuf, source: io::Error },
    #[error("`{}` is there already, with another text", path.display())]
    JobFileThere { path: PathBuf },
    #[error("no column can read what the records of `{dataset}` have: {fields}")]
    NoColumns { dataset: String, fields: String },
    #[error("no cluster is named, and none of `spdl-ctl dev up` is running here")]
    NoCluster,
    #[error("`{given}` is given, and `{missing}` is not")]
    HalfConnection { given: &'static str, missing: &'static str },
    #[error("a cluster is up in `{}`", folder.display())]
    DevIsUp { folder: PathBuf },
    #[error("the cluster in `{}` did not start: {cause}", folder.display())]
    DevFailed { folder: PathBuf, cause: String },
    #[error("{name} ended by itself with {cause}, and so does the cluster")]
    DevEnded { name: String, cause: String },
    #[error("{} within {seconds} s", stays(pids))]
    DevStays { pids: Vec<i32>, seconds: u64 },
    #[error("`{}` is no longer this cluster's: its lock file was removed, and so the cluster ends", folder.display())]
    DevFolderGone { folder: PathBuf },
    #[error("`{}` and `{}` are both the job `{name}`", first.display(), second.display())]
    DevSameJob { first: PathBuf, second: PathBuf, name: String },
    #[error("`{}` {problem}", folder.display())]
    DevFolder { folder: PathBuf, problem: String },
    #[error("{name} did not start: {cause}")]
    Start { name: String, cause: String },
    #[error("the coordinator answered a request for {request} with something else")]
    Reply { request: &'static str },
    #[error("rank {rank} is not below world {world}")]
    RankOutOfRange { rank: u32, world: u32 },
    #[error("`{flag}` is {value}, {problem}")]
    Beyond { flag: &'static str, value: u64, problem: String },
    #[error("`{flag}`: {problem}")]
    Flag { flag: &'static str, problem: String },
    #[error("standard output is no terminal that `top` can draw on")]
    NoTerminal,
    #[error("there is no session {session}")]
    NoSession { session: u64 },
    #[error("the first batch of job `{job}` is not there after {seconds} s: {cause}")]
    NoBatch { job: String, seconds: u64, cause: String },
    #[error("dataset `{dataset}` has fingerprint {theirs}; job `{job}` was created with {ours}")]
    DatasetDiffers { dataset: String, theirs: Fingerprint, job: String, ours: Fingerprint },
    #[error("no job has had a run `{run}`; known are: {known}")]
    NoRun { run: String, known: String },
    #[error("`{}` has no report of a run: {problem}", path.display())]
    NoReport { path: PathBuf, problem: String },
    #[error("the two runs cannot be compared: {differences}")]
    NotAlike { differences: String },
    #[error("`{figure}` is not known of both runs, and `--at-most` asks for it")]
    FigureUnknown { figure: &'static str },
    #[error("no figure that `--at-most` asks for is known of both runs")]
    NothingToJudge,
    #[error("several jobs have a run `{run}`: {known}")]
    ManyRuns { run: String, known: String },
    #[error("run `{run}` is kept: nothing was confirmed")]
    NotConfirmed { run: String },
    #[error("run `{run}` is not reset: {cause}")]
    RunHeld { run: String, cause: Box<Refusal> },
    #[error("`{}` {problem}", path.display())]
    Keys { path: PathBuf, problem: String },
    #[error("job `{job}` is not replaced: {cause}")]
    JobHeld { job: String, cause: Box<Refusal> },
    #[error("no job has ranks alive")]
    NoneToTrace,
    #[error("several jobs have ranks alive: {jobs}")]
    ManyToTrace { jobs: String },
    #[error("world {world} is more than the global batch of {global_batch}")]
    WorldTooLarge { world: u32, global_batch: u32 },
    #[error(
        "job `{job}` packs documents of tokens, which are copied and not decoded: `profile` is for jobs that decode; \
         `spdl-ctl replay JOB --all` shows how many sequences a second this machine delivers"
    )]
    NotDecoded { job: String },
    #[error(
        "job `{job}` packs no documents of tokens, which `inspect` shows; `spdl-ctl replay JOB --out FOLDER` writes the batches of all jobs"
    )]
    NotSequences { job: String },
    #[error(transparent)]
    Job(Box<JobError>),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error(transparent)]
    Store(Box<StoreError>),
    #[error(transparent)]
    Dataset(Box<DatasetError>),
    #[error(transparent)]
    Cert(Box<CertError>),
    #[error(transparent)]
    Quic(Box<QuicError>),
    #[error(transparent)]
    Ask(Box<CoordinatorError>),
    #[error(transparent)]
    Client(Box<ClientError>),
    #[error(transparent)]
    Local(Box<LocalError>),
    #[error(transparent)]
    DevCluster(#[from] DevClusterError),
    #[error(transparent)]
    Refused(Box<Refusal>),
    #[error("{}", spdl_coordinator::error_text(.0.as_ref()))]
    Coordinator(Box<StartError>),
    #[error(transparent)]
    Worker(Box<spdl_worker::cli::CliError>),
}

fn stays(pids: &[i32]) -> String {
    let pids: Vec<String> = pids.iter().map(ToString::to_string).collect();
    match &pids[..] {
        [] => "the processes of the cluster are not found, and have not ended".to_owned(),
        [pid] => format!("process {pid} and those that it has started have not ended"),
        pids => format!("processes {} and those that they have started have not ended", pids.join(", ")),
    }
}

impl CtlError {
    /// Returns what the user can do about the error, where that is known.
    pub(crate) fn hint(&self) -> Option<String> {
        let hint = match self {
            Self::Client(error) => return error.hint().map(str::to_owned),
            Self::Store(error) => return error.hint().map(str::to_owned),
            Self::Local(error) => match error.as_ref() {
                LocalError::Client(error) => return error.hint().map(str::to_owned),
                LocalError::Store(error) => return error.hint().map(str::to_owned),
                _ => return None,
            },
            Self::Coordinator(error) => return error.hint(),
            Self::DevCluster(error) => return error.hint().map(str::to_owned),
            Self::Worker(error) => return error.hint().map(str::to_owned),
            Self::Dataset(error) => return error.hint().map(str::to_owned),
            Self::Refused(refusal) if matches!(&**refusal, Refusal::Role { .. }) => {
                "give the folder of an administrator's certificate with `--certs`, as `spdl-ctl cert --role admin` issues it"
            }
            Self::Refused(refusal) => return RankError::Refused((**refusal).clone()).hint().map(str::to_owned),
            Self::JobFileThere { .. } => "`--force` replaces it, `--out FILE` writes another one; nothing was written",
            Self::NoCluster => {
                "give `--coord` and `--certs`, or set SPDL_COORD and SPDL_CERTS; `spdl-ctl dev up` starts one that is found without them"
            }
            Self::HalfConnection { .. } => "give both, or neither for the cluster of `spdl-ctl dev up`",
            Self::NoColumns { .. } => "`spdl-ctl info --all` looks at all records",
            Self::DevIsUp { .. } => {
                "`spdl-ctl dev status` shows it, `spdl-ctl dev down` ends it, `--dir` is for another one"
            }
            Self::DevFolder { .. } => "`--dir` names another one; a new folder is made as it has to be",
            Self::DevEnded { .. } => "its log is beside this one",
            Self::DevStays { pids, .. } if pids.is_empty() => {
                "they are another user's or in another container: run this there, or remove the folder, upon which they end"
            }
            Self::DevStays { .. } => "end them with `kill -9`",
            Self::DevSameJob { .. } => "give each job once; a job's name is its `name`",
            Self::Beyond { .. } => "epochs and offsets count from 0",
            Self::RankOutOfRange { .. } => "ranks are 0 to world - 1",
            Self::DatasetDiffers { .. } => {
                "the dataset has changed since, or another one is at that place on this machine"
            }
            Self::NoTerminal => "`spdl-ctl top --once` prints one frame as text",
            Self::NoSession { .. } => "`spdl-ctl status -v` lists all sessions",
            Self::NoRun { .. } => "`spdl-ctl run list` lists the runs",
            Self::ManyRuns { .. } => "write JOB/RUN",
            Self::NoReport { .. } => {
                "`spdl-ctl run show RUN --json`, `spdl-ctl pull --json`, `spdl-ctl replay --json` and `loader.report()` in Python write one"
            }
            Self::NotAlike { .. } => "`--force` compares them all the same",
            Self::FigureUnknown { .. } | Self::NothingToJudge => {
                "rates are known from the second batch on, CPU time from what decodes: a loader of `local`, or workers while they serve the run alone"
            }
            Self::NotConfirmed { .. } => "answer `y` on a terminal, or write `--yes`",
            Self::Keys { .. } => "keys are those of `__key__`; `--allow-unknown` redacts the samples of the others",
            Self::RunHeld { .. } | Self::JobHeld { .. } => {
                "end that launch first; a launch that was just killed counts as alive for some seconds"
            }
            Self::WorldTooLarge { .. } => "every rank must get a sample per step: raise the batch or use fewer ranks",
            Self::NoneToTrace => "start its trainers first: a trace shows what happens while it is recorded",
            Self::ManyToTrace { .. } => "choose one with `--job`",
            Self::Cert(_) => "`spdl-ctl cert` issues certificates from the CA in the coordinator's state folder",
            Self::Ask(error) if error.is_leaderless() => {
                "no coordinator leads: see their logs, and whether etcd answers them"
            }
            Self::Ask(_) | Self::Quic(_) => "check the address (UDP) and that the certificates are of the same cluster",
            Self::Reply { .. } => "use the same version of spdl-ctl and spdl-coord",
            _ => return None,
        };
        Some(hint.to_owned())
    }
}

/// Implements `From` for errors that are boxed, so that a command's result stays small.
macro_rules! from_boxed {
    ($($variant:ident: $error:ty,)*) => {$(
        impl From<$error> for CtlError {
            fn from(error: $error) -> Self {
                Self::$variant(Box::new(error))
            }
        }
    )*};
}

from_boxed! {
    Job: JobError,
    Dataset: DatasetError,
    Store: StoreError,
    Cert: CertError,
    Quic: QuicError,
    Ask: CoordinatorError,
    Client: ClientError,
    Local: LocalError,
    Refused: Refusal,
    Coordinator: StartError,
    Worker: spdl_worker::cli::CliError,
}

impl From<EvaluateError> for CtlError {
    fn from(error: EvaluateError) -> Self {
        match error {
            EvaluateError::Job(error) => error.into(),
            EvaluateError::Dataset(error) => error.into(),
        }
    }
}
