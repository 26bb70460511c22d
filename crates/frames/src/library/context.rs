//! A decoder of one stream.

use std::{
    ffi::{CStr, c_int, c_void},
    ptr,
};

use spdl_media::VideoColor;

use super::{
    CodecLibrary, CodecProblem, DECODERS, DecodedFrame,
    functions::{AvContext, AvFrame, AvPacket},
    layout, pixels,
};

/// The result of a decoder that needs another packet, or that has frames to take first.
const AGAIN: c_int = -libc::EAGAIN;
/// The result of a decoder that has given all frames.
const END: c_int = -c_int::from_le_bytes(*b"EOF ");
/// Zeros that have to follow extra data.
const PADDING: usize = 64;
/// Pixels around a frame of which some decoders make a part of it, beside as many as it has.
const BORDER_PIXELS: u64 = 1 << 20;
/// Lets a decoder cut off the first columns of a frame anywhere, so that its rows begin anywhere.
const UNALIGNED: i64 = 1 << 0;
/// Lets a decoder give all frames. Without it, those of H.264 that follow an open key frame are left out at the end of the stream, by FFmpeg 5.
const OUTPUT_CORRUPT: i64 = 1 << 3;
/// The number of H.264, the first one in [`DECODERS`].
pub(crate) const H264: usize = 0;
/// The number of HEVC.
pub(crate) const HEVC: usize = 1;

/// A decoder of one stream, which decodes on the thread that calls it.
pub(crate) struct CodecContext<'l> {
    library: &'l CodecLibrary,
    context: *mut AvContext,
    packet: *mut AvPacket,
    frame: *mut AvFrame,
}

/// What a decoder has given.
pub(crate) enum Received {
    /// A frame, which has this time.
    Frame(i64),
    /// Nothing before it gets another packet.
    Nothing,
    /// Nothing, since all frames were given.
    End,
}

impl<'l> CodecContext<'l> {
    /// Opens the decoder with a number.
    pub(crate) fn open(
        library: &'l CodecLibrary,
        codec: usize,
        extra_data: &[u8],
        max_pixels: u64,
    ) -> Result<Self, CodecProblem> {
        let functions = &library.functions;
        // SAFETY: the names end with a zero.
        let find = |name: &&CStr| unsafe { (functions.avcodec_find_decoder_by_name)(name.as_ptr()) };
        let mut decoders = DECODERS.get(codec).copied().unwrap_or_default().iter().map(find);
        let decoder = decoders.find(|decoder| !decoder.is_null()).ok_or(CodecProblem::NoDecoder)?;
        // SAFETY: the decoder is one of the library's. What is null is freed as nothing.
        let opened = unsafe {
            let (context, packet) = ((functions.avcodec_alloc_context3)(decoder), (functions.av_packet_alloc)());
            Self { library, context, packet, frame: (functions.av_frame_alloc)() }
        };
        if opened.context.is_null() || opened.packet.is_null() || opened.frame.is_null() {
            return Err(CodecProblem::Memory);
        }
        let extra_bytes = c_int::try_from(extra_data.len()).map_err(|_| CodecProblem::Memory)?;
        // SAFETY: the parameters are new ones, and own the copy of the extra data, which has as many bytes and zeros behind it. They
        // are freed once, with it.
        let result = unsafe {
            let mut parameters = (functions.avcodec_parameters_alloc)();
            let copy: *mut u8 = (functions.av_mallocz)(extra_data.len() + PADDING).cast();
            if parameters.is_null() || copy.is_null() {
                return Err(CodecProblem::Memory);
            }
            ptr::copy_nonoverlapping(extra_data.as_ptr(), copy, extra_data.len());
            layout::fill_parameters(parameters, decoder, (copy, extra_bytes));
            let result = (functions.avcodec_parameters_to_context)(opened.context, parameters);
            (functions.avcodec_parameters_free)(&raw mut parameters);
            result
        };
        opened.check(result)?;
        opened.set(c"threads", 1)?;
        let most = max_pixels.saturating_mul(2).saturating_add(BORDER_PIXELS);
        opened.set(c"max_pixels", i64::try_from(most).unwrap_or(i64::MAX))?;
        opened.set(c"flags", UNALIGNED | OUTPUT_CORRUPT)?;
        if codec == H264 {
            // Streams that leave open how far frames are shown later than they are decoded would lose frames until the decoder has
            // found it out. This takes what their level allows.
            opened.set(c"strict", 1)?;
        }
        // SAFETY: the context is a new one, and the decoder that which it was made for.
        opened.check(unsafe { (functions.avcodec_open2)(opened.context, decoder, ptr::null_mut()) })?;
        Ok(opened)
    }

