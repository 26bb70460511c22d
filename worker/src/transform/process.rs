//! One Python process: starts it, loads functions into it, calls them, and kills it. `process.py` is the other side.

use std::{
    io::{self, IoSlice, PipeWriter},
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    net::{AddressFamily, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketFlags, SocketType},
    process::{Pid, Signal, WaitId, WaitIdOptions},
};
use spdl_functions::CallKey;
use spdl_job::SourceDigest;
use spdl_wire::slab::{Slab, SlotMut};

use super::{
    CallsHere, Function, TransformError, TransformSettings,
    function::FunctionValue,
    output::{OutputLimit, ProcessOutput},
};

/// The program of a process.
pub const PROGRAM: &str = include_str!("process.py");
/// Maximum bytes of a reply.
const MAX_REPLY_BYTES: usize = 4096;
/// Limit for starting the interpreter, and for importing a function's module.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// A Python process of the pool. Killed when dropped, with what its functions have started.
#[derive(Debug)]
pub(super) struct PoolProcess {
    /// `None` if this process itself calls the functions.
    child: Option<Child>,
    /// How the process has ended, once it has been waited for.
    status: Option<ExitStatus>,
    socket: OwnedFd,
    /// The number of the last request.
    request: u64,
    output: Option<ProcessOutput>,
    /// The kernel kills the process and what its functions have started when this is closed, however this process ends.
    _lifeline: Option<PipeWriter>,
    memory: Option<MappedMemory>,
    /// The loaded functions, by their number.
    functions: Vec<Loaded>,
}

/// A function in a process.
#[derive(Debug)]
pub(super) struct Loaded {
    function: Function,
    /// The digest of the source that the process has imported, if it can be read.
    source: Option<SourceDigest>,
}

/// Memory that both processes have mapped: the first slot holds the arguments, the second the returned values.
#[derive(Debug)]
struct MappedMemory {
    slab: Slab,
    taken: SlotMut,
    returned: SlotMut,
}

/// What a call took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Called {
    /// How long the process worked.
    pub(super) took: Duration,
    /// Size of the arguments.
    pub(super) bytes: u64,
}

/// The error of a call.
#[derive(Debug)]
pub(super) enum CallError<E> {
    /// The argument could not be written.
    Input(E),
    /// The function failed; the process is still usable.
    Failed(String),
    /// The function exceeded its time limit.
    Slow,
    /// The process ended during the call.
    Lost(String),
}

/// The reason why a request got no reply.
enum NoReply {
    Closed,
    Slow,
    /// The socket has the reply to another request.
    Foreign,
}

impl PoolProcess {
    /// Starts a process whose output is passed on within `limit`.
    pub(super) fn start(settings: &TransformSettings, limit: Arc<OutputLimit>) -> Result<Self, TransformError> {
        let python = || settings.python.clone();
        let start = |source: io::Error| TransformError::Start { python: python(), source: Arc::new(source) };
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = pair.map_err(|error| start(error.into()))?;
        if let Some(CallsHere(take)) = &settings.here {
            take(theirs).map_err(start)?;
            return Ok(Self::new(None, socket, None, None));
        }
        let (output, printed) = io::pipe().map_err(start)?;
        let (end, lifeline) = io::pipe().map_err(start)?;
        let mut command = Command::new(&settings.python);
        command.args(["-c", PROGRAM]).stdin(Stdio::from(theirs));
        command.stdout(printed.try_clone().map_err(start)?).stderr(printed);
        // Ctrl-C is meant for the program that the user started, and what functions start is ended by its group.
        let child = command.process_group(0).spawn().map_err(start)?;
        drop(command);
        let output = ProcessOutput::new(output, limit);
        let mut process = Self::new(Some(child), socket, Some(output), Some(lifeline));
        let hello = serde_json::json!({ "path": settings.path, "program": settings.program });
        match process.ask(b'H', hello.to_string().as_bytes(), Some(end.as_fd()), LOAD_TIMEOUT) {
            Ok(Ok(_)) => Ok(process),
            Ok(Err(problem)) => Err(TransformError::Interpreter { python: python(), problem }),
            Err(no_reply) => {
                let problem = process.end_of(&no_reply);
                Err(TransformError::Interpreter { python: python(), problem })
            }
        }
    }

    fn new(child: Option<Child>, socket: OwnedFd, output: Option<ProcessOutput>, lifeline: Option<PipeWriter>) -> Self {
        let (status, memory, functions) = Default::default();
        Self { child, status, socket, request: 0, output, _lifeline: lifeline, memory, functions }
    }

    /// Returns the limit of a request that takes as long as importing does. In this process, a debugger may stop it.
    const fn load_timeout(&self) -> Duration {
        if self.child.is_some() { LOAD_TIMEOUT } else { Duration::MAX }
    }

