//! One Python process: starts it, loads functions into it, calls them, and kills it. `process.py` is the other side.

use std::{
    io::{self, IoSlice},
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
};
use spdl_core::job::SourceDigest;
use spdl_ops::CallKey;
use spdl_wire::slab::{Slab, SlotMut};

use super::{Function, TransformError, TransformSettings, function::Value};

const PROGRAM: &str = include_str!("process.py");
/// Maximum bytes of a reply.
const MAX_REPLY_BYTES: usize = 4096;
/// Limit for starting the interpreter, and for importing a function's module.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);

/// A Python process of the pool. Killed when dropped.
#[derive(Debug)]
pub(super) struct PoolProcess {
    child: Child,
    socket: OwnedFd,
    memory: Option<Memory>,
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
struct Memory {
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
}

impl PoolProcess {
    pub(super) fn start(settings: &TransformSettings) -> Result<Self, TransformError> {
        let python = || settings.python.clone();
        let start = |source: io::Error| TransformError::Start { python: python(), source: Arc::new(source) };
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = pair.map_err(|error| start(error.into()))?;
        // Standard output may have readers that expect no output of a function.
        let output = io::stderr().as_fd().try_clone_to_owned().map_err(start)?;
        let mut command = Command::new(&settings.python);
        command.args(["-c", PROGRAM]).stdin(Stdio::from(theirs)).stdout(Stdio::from(output));
        // Ctrl-C is meant for the program that the user started.
        let child = command.process_group(0).spawn().map_err(start)?;
        drop(command);
        let mut process = Self { child, socket, memory: None, functions: Vec::new() };
        let hello = serde_json::json!({ "path": settings.path, "program": settings.program });
        match process.ask(b'H', hello.to_string().as_bytes(), None, LOAD_TIMEOUT) {
            Ok(Ok(_)) => Ok(process),
            Ok(Err(problem)) => Err(TransformError::Interpreter { python: python(), problem }),
            Err(no_reply) => {
                let problem = process.end_of(&no_reply);
                Err(TransformError::Interpreter { python: python(), problem })
            }
        }
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
        match self.ask(kind, body, None, LOAD_TIMEOUT) {
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
        match self.ask(b'M', &half, slab.fd(), LOAD_TIMEOUT) {
            Ok(Ok(_)) => {}
            Ok(Err(problem)) => return Err(memory(problem)),
            Err(no_reply) => return Err(memory(self.end_of(&no_reply))),
        }
        self.memory = Some(Memory { slab, taken: slots.0, returned: slots.1 });
        Ok(())
    }

    /// Calls `function`, which is loaded as this number. `input` writes the argument of a number and returns its size; `output` reads the returned value of a
    /// number.
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
                    return Err(CallError::Failed("spoiled the answers of its process".to_owned()));
                };
                let took = started.elapsed();
                for (number, (value, count)) in function.returns.iter().zip(counts).enumerate() {
                    output(number, &memory.returned[value.at..][..count]);
                }
                Ok(Called { took, bytes })
            }
            Ok(Err(problem)) => Err(CallError::Failed(problem)),
            Err(NoReply::Slow) => Err(CallError::Slow),
            Err(no_reply @ NoReply::Closed) => Err(CallError::Lost(self.end_of(&no_reply))),
        }
    }

    /// Sends one packet and receives one. Returns the body of the reply, or the error of the other side.
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
        let parts = [IoSlice::new(std::slice::from_ref(&kind)), IoSlice::new(body)];
        let sent = rustix::net::sendmsg(&self.socket, &parts, &mut control, SendFlags::NOSIGNAL);
        sent.map_err(|_| NoReply::Closed)?;
        let mut reply = vec![0; MAX_REPLY_BYTES];
        let count = self.receive(&mut reply, timeout)?;
        reply.truncate(count);
        match reply.split_first() {
            Some((b'K', body)) => Ok(Ok(body.to_vec())),
            Some((_, text)) => Ok(Err(String::from_utf8_lossy(text).into_owned())),
            None => Err(NoReply::Closed),
        }
    }

    fn receive(&self, reply: &mut [u8], timeout: Duration) -> Result<usize, NoReply> {
        let deadline = Instant::now() + timeout;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let left = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
            match rustix::event::poll(&mut [PollFd::new(&self.socket, PollFlags::IN)], Some(&left)) {
                Ok(0) => return Err(NoReply::Slow),
                Ok(_) => {
                    let received = rustix::net::recv(&self.socket, &mut *reply, RecvFlags::DONTWAIT);
                    return received.map(|(count, _)| count).map_err(|_| NoReply::Closed);
                }
                Err(Errno::INTR) => {}
                Err(_) => return Err(NoReply::Closed),
            }
        }
    }

    pub(super) fn has_ended(&mut self) -> bool {
        !matches!(self.child.try_wait(), Ok(None))
    }

    /// Ends the process and describes how it had ended.
    fn end_of(&mut self, no_reply: &NoReply) -> String {
        if matches!(no_reply, NoReply::Slow) {
            self.end();
            return format!("it did not answer within {} seconds", LOAD_TIMEOUT.as_secs());
        }
        // A process that has closed its socket is about to exit, or is unusable.
        let deadline = Instant::now() + Duration::from_secs(1);
        let status = loop {
            match self.child.try_wait() {
                Ok(Some(status)) => break Some(status),
                Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(2)),
                _ => break None,
            }
        };
        self.end();
        status.map_or_else(|| "it closed its socket".to_owned(), |status: ExitStatus| format!("it ended with {status}"))
    }

    fn end(&mut self) {
        // This fails if the process has already exited.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Reads the sizes of the values that a function returned; `None` if they cannot be.
fn counts_of(reply: &[u8], function: &Function) -> Option<Vec<usize>> {
    let (words, rest) = reply.as_chunks::<8>();
    if words.len() != function.returns.len() || !rest.is_empty() {
        return None;
    }
    let count = |(word, value): (&[u8; 8], &Value)| {
        usize::try_from(u64::from_le_bytes(*word)).ok().filter(|count| value.fits(*count))
    };
    words.iter().zip(&function.returns).map(count).collect()
}

impl Drop for PoolProcess {
    fn drop(&mut self) {
        self.end();
    }
}
