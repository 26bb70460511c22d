//! Decodes requests, one after the other.

use std::os::fd::BorrowedFd;

use super::parameter_sets::has_parameter_sets;
use crate::{
    library::{CodecContext, CodecLibrary, CodecProblem, H264, HEVC, Received},
    protocol::{
        ChildOrder, ChildReply, FailureKind, FoundFrame, InputReader, MAX_REPLY_FRAMES, NextStep, StartOrder, receive,
        send,
    },
    system::FrameMemory,
};

/// The codecs whose decoders, once flushed, decode another part of the same stream as a new one does: H.264 and HEVC, if they have got no
/// parameter sets with packets, AV1, VP8 and VP9. Those of the others keep tables, and are opened in no time.
const REUSED: usize = 5;
/// Frames begin at multiples of this in memory.
const FRAME_ALIGNMENT: usize = 64;

/// What a child has while it serves its pool.
pub(super) struct ChildSession<'s> {
    library: &'s CodecLibrary,
    socket: BorrowedFd<'s>,
    input: Option<FrameMemory>,
    output: Option<FrameMemory>,
    /// The decoder of the last request, flushed, and what it was opened with.
    kept: Option<(ContextKey, CodecContext<'s>)>,
    /// The frames that the pool has not got yet, and where the next one goes.
    frames: Vec<FoundFrame>,
    used: usize,
}

/// What a decoder is opened with.
#[derive(Clone, PartialEq, Eq)]
struct ContextKey {
    codec: u8,
    max_pixels: u64,
    extra_data: Vec<u8>,
}

/// Why a child ends.
pub(super) enum SessionEnd {
    /// The pool has closed the socket.
    Closed,
    /// The pool has sent something else than it should.
    Broken,
}

/// Why a request ends early.
enum Stop {
    Failed(CodecProblem),
    End(SessionEnd),
}

impl From<SessionEnd> for Stop {
    fn from(end: SessionEnd) -> Self {
        Self::End(end)
    }
}

impl From<CodecProblem> for Stop {
    fn from(problem: CodecProblem) -> Self {
        Self::Failed(problem)
    }
}

/// The wanted frames of a request.
struct WantedFrames {
    /// Their times, ascending.
    times: Vec<i64>,
    is_found: Vec<bool>,
    left: usize,
    /// The time of the packet with which decoding has begun.
    begin: Option<i64>,
    codec: usize,
    max_pixels: u64,
    /// Whether packets have parameter sets, which the decoder keeps.
    has_sets: bool,
}

impl WantedFrames {
    fn new(times: Vec<i64>, order: &StartOrder) -> Self {
        let (codec, max_pixels) = (order.codec, order.max_pixels);
        Self {
            max_pixels,
            has_sets: false,
            codec: codec.into(),
            is_found: vec![false; times.len()],
            left: times.len(),
            times,
            begin: None,
        }
    }

    /// Returns the number of the frame with a time, if it is wanted and new.
    fn take(&mut self, pts: i64) -> Option<usize> {
        let nth = self.times.binary_search(&pts).ok()?;
        if std::mem::replace(&mut self.is_found[nth], true) {
            return None;
        }
        self.left -= 1;
        Some(nth)
    }
}

impl<'s> ChildSession<'s> {
    pub(super) const fn new(library: &'s CodecLibrary, socket: BorrowedFd<'s>) -> Self {
        Self { library, socket, input: None, output: None, kept: None, frames: Vec::new(), used: 0 }
    }

    /// Serves requests until the pool closes the socket.
    pub(super) fn serve(mut self) -> SessionEnd {
        loop {
            let result = match self.order() {
                Ok(ChildOrder::Start(order)) => self.request(&order),
                // Smaller memory, after a request with large frames.
                Ok(ChildOrder::Output(_)) => Ok(()),
                Ok(_) => Err(SessionEnd::Broken),
                Err(end) => Err(end),
            };
            if let Err(end) = result {
                return end;
            }
        }
    }