    /// Imports `function` if the process has not loaded it. Returns its number, and the digest of the source that is imported.
    pub(super) fn load(
        &mut self,
        function: &Function,
        settings: &TransformSettings,
    ) -> Result<(u32, Option<SourceDigest>), TransformError> {
        let number = match self.functions.iter().position(|known| known.function == *function) {
            Some(number) => number,
            None => {
                let described = serde_json::to_vec(function).expect("plain data serialises");
                let loaded = self.ask_for_source(b'L', &described);
                let source = loaded.map_err(|problem| {
                    let (function, python) = (function.name.clone(), settings.python.clone());
                    TransformError::Load { function, python, problem }
                })?;
                self.functions.push(Loaded { function: function.clone(), source });
                self.functions.len() - 1
            }
        };
        self.make_room(function.largest_bytes())?;
        let source = self.functions[number].source;
        Ok((u32::try_from(number).expect("fewer functions than columns of all jobs"), source))
    }

    /// Imports the function `name`, without making an object of a class, and returns the digest of its source if that can be
    /// read.
    ///
    /// # Errors
    /// Why it cannot be imported.
    pub(super) fn source(&mut self, name: &str) -> Result<Option<SourceDigest>, String> {
        self.ask_for_source(b'S', name.as_bytes())
    }

    /// Makes a request whose reply is the digest of a function's source.
    fn ask_for_source(&mut self, kind: u8, body: &[u8]) -> Result<Option<SourceDigest>, String> {
        match self.ask(kind, body, None, self.load_timeout()) {
            Ok(Ok(digits)) if digits.is_empty() => Ok(None),
            Ok(Ok(digits)) => {
                let digest = str::from_utf8(&digits).ok().and_then(|digits| u128::from_str_radix(digits, 16).ok());
                // A module can write to the socket.
                digest
                    .map(|digest| Some(SourceDigest(digest)))
                    .ok_or_else(|| "spoiled the answers of its process".to_owned())
            }
            Ok(Err(problem)) => Err(problem),
            Err(no_reply) => Err(self.end_of(&no_reply)),
        }
    }

    /// Returns whether the process has imported another source of the function than this one.
    pub(super) fn has_other(&self, function: &str, source: Option<SourceDigest>) -> bool {
        self.functions.iter().any(|known| known.function.name == function && known.source != source)
    }

    fn make_room(&mut self, bytes: usize) -> Result<(), TransformError> {
        if self.memory.as_ref().is_some_and(|memory| memory.slab.slot_stride() >= bytes) {
            return Ok(());
        }
        let memory = |problem: String| TransformError::Memory { problem };
        let slab = Slab::shared(2, bytes).map_err(|error| memory(error.to_string()))?;
        let slots = (slab.try_take(0).expect("a new slot"), slab.try_take(1).expect("a new slot"));
        let half = (slab.slot_stride() as u64).to_le_bytes();
        match self.ask(b'M', &half, slab.fd(), self.load_timeout()) {
            Ok(Ok(_)) => {}
            Ok(Err(problem)) => return Err(memory(problem)),
            Err(no_reply) => return Err(memory(self.end_of(&no_reply))),
        }
        self.memory = Some(MappedMemory { slab, taken: slots.0, returned: slots.1 });
        Ok(())
    }

    /// Calls `function`, which is loaded as this number. `input` writes the argument with a number and returns its
    /// size; `output` reads the returned value with a number.
    pub(super) fn call<E>(
        &mut self,
        (number, function): (u32, &Function),
        key: CallKey,
        timeout: Duration,
        mut input: impl FnMut(usize, &mut [u8]) -> Result<usize, E>,
        mut output: impl FnMut(usize, &[u8]),
    ) -> Result<Called, CallError<E>> {
        let memory = self.memory.as_mut().expect("there is room once a function is loaded");
        let mut request = Vec::with_capacity(28 + 8 * function.takes.len());
        request.extend(number.to_le_bytes());
        for word in [key.seed, key.epoch, key.id] {
            request.extend(word.to_le_bytes());
        }
        let mut bytes = 0;
        for (number, value) in function.takes.iter().enumerate() {
            let count = input(number, &mut memory.taken[value.at..][..value.bytes]).map_err(CallError::Input)? as u64;
            request.extend(count.to_le_bytes());
            bytes += count;
        }
        let started = Instant::now();
        match self.ask(b'C', &request, None, timeout) {
            Ok(Ok(reply)) => {
                let memory = self.memory.as_ref().expect("it was there before");
                // A function can write anywhere in its process, so the reply is checked too.
                let Some(counts) = counts_of(&reply, function) else {
                    return Err(CallError::Lost(self.end_of(&NoReply::Foreign)));
                };
                let took = started.elapsed();
                for (number, (value, count)) in function.returns.iter().zip(counts).enumerate() {
                    output(number, &memory.returned[value.at..][..count]);
                }
                Ok(Called { took, bytes })
            }
            Ok(Err(problem)) => Err(CallError::Failed(problem)),
            Err(NoReply::Slow) => Err(CallError::Slow),
            Err(no_reply) => Err(CallError::Lost(self.end_of(&no_reply))),
        }
    }

