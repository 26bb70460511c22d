//! What processes do to a loader: a child that is forked while copies run, and an interrupt.

use std::{
    io::{BufRead, BufReader, Read, Write},
    os::unix::process::{CommandExt, ExitStatusExt},
    process::{Command, Stdio},
    thread,
};

use rustix::process::{Pid, Signal, kill_process};
use spdl_gpu::DeviceOptions;

use crate::{
    checks::{self, TIMEOUT, compare, words},
    feed::{FeedConfig, SlotMemory},
    report::{StepReport, StepResult},
    steps::StepArgs,
};

/// Checks that batches stay right when the process forks after its slots are page-locked, and the child lives on: the
/// memory that the device reads must be the memory that the parent writes to later.
///
/// # Errors
/// Returns the first batch that is wrong.
pub fn fork(args: &StepArgs) -> StepResult {
    let (device, _trainer) = args.open()?;
    let mut words_of = Vec::new();
    for (slab, name) in [(SlotMemory::Private, "private"), (SlotMemory::Shared, "shared")] {
        let config = FeedConfig { slab, ..args.feed(30) };
        let (mut loader, _slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
        for _ in 0..config.slots.min(config.batches as u32 / 2) {
            compare(&loader.next_batch().map_err(words)?.ok_or("no batch")?)?;
        }
        let child = ForkedChild::start()?;
        let mut count = 0;
        while let Some(batch) = loader.next_batch().map_err(words)? {
            compare(&batch).map_err(|error| format!("after a fork, with {name} memory: {error}"))?;
            count += 1;
        }
        child.end()?;
        words_of.push(format!("{count} batches from {name} memory"));
    }
    Ok(StepReport::ok(format!("{} while a forked child lived, every byte", words_of.join(" and "))))
}

/// A forked copy of this process, which lives until [`ForkedChild::end`] and shares its pages with the parent until one
/// of them writes.
struct ForkedChild {
    permission: std::io::PipeWriter,
    thread: thread::JoinHandle<std::io::Result<()>>,
}

impl ForkedChild {
    #[allow(unsafe_code)]
    fn start() -> Result<Self, String> {
        let problem = |error: std::io::Error| format!("no child can be forked: {error}");
        let (mut may_end, permission) = std::io::pipe().map_err(problem)?;
        let (mut forked, mut has_forked) = std::io::pipe().map(|(from, to)| (to, from)).map_err(problem)?;
        let mut command = Command::new("true");
        // SAFETY: between fork and exec the closure only reads and writes pipes, which is safe for signal handlers.
        unsafe {
            command.pre_exec(move || {
                forked.write_all(&[1])?;
                may_end.read_exact(&mut [0])
            });
        }
        // This returns only when the child has executed `true`, which it does not before it has permission.
        let thread = thread::spawn(move || command.status().map(drop));
        has_forked.read_exact(&mut [0]).map_err(problem)?;
        Ok(Self { permission, thread })
    }

    fn end(mut self) -> Result<(), String> {
        self.permission.write_all(&[1]).map_err(|error| format!("the child does not live: {error}"))?;
        let ended = self.thread.join().map_err(|_| "the thread that forks panics")?;
        ended.map_err(|error| format!("no child can be forked: {error}"))
    }
}

/// Takes batches until the process is killed, and prints a line when the first is there: the trainer that
/// [`interrupt`] interrupts.
///
/// # Errors
/// Returns the loader's error.
#[allow(unsafe_code)]
pub fn train_endlessly(args: &StepArgs) -> Result<(), String> {
    // SAFETY: resets the signal to its default effect, because a shell makes programs that it starts in the background
    // ignore it.
    unsafe { libc::signal(libc::SIGINT, libc::SIG_DFL) };
    let (device, trainer) = args.open()?;
    let stream = trainer.stream();
    let config = FeedConfig { batches: u64::from(u32::MAX), ..args.feed(1) };
    let (mut loader, _slab) = config.start(&device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let mut is_first = true;
    while let Some(batch) = loader.next_batch().map_err(words)? {
        batch.wait_on(stream.handle()).map_err(words)?;
        if std::mem::take(&mut is_first) {
            println!("the first batch is there");
        }
    }
    Err("an endless loader ended".into())
}

/// Checks that a trainer ends by SIGINT while copies run, and that the device then serves the next process.
///
/// # Errors
/// Returns how the trainer ended instead.
pub fn interrupt(args: &StepArgs) -> StepResult {
    let program = std::env::current_exe().map_err(|error| format!("this program has no path: {error}"))?;
    let mut command = Command::new(program);
    command.arg("train").args(args.to_options()).stdout(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("the trainer does not start: {error}"))?;
    let mut line = String::new();
    let output = child.stdout.take().ok_or("the trainer has no output")?;
    let read = BufReader::new(output).read_line(&mut line);
    if read.is_ok_and(|bytes| bytes == 0) {
        return Err("the trainer ended before its first batch".into());
    }
    kill_process(Pid::from_child(&child), Signal::INT).map_err(|error| format!("the trainer is gone: {error}"))?;
    let status = child.wait().map_err(|error| format!("the trainer does not end: {error}"))?;
    if status.signal() != Some(Signal::INT.as_raw()) {
        return Err(format!("the interrupted trainer ended with {status}"));
    }
    let (device, _trainer) = args.open()?;
    let count = checks::copies(&device, args.feed(8))?;
    Ok(StepReport::ok(format!("the trainer ended by SIGINT; then {count} batches in another process, every byte")))
}