    /// Receives an order. Takes new memory meanwhile.
    fn order(&mut self) -> Result<ChildOrder, SessionEnd> {
        loop {
            let message = receive(self.socket).map_err(|_| SessionEnd::Broken)?;
            if message.bytes.is_empty() {
                return Err(SessionEnd::Closed);
            }
            let order = ChildOrder::decode(&message.bytes).ok_or(SessionEnd::Broken)?;
            let map = |bytes: usize| {
                let fd = message.fd.as_ref().ok_or(SessionEnd::Broken)?;
                FrameMemory::map(fd, bytes).map_err(|_| SessionEnd::Broken)
            };
            match order {
                ChildOrder::Input(bytes) => {
                    self.input = None;
                    self.input = Some(map(bytes)?);
                }
                ChildOrder::Output(bytes) => {
                    self.output = None;
                    self.output = Some(map(bytes)?);
                    if !self.frames.is_empty() {
                        return Err(SessionEnd::Broken);
                    }
                    return Ok(order);
                }
                _ => return Ok(order),
            }
        }
    }

    /// Decodes a request and sends its last reply.
    fn request(&mut self, order: &StartOrder) -> Result<(), SessionEnd> {
        (self.used, self.frames) = (0, Vec::new());
        let next = match self.decode(order) {
            Ok(()) => NextStep::Done,
            Err(Stop::End(end)) => return Err(end),
            Err(Stop::Failed(problem)) => {
                let (kind, text) = match problem {
                    CodecProblem::NoDecoder => (FailureKind::Codec, String::new()),
                    CodecProblem::Format(name) => (FailureKind::Format, name),
                    CodecProblem::Stream(problem) => (FailureKind::Stream, problem),
                    CodecProblem::Memory => (FailureKind::Memory, String::new()),
                };
                NextStep::Failed(kind, text)
            }
        };
        self.hand_over(next)
    }

    fn decode(&mut self, order: &StartOrder) -> Result<(), Stop> {
        let input = self.input.take().ok_or(SessionEnd::Broken)?;
        let mut reader = InputReader::new(input.bytes());
        let started = reader.start(order).map(|(wanted, extra_data)| {
            let extra_data = extra_data.to_vec();
            (wanted, ContextKey { codec: order.codec, max_pixels: order.max_pixels, extra_data })
        });
        let start_bytes = reader.place();
        self.input = Some(input);
        let (wanted, key) = started.ok_or(SessionEnd::Broken)?;
        let mut context = match self.kept.take() {
            Some((kept, context)) if kept == key => context,
            other => {
                // Closed before the next one is opened, so that their memory does not add up.
                drop(other);
                CodecContext::open(self.library, usize::from(order.codec), &key.extra_data, order.max_pixels)?
            }
        };
        let mut frames = WantedFrames::new(wanted, order);
        self.decode_packets(&mut context, &mut frames, order, (start_bytes, &key.extra_data))?;
        if usize::from(order.codec) < REUSED && !frames.has_sets {
            context.flush();
            self.kept = Some((key, context));
        }
        Ok(())
    }

    /// Decodes packets until all wanted frames are found, or there are no more.
    fn decode_packets(
        &mut self,
        context: &mut CodecContext<'s>,
        frames: &mut WantedFrames,
        order: &StartOrder,
        (start_bytes, extra_data): (usize, &[u8]),
    ) -> Result<(), Stop> {
        let (mut count, mut is_last, mut place) = (order.packets, order.is_last, start_bytes);
        loop {
            // While it is read, no other memory can come: the pool sends that only with packets.
            let input = self.input.take().ok_or(SessionEnd::Broken)?;
            let packets = InputReader::new(&input.bytes()[place..]);
            let result = self.decode_window(context, frames, packets, (count, extra_data));
            self.input = Some(input);
            result?;
            if frames.left == 0 {
                return Ok(());
            }
            if is_last {
                break;
            }
            self.hand_over(NextStep::Packets)?;
            let ChildOrder::Packets(more, last) = self.order()? else { return Err(SessionEnd::Broken.into()) };
            (count, is_last, place) = (more, last, 0);
        }
        self.drain(context, frames)
    }