    /// Sends one packet and receives the one with the same number. Returns the body of the reply, or the error of the other side.
    fn ask(
        &mut self,
        kind: u8,
        body: &[u8],
        fd: Option<BorrowedFd<'_>>,
        timeout: Duration,
    ) -> Result<Result<Vec<u8>, String>, NoReply> {
        let fds = fd.map(|fd| [fd]);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if let Some(fds) = &fds {
            assert!(control.push(SendAncillaryMessage::ScmRights(fds)), "the buffer has room for one descriptor");
        }
        self.request += 1;
        let number = self.request.to_le_bytes();
        let parts = [IoSlice::new(std::slice::from_ref(&kind)), IoSlice::new(&number), IoSlice::new(body)];
        let sent = rustix::net::sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL);
        sent.map_err(|_| NoReply::Closed)?;
        let mut reply = vec![0; MAX_REPLY_BYTES];
        let count = self.receive(&mut reply, timeout)?;
        reply.truncate(count);
        match reply.split_first_chunk::<9>() {
            _ if reply.is_empty() => Err(NoReply::Closed),
            Some(([b'K', of @ ..], body)) if *of == number => Ok(Ok(body.to_vec())),
            Some(([_, of @ ..], text)) if *of == number => Ok(Err(String::from_utf8_lossy(text).into_owned())),
            _ => Err(NoReply::Foreign),
        }
    }

    /// Receives a packet, and passes on what the process prints meanwhile.
    fn receive(&mut self, reply: &mut [u8], timeout: Duration) -> Result<usize, NoReply> {
        let deadline = Instant::now().checked_add(timeout);
        loop {
            let left = deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(Instant::now()));
            let limit = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
            let mut watched = vec![PollFd::new(&self.socket, PollFlags::IN)];
            let pipe = self.output.as_ref().and_then(ProcessOutput::pipe);
            watched.extend(pipe.map(|pipe| PollFd::from_borrowed_fd(pipe, PollFlags::IN)));
            match rustix::event::poll(&mut watched, deadline.map(|_| &limit)) {
                Ok(_) if !watched[0].revents().is_empty() => {
                    let received = rustix::net::recv(&self.socket, &mut *reply, RecvFlags::DONTWAIT);
                    // The process printed this before it answered.
                    self.pass_on();
                    return received.map(|(count, _)| count).map_err(|_| NoReply::Closed);
                }
                Ok(_) if left.is_zero() => return Err(NoReply::Slow),
                Ok(_) => self.pass_on(),
                Err(Errno::INTR) => {}
                Err(_) => return Err(NoReply::Closed),
            }
        }
    }

    fn pass_on(&mut self) {
        self.output.iter_mut().for_each(ProcessOutput::pass_on);
    }

    /// Returns whether the process has ended. It is not waited for, so that its group cannot become another one's.
    pub(super) fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        let Some(child) = &self.child else { return false };
        !matches!(rustix::process::waitid(WaitId::Pid(Pid::from_child(child)), how), Ok(None))
    }

    /// Ends the process and describes how it had ended.
    fn end_of(&mut self, no_reply: &NoReply) -> String {
        match no_reply {
            NoReply::Slow => {
                self.end();
                return format!("it did not answer within {} seconds", LOAD_TIMEOUT.as_secs());
            }
            NoReply::Foreign => {
                self.end();
                return "it sent an answer that no request has, and was killed: nothing but a function's return may write to its process's socket"
                    .to_owned();
            }
            NoReply::Closed if self.child.is_none() => return "the loader is closed".to_owned(),
            NoReply::Closed => {}
        }
        // A process that has closed its socket is about to exit, or is unusable.
        let deadline = Instant::now() + Duration::from_secs(1);
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let has_ended = self.has_ended();
        self.end();
        let status = self.status.filter(|_| has_ended);
        status.map_or_else(|| "it closed its socket".to_owned(), |status| format!("it ended with {status}"))
    }

    /// Kills the process and what its functions have started, as far as that is in its group.
    fn end(&mut self) {
        let Some(child) = self.child.as_mut().filter(|_| self.status.is_none()) else { return };
        // This fails if all have already exited. The group is this process's until it has been waited for.
        let _ = rustix::process::kill_process_group(Pid::from_child(child), Signal::KILL);
        self.status = child.wait().ok();
        self.pass_on();
    }
}

/// Reads the sizes of the values that a function returned; `None` if the reply has none that are possible.
fn counts_of(reply: &[u8], function: &Function) -> Option<Vec<usize>> {
    let (words, rest) = reply.as_chunks::<8>();
    if words.len() != function.returns.len() || !rest.is_empty() {
        return None;
    }
    let count = |(word, value): (&[u8; 8], &FunctionValue)| {
        usize::try_from(u64::from_le_bytes(*word)).ok().filter(|count| value.fits(*count))
    };
    words.iter().zip(&function.returns).map(count).collect()
}

impl Drop for PoolProcess {
    fn drop(&mut self) {
        self.end();
    }
}
