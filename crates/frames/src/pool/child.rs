//! A child: starts it, sends it requests, checks what it answers, and kills it. `crate::child` is the other side.

use std::{
    io::{self, PipeWriter},
    os::{
        fd::{AsFd, BorrowedFd, OwnedFd},
        unix::process::CommandExt,
    },
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec},
    io::Errno,
    net::{AddressFamily, RecvFlags, SocketFlags, SocketType},
    process::{Pid, WaitId, WaitIdOptions},
};
use spdl_media::VideoCodec;

use super::packets::PacketWindows;
use crate::{
    FrameChildCommand, FrameDecodeError, FramePlanes, FrameRequest, FrameSettings,
    library::LibraryFolders,
    protocol::{
        ChildOrder, ChildReply, FailureKind, FoundFrame, LoadOrder, MAX_MESSAGE_BYTES, NextStep, StartOrder, send,
    },
    system::FrameMemory,
};

/// Limit for starting a program and loading the library, on a machine whose disk is busy.
const LOAD_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a child that has closed its socket may take to end.
const END_TIMEOUT: Duration = Duration::from_secs(1);
/// The least memory for packets, and for frames, in bytes. With less, there are more messages; with more, packets and frames leave the
/// caches of a core before they are read.
const LEAST_MEMORY: usize = 1 << 20;
/// The memory for several frames, in bytes, if one alone does not take more.
const FRAMES_MEMORY: usize = 4 << 20;
/// The most memory for packets, and for frames, that a child keeps while it is idle, in bytes. When lowered, large frames take new pages
/// for each request; when raised, children that have once decoded such keep them.
const KEPT_MEMORY: usize = 8 << 20;
/// The least number of pixels of frames that a child may have. The limit of its memory grows with it.
const LEAST_PIXELS: u64 = 1 << 21;

/// A child. Killed when dropped.
#[derive(Debug)]
pub(super) struct FrameChild {
    child: Child,
    socket: OwnedFd,
    /// The kernel kills the child when this is closed, however this process ends.
    _lifeline: PipeWriter,
    max_pixels: u64,
    library: String,
    input: Option<FrameMemory>,
    output: Option<FrameMemory>,
    /// The codec and the extra data of the last request.
    last: Option<(VideoCodec, Vec<u8>)>,
    /// Whether it waits for a request.
    is_usable: bool,
}

/// Why a child gave no answer.
enum Lost {
    /// It has closed its socket, as it does when it ends.
    Closed,
    /// It has answered what it must not.
    Foreign,
    Slow,
}

/// How long a child may still work.
struct TimeLeft {
    limit: Duration,
    left: Duration,
}