    /// Gives the decoder a packet. Returns whether it has taken it; if not, there are frames to receive first.
    pub(crate) fn send(&mut self, bytes: &[u8], pts: i64) -> Result<bool, CodecProblem> {
        let functions = &self.library.functions;
        let size = c_int::try_from(bytes.len()).map_err(|_| CodecProblem::Memory)?;
        // SAFETY: the packet is an empty one.
        self.check(unsafe { (functions.av_new_packet)(self.packet, size) })?;
        // SAFETY: the packet has room for as many bytes, with zeros behind them. It is emptied once the decoder has its own reference.
        let result = unsafe {
            let data = layout::prepare_packet(self.packet, pts);
            ptr::copy_nonoverlapping(bytes.as_ptr(), data, bytes.len());
            let result = (functions.avcodec_send_packet)(self.context, self.packet);
            (functions.av_packet_unref)(self.packet);
            result
        };
        if result == AGAIN {
            return Ok(false);
        }
        self.check(result).map(|()| true)
    }

    /// Lets the decoder give all frames that it still has.
    pub(crate) fn drain(&mut self) -> Result<(), CodecProblem> {
        // SAFETY: the context is open; no packet is allowed, and means the end.
        let result = unsafe { (self.library.functions.avcodec_send_packet)(self.context, ptr::null()) };
        if result == END { Ok(()) } else { self.check(result) }
    }

    /// Takes a frame of the decoder.
    pub(crate) fn receive(&mut self) -> Result<Received, CodecProblem> {
        // SAFETY: context and frame are valid; what the frame had before is released by the call.
        let result = unsafe { (self.library.functions.avcodec_receive_frame)(self.context, self.frame) };
        match result {
            AGAIN => Ok(Received::Nothing),
            END => Ok(Received::End),
            // SAFETY: the frame is one of the library's, whose layout was checked when it was loaded.
            result => self.check(result).map(|()| Received::Frame(unsafe { layout::frame(self.frame) }.pts)),
        }
    }

    /// Forgets the frames and packets so far; the next packet is a key frame.
    pub(crate) fn flush(&mut self) {
        // SAFETY: the context is open.
        unsafe { (self.library.functions.avcodec_flush_buffers)(self.context) };
    }

    /// Returns the frame that was received last.
    pub(crate) fn frame(&self) -> Result<DecodedFrame<'_>, CodecProblem> {
        // SAFETY: as in `receive`.
        let fields = unsafe { layout::frame(self.frame) };
        // SAFETY: may be called with any number; the text is a constant of the library's.
        let name = unsafe {
            let name = (self.library.functions.av_get_pix_fmt_name)(fields.format);
            if name.is_null() { "none".into() } else { CStr::from_ptr(name).to_string_lossy() }
        };
        let pixels = pixels::named(&name).ok_or_else(|| CodecProblem::Format(name.into_owned()))?;
        let code = |name: &CStr| u16::try_from(self.get(name)).unwrap_or(2);
        let color = VideoColor {
            primaries: code(c"color_primaries"),
            transfer: code(c"color_trc"),
            matrix: code(c"colorspace"),
            is_full_range: match self.get(c"color_range") {
                _ if pixels.is_full_range => Some(true),
                1 => Some(false),
                2 => Some(true),
                _ => None,
            },
        };
        // SAFETY: the decoder has filled the frame, with planes of this format and size. They stay until the next call, which borrows
        // `self` for writing.
        unsafe { DecodedFrame::new(&fields, pixels, color) }
    }

    fn set(&self, option: &CStr, value: i64) -> Result<(), CodecProblem> {
        let object: *mut c_void = self.context.cast();
        // SAFETY: a context is an object with options; the name ends with a zero.
        self.check(unsafe { (self.library.functions.av_opt_set_int)(object, option.as_ptr(), value, 0) })
    }

    /// Returns an option, or -1 if there is none.
    fn get(&self, option: &CStr) -> i64 {
        let mut value = -1;
        // SAFETY: as in `set`; the pointer is to a local of that type.
        let result =
            unsafe { (self.library.functions.av_opt_get_int)(self.context.cast(), option.as_ptr(), 0, &raw mut value) };
        if result < 0 { -1 } else { value }
    }

    fn check(&self, result: c_int) -> Result<(), CodecProblem> {
        if result < 0 { Err(self.library.problem(result)) } else { Ok(()) }
    }
}

impl Drop for CodecContext<'_> {
    fn drop(&mut self) {
        let functions = &self.library.functions;
        // SAFETY: each is valid or null, was made by the library, and is freed once.
        unsafe {
            (functions.avcodec_free_context)(&raw mut self.context);
            (functions.av_packet_free)(&raw mut self.packet);
            (functions.av_frame_free)(&raw mut self.frame);
        }
    }
}