    /// Decodes the packets that lie in memory.
    fn decode_window(
        &mut self,
        context: &mut CodecContext<'s>,
        frames: &mut WantedFrames,
        mut packets: InputReader<'_>,
        (count, extra_data): (u32, &[u8]),
    ) -> Result<(), Stop> {
        for _ in 0..count {
            let (pts, begins_anew, bytes) = packets.packet().ok_or(SessionEnd::Broken)?;
            if frames.begin.is_some() && begins_anew {
                self.drain(context, frames)?;
                context.flush();
            }
            if frames.begin.is_none() || begins_anew {
                frames.begin = Some(pts);
            }
            if frames.codec <= HEVC {
                frames.has_sets |= has_parameter_sets(frames.codec == HEVC, extra_data, bytes);
            }
            let result = self.decode_packet(context, frames, pts, bytes);
            match result {
                // What is shown before the key frame may refer to frames that are not there.
                Err(Stop::Failed(CodecProblem::Stream(_))) if frames.begin.is_some_and(|begin| pts < begin) => {}
                Err(Stop::Failed(CodecProblem::Stream(problem))) => {
                    return Err(CodecProblem::Stream(format!("the packet at {pts}: {problem}")).into());
                }
                result => result?,
            }
            if frames.left == 0 {
                break;
            }
        }
        Ok(())
    }

    fn decode_packet(
        &mut self,
        context: &mut CodecContext<'s>,
        frames: &mut WantedFrames,
        pts: i64,
        bytes: &[u8],
    ) -> Result<(), Stop> {
        let mut is_taken = context.send(bytes, pts)?;
        loop {
            match context.receive()? {
                Received::Frame(pts) => self.found(context, frames, pts)?,
                Received::Nothing | Received::End if is_taken => return Ok(()),
                // A decoder that takes no packet has frames.
                Received::Nothing | Received::End => {
                    is_taken = context.send(bytes, pts)?;
                    if !is_taken {
                        return Err(CodecProblem::Stream("it is not taken".to_owned()).into());
                    }
                }
            }
        }
    }

    /// Takes all frames that the decoder still has.
    fn drain(&mut self, context: &mut CodecContext<'s>, frames: &mut WantedFrames) -> Result<(), Stop> {
        context.drain()?;
        while let Received::Frame(pts) = context.receive()? {
            self.found(context, frames, pts)?;
        }
        Ok(())
    }

    /// Copies a frame into memory, if it is wanted.
    fn found(&mut self, context: &CodecContext<'s>, frames: &mut WantedFrames, pts: i64) -> Result<(), Stop> {
        // Open key frames have others behind them that are shown earlier, and refer to frames that are not there.
        if frames.codec == H264 && frames.begin.is_some_and(|begin| pts < begin) {
            return Ok(());
        }
        let Some(nth) = frames.take(pts) else { return Ok(()) };
        let frame = context.frame()?;
        if frame.shape().pixels() > frames.max_pixels {
            let [width, height] = frame.shape().size();
            let problem =
                format!("a frame of {width}x{height} pixels is larger than the {} that are allowed", frames.max_pixels);
            return Err(CodecProblem::Stream(problem).into());
        }
        let bytes = frame.shape().bytes();
        let room = self.output.as_ref().map_or(0, FrameMemory::len);
        if self.frames.len() == MAX_REPLY_FRAMES || !self.frames.is_empty() && self.used + bytes > room {
            self.hand_over(NextStep::GoOn)?;
            let ChildOrder::GoOn = self.order()? else { return Err(SessionEnd::Broken.into()) };
        }
        if bytes > room {
            self.hand_over(NextStep::Output(bytes))?;
            let ChildOrder::Output(_) = self.order()? else { return Err(SessionEnd::Broken.into()) };
        }
        let output = self.output.as_mut().and_then(|output| output.bytes_mut().get_mut(self.used..self.used + bytes));
        frame.copy_to(output.ok_or(SessionEnd::Broken)?);
        self.frames.push(FoundFrame { nth, shape: frame.shape(), color: frame.color(), place: self.used });
        self.used = (self.used + bytes).next_multiple_of(FRAME_ALIGNMENT);
        Ok(())
    }

    /// Sends the frames so far, and what has to be done next. The pool has read them once it sends the next order.
    fn hand_over(&mut self, next: NextStep) -> Result<(), SessionEnd> {
        let reply = ChildReply::Frames(std::mem::take(&mut self.frames), next);
        self.used = 0;
        send(self.socket, &reply.encode(), None).map_err(|_| SessionEnd::Closed)
    }
}
