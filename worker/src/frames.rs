//! The processes that decode frames of videos: which program they run.

use std::{
    path::PathBuf,
    process::ExitCode,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use spdl_frames::{FrameChildCommand, FrameDecoders, FrameSettings, frame_child_main};
use spdl_job::{Column, ColumnKind, Job, decoded_columns};

/// The only argument of a program that is to decode frames.
const CHILD_ARGUMENT: &str = "spdl-frame-child";
/// The program of this process, also if its file has been replaced meanwhile.
const THIS_PROGRAM: &str = "/proc/self/exe";

/// What is said of videos where nothing decodes them.
pub(crate) const NO_PROCESSES: &str = "this program starts no processes that decode videos";

/// What the names of fields with stills end with that are coded as frames of videos.
const STILLS: [&str; 4] = ["avif", "heic", "heif", "hif"];
/// What the names of fields with other pictures end with: where these are the frames of a video, they need no processes.
const PICTURES: [&str; 10] = ["jpg", "png", "webp", "bmp", "gif", "tif", "pbm", "pgm", "ppm", "pnm"];

/// Whether the program of this process decodes frames if it is started for that.
static IS_CHILD_PROGRAM: AtomicBool = AtomicBool::new(false);

/// How processes that decode frames of videos are started.
#[derive(Clone, Debug)]
pub struct FrameAccess {
    /// Their program.
    pub command: FrameChildCommand,
    /// Folders of Python packages, in one of which PyAV may be: it has the library that they need.
    pub package_folders: Vec<PathBuf>,
}

impl FrameAccess {
    /// Returns what starts the program of this process, if that has called [`frame_child`].
    fn of_this_program() -> Option<Self> {
        let command = FrameChildCommand { program: THIS_PROGRAM.into(), arguments: vec![CHILD_ARGUMENT.into()] };
        IS_CHILD_PROGRAM.load(Relaxed).then(|| Self { command, package_folders: Vec::new() })
    }
}

/// Lets processes of this program decode the frames of its videos. A program that reads videos in its own process calls this first
/// in its `main`, and returns the exit code if there is one: then it was started to decode frames, and has done it.
#[must_use]
pub fn frame_child() -> Option<ExitCode> {
    if std::env::args_os().nth(1).is_some_and(|argument| argument == CHILD_ARGUMENT) {
        return Some(frame_child_main());
    }
    IS_CHILD_PROGRAM.store(true, Relaxed);
    None
}

/// The error of a job with videos or stills that a worker cannot decode.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{column}, and worker `{worker}` cannot decode them: {problem}")]
pub struct NoFramesError {
    /// What column of which job has which of them, in words.
    column: String,
    worker: String,
    problem: String,
}

impl NoFramesError {
    /// Checks that the videos and stills of a job can be decoded, if it has any. Blocks until a process has started.
    pub(crate) fn check(job: &Job, frames: Option<&FrameDecoders>, worker: &str) -> Result<(), Self> {
        let mut columns = decoded_columns(&job.columns);
        let Some(column) = columns.find(|column| needs_processes(column)) else { return Ok(()) };
        let checked = frames.ok_or_else(|| NO_PROCESSES.to_owned()).map(FrameDecoders::check);
        let problem = match checked {
            Ok(Ok(_)) => return Ok(()),
            Ok(Err(error)) => error.to_string(),
            Err(problem) => problem,
        };
        let what = if matches!(column.kind, ColumnKind::Image(_)) { "stills of AVIF or HEIC" } else { "videos" };
        let column = format!("column `{}` of job `{}` has {what}", column.name, job.name);
        Err(Self { column, worker: worker.to_owned(), problem })
    }
}

/// Returns whether values of a column are decoded by processes, by the names of its fields.
fn needs_processes(column: &Column) -> bool {
    let is_of = |name: &String, known: &[&str]| known.contains(&name.rsplit('.').next().unwrap_or_default());
    match column.kind {
        ColumnKind::Video(_) => !column.from.iter().all(|name| is_of(name, &PICTURES)),
        ColumnKind::Image(_) => column.from.iter().any(|name| is_of(name, &STILLS)),
        _ => false,
    }
}

/// Returns the processes that run the program of this one, for so many threads that decode; `None` if it has not called
/// [`frame_child`].
#[must_use]
pub fn own_frame_decoders(threads: usize) -> Option<Arc<FrameDecoders>> {
    frame_decoders(None, threads)
}

/// Returns the processes of so many threads that decode; none is started yet. Without `access`, they run the program of this
/// process. `None` if that does not decode frames.
pub(crate) fn frame_decoders(access: Option<FrameAccess>, threads: usize) -> Option<Arc<FrameDecoders>> {
    let FrameAccess { command, package_folders } = access.or_else(FrameAccess::of_this_program)?;
    Some(Arc::new(FrameDecoders::new(command, FrameSettings::new(threads, package_folders))))
}