impl FrameChild {
    /// Starts a child for frames of at most so many pixels, or some more.
    pub(super) fn start(
        command: &FrameChildCommand,
        settings: &FrameSettings,
        max_pixels: u64,
    ) -> Result<Self, FrameDecodeError> {
        let start = |source: io::Error| {
            let program = command.program.clone();
            FrameDecodeError::Start { program, source: Arc::new(source) }
        };
        let max_pixels = max_pixels.max(LEAST_PIXELS).checked_next_power_of_two().unwrap_or(u64::MAX);
        let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None);
        let (socket, theirs) = pair.map_err(|error| start(error.into()))?;
        let (end, lifeline) = io::pipe().map_err(start)?;
        let mut program = Command::new(&command.program);
        program.args(&command.arguments).stdin(Stdio::from(theirs)).stdout(Stdio::null());
        // Ctrl-C is meant for the program that the user started.
        let child = program.process_group(0).spawn().map_err(start)?;
        // Closes its end of the socket here, so that the socket is closed when the child ends.
        drop(program);
        let (library, input, output, last) = Default::default();
        let mut child =
            Self { child, socket, _lifeline: lifeline, max_pixels, library, input, output, last, is_usable: true };
        let folders =
            LibraryFolders { only: settings.library_folder.clone(), packages: settings.package_folders.clone() };
        let order = ChildOrder::Load(LoadOrder { max_pixels, folders });
        let mut time = TimeLeft { limit: LOAD_TIMEOUT, left: LOAD_TIMEOUT };
        let problem = match child.ask(&order, Some(end.as_fd()), &mut time) {
            Ok(ChildReply::Ready(library)) => {
                child.library = library;
                return Ok(child);
            }
            Ok(ChildReply::NoLibrary(problem)) => return Err(FrameDecodeError::Library { problem }),
            Ok(ChildReply::NotLocked(problem)) => problem,
            Ok(ChildReply::Frames(..)) => child.end_of(&Lost::Foreign),
            Err(lost) => child.end_of(&lost),
        };
        Err(FrameDecodeError::Child { program: command.program.clone(), problem })
    }

    /// Returns the name of the library.
    pub(super) fn library(&self) -> &str {
        &self.library
    }

    /// Returns whether it can take another request.
    pub(super) const fn is_usable(&self) -> bool {
        self.is_usable
    }

    /// Returns whether the limit of its memory is for frames of a request.
    pub(super) const fn may_decode(&self, request: &FrameRequest<'_>) -> bool {
        self.max_pixels >= request.max_pixels
    }

    /// Returns whether its last request was for the same stream, so that its decoder is open.
    pub(super) fn has_open(&self, request: &FrameRequest<'_>) -> bool {
        self.last.as_ref().is_some_and(|(codec, extra_data)| codec == request.codec && extra_data == request.extra_data)
    }

    /// Decodes a request.
    pub(super) fn decode(
        &mut self,
        request: &FrameRequest<'_>,
        settings: &FrameSettings,
        on_frame: &mut dyn FnMut(usize, FramePlanes<'_>),
    ) -> Result<(), FrameDecodeError> {
        let no_decoder =
            |library: &str| FrameDecodeError::Codec { codec: request.codec.to_string(), library: library.to_owned() };
        let codec = codec_number(request.codec).ok_or_else(|| no_decoder(&self.library))?;
        let size = |count: usize| {
            u32::try_from(count)
                .map_err(|_| FrameDecodeError::Stream { problem: format!("{count} bytes are too many") })
        };
        let (wanted, extra_bytes) = (size(request.wanted.len())?, size(request.extra_data.len())?);
        self.is_usable = false;
        let mut time = TimeLeft::of(request, settings);
        let mut windows = PacketWindows::new(request);
        self.make_input(windows.least_bytes())?;
        let input = self.input.as_mut().expect("there is input memory");
        let window = windows.start(input.bytes_mut());
        let (packets, is_last, max_pixels) = (window.count, window.is_last, request.max_pixels);
        let start = StartOrder { codec, max_pixels, wanted, extra_bytes, packets, is_last };
        self.last = Some((request.codec.clone(), request.extra_data.to_vec()));
        let mut is_found = vec![false; request.wanted.len()];
        let mut order = ChildOrder::Start(start);
        let mut fd: Option<OwnedFd> = None;
        loop {
            let (frames, next) = match self.ask(&order, fd.take().as_ref().map(AsFd::as_fd), &mut time) {
                Ok(ChildReply::Frames(frames, next)) => (frames, next),
                Ok(_) => return Err(self.died(&Lost::Foreign, &time)),
                Err(lost) => return Err(self.died(&lost, &time)),
            };
            if !self.give(&frames, &mut is_found, request, on_frame) {
                return Err(self.died(&Lost::Foreign, &time));
            }
            order = match next {
                NextStep::Done => {
                    self.give_back()?;
                    let missing = is_found.iter().position(|is_found| !is_found);
                    return missing.map_or(Ok(()), |nth| Err(FrameDecodeError::Missing { pts: request.wanted[nth] }));
                }
                NextStep::Failed(kind, text) => {
                    self.give_back()?;
                    return Err(match kind {
                        FailureKind::Codec => no_decoder(&self.library),
                        FailureKind::Format => FrameDecodeError::Format { name: text },
                        FailureKind::Stream => FrameDecodeError::Stream { problem: text },
                        FailureKind::Memory => FrameDecodeError::Memory { max_pixels: request.max_pixels },
                    });
                }
                NextStep::GoOn if !frames.is_empty() => ChildOrder::GoOn,
                NextStep::Packets => {
                    let input = self.input.as_mut().expect("there is input memory");
                    match windows.next(input.bytes_mut()) {
                        Some(window) => ChildOrder::Packets(window.count, window.is_last),
                        None => return Err(self.died(&Lost::Foreign, &time)),
                    }
                }
                NextStep::Output(bytes) if self.is_more(bytes, request) => {
                    let left = is_found.iter().filter(|is_found| !**is_found).count();
                    let (bytes, memory) = self.make_output(bytes, left)?;
                    fd = Some(memory);
                    ChildOrder::Output(bytes)
                }
                NextStep::GoOn | NextStep::Output(_) => return Err(self.died(&Lost::Foreign, &time)),
            };
        }
    }

    /// Gives frames to the caller. Returns whether they can be what the child says.
    fn give(
        &self,
        frames: &[FoundFrame],
        is_found: &mut [bool],
        request: &FrameRequest<'_>,
        on_frame: &mut dyn FnMut(usize, FramePlanes<'_>),
    ) -> bool {
        frames.iter().all(|frame| {
            let is_new = is_found.get_mut(frame.nth).is_some_and(|is_found| !std::mem::replace(is_found, true));
            let memory = self.output.as_ref().map_or(&[][..], FrameMemory::bytes);
            let end = frame.place.checked_add(frame.shape.bytes());
            let bytes = end.and_then(|end| memory.get(frame.place..end));
            let Some(bytes) = bytes.filter(|_| is_new && frame.shape.pixels() <= request.max_pixels) else {
                return false;
            };
            let (size, format, color) = (frame.shape.size(), frame.shape.format(), frame.color);
            on_frame(frame.nth, FramePlanes { size, format, color, planes: frame.shape.split(bytes) });
            true
        })
    }

    /// Returns whether so many bytes are more than the memory has, and what a frame may take.
    fn is_more(&self, bytes: usize, request: &FrameRequest<'_>) -> bool {
        let most = request.max_pixels.saturating_mul(6);
        bytes > self.output.as_ref().map_or(0, FrameMemory::len) && bytes as u64 <= most
    }

    /// Ends a request. Replaces large memory by small, here and in the child.
    fn give_back(&mut self) -> Result<(), FrameDecodeError> {
        if self.input.as_ref().is_some_and(|memory| memory.len() > KEPT_MEMORY) {
            self.input = None;
            self.make_input(0)?;
        }
        if self.output.as_ref().is_some_and(|memory| memory.len() > KEPT_MEMORY) {
            let (bytes, memory) = self.make_output(0, 0)?;
            // A child that has ended is noticed when it is asked.
            let _ = send(&self.socket, &ChildOrder::Output(bytes).encode(), Some(memory.as_fd()));
        }
        self.is_usable = true;
        Ok(())
    }

    /// Makes room for orders.
    fn make_input(&mut self, bytes: usize) -> Result<(), FrameDecodeError> {
        if self.input.as_ref().is_some_and(|memory| memory.len() >= bytes) {
            return Ok(());
        }
        self.input = None;
        let bytes = bytes.max(LEAST_MEMORY).next_power_of_two();
        let shared = |source: io::Error| FrameDecodeError::Shared { bytes, source: Arc::new(source) };
        let (memory, fd) = FrameMemory::make(bytes).map_err(shared)?;
        // A child that has ended is noticed when it is asked.
        let _ = send(&self.socket, &ChildOrder::Input(bytes).encode(), Some(fd.as_fd()));
        self.input = Some(memory);
        Ok(())
    }

    /// Makes room for a frame of so many bytes, or for all that are left. Returns what the child has to map.
    fn make_output(&mut self, frame_bytes: usize, left: usize) -> Result<(usize, OwnedFd), FrameDecodeError> {
        let all = frame_bytes.saturating_mul(left).min(FRAMES_MEMORY);
        let bytes = frame_bytes.max(all).max(LEAST_MEMORY);
        let shared = |source: io::Error| FrameDecodeError::Shared { bytes, source: Arc::new(source) };
        self.output = None;
        let (memory, fd) = FrameMemory::make(bytes).map_err(shared)?;
        self.output = Some(memory);
        Ok((bytes, fd))
    }

    /// Sends an order and waits for the answer.
    fn ask(&mut self, order: &ChildOrder, fd: Option<BorrowedFd<'_>>, time: &mut TimeLeft) -> Result<ChildReply, Lost> {
        send(&self.socket, &order.encode(), fd).map_err(|_| Lost::Closed)?;
        let started = Instant::now();
        let mut bytes = [0; MAX_MESSAGE_BYTES];
        let received = loop {
            let left = time.left.saturating_sub(started.elapsed());
            let limit = Timespec { tv_sec: left.as_secs() as _, tv_nsec: left.subsec_nanos().into() };
            let mut watched = [PollFd::new(&self.socket, PollFlags::IN)];
            match rustix::event::poll(&mut watched, Some(&limit)) {
                Ok(0) if left.is_zero() => return Err(Lost::Slow),
                Ok(0) | Err(Errno::INTR) => {}
                Ok(_) => break rustix::net::recv(&self.socket, &mut bytes, RecvFlags::DONTWAIT),
                Err(_) => return Err(Lost::Closed),
            }
        };
        time.left = time.left.saturating_sub(started.elapsed());
        match received {
            Ok((0, _)) | Err(_) => Err(Lost::Closed),
            Ok((count, _)) => ChildReply::decode(&bytes[..count]).ok_or(Lost::Foreign),
        }
    }

    /// Returns the error of a request whose child gave no answer, or a wrong one, and ends it.
    fn died(&mut self, lost: &Lost, time: &TimeLeft) -> FrameDecodeError {
        match lost {
            Lost::Slow => FrameDecodeError::Slow { limit: time.limit },
            lost => FrameDecodeError::Died { how: self.end_of(lost) },
        }
    }

    /// Ends the child and describes how it had ended.
    fn end_of(&mut self, lost: &Lost) -> String {
        self.is_usable = false;
        match lost {
            Lost::Slow => return format!("it did not answer within {} seconds", LOAD_TIMEOUT.as_secs()),
            Lost::Foreign => return "it has answered what it must not, and was killed".to_owned(),
            Lost::Closed => {}
        }
        // A child that has closed its socket is about to end.
        let deadline = Instant::now() + END_TIMEOUT;
        while !self.has_ended() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(1));
        }
        let has_ended = self.has_ended();
        let status = self.end();
        let status = status.filter(|_| has_ended);
        status.map_or_else(|| "it closed its socket".to_owned(), |status| format!("it ended with {status}"))
    }

    /// Returns whether it has ended, by itself or by others.
    pub(super) fn has_ended(&self) -> bool {
        let how = WaitIdOptions::EXITED | WaitIdOptions::NOHANG | WaitIdOptions::NOWAIT;
        !matches!(rustix::process::waitid(WaitId::Pid(Pid::from_child(&self.child)), how), Ok(None))
    }

    fn end(&mut self) -> Option<std::process::ExitStatus> {
        // This fails if it has ended already.
        let _ = self.child.kill();
        self.child.wait().ok()
    }
}

impl TimeLeft {
    /// Returns how long a request may take.
    fn of(request: &FrameRequest<'_>, settings: &FrameSettings) -> Self {
        let millions = request.max_pixels.div_ceil(1_000_000).max(1);
        let packets = u32::try_from(millions.saturating_mul(request.packets.len() as u64)).unwrap_or(u32::MAX);
        let limit = settings.base_timeout.saturating_add(settings.packet_timeout.saturating_mul(packets));
        Self { limit, left: limit }
    }
}

/// Returns the number that messages have for a codec; `None` if no decoder is known.
const fn codec_number(codec: &VideoCodec) -> Option<u8> {
    Some(match codec {
        VideoCodec::H264 => 0,
        VideoCodec::Hevc => 1,
        VideoCodec::Av1 => 2,
        VideoCodec::Vp8 => 3,
        VideoCodec::Vp9 => 4,
        VideoCodec::Mpeg4 => 5,
        VideoCodec::Mpeg2 => 6,
        VideoCodec::Mpeg1 => 7,
        VideoCodec::Mjpeg => 8,
        _ => return None,
    })
}

impl Drop for FrameChild {
    fn drop(&mut self) {
        self.end();
    }
}
