//! Where the few fields lie that no function gives: the same in FFmpeg 5 to 9, on 64-bit systems. [`check`] compares what can be
//! compared with what the library itself writes.

use std::ffi::{c_int, c_uint};

use super::functions::{AvCodec, AvFrame, AvPacket, AvParameters, CodecFunctions};

/// The major versions of libavcodec in FFmpeg 5 to 9. libavutil's are two less.
pub(super) const MAJORS: std::ops::RangeInclusive<c_uint> = 59..=63;
/// The time of a packet or a frame that has none.
const NO_TIME: i64 = i64::MIN;

const PACKET_PTS: usize = 8;
const PACKET_DATA: usize = 24;
const FRAME_DATA: usize = 0;
const FRAME_STRIDES: usize = 64;
const FRAME_WIDTH: usize = 104;
const FRAME_HEIGHT: usize = 108;
const FRAME_FORMAT: usize = 116;
const FRAME_PTS: usize = 136;
const CODEC_ID: usize = 20;
const PARAMETERS_TYPE: usize = 0;
const PARAMETERS_ID: usize = 4;
const PARAMETERS_EXTRA_DATA: usize = 16;
const PARAMETERS_EXTRA_BYTES: usize = 24;

/// Reads a field.
///
/// # Safety
/// `object` points to a valid object, with a field of type `T` at this place.
unsafe fn get<O, T: Copy>(object: *const O, place: usize) -> T {
    // SAFETY: the caller's contract.
    unsafe { object.cast::<u8>().add(place).cast::<T>().read() }
}

/// Writes a field.
///
/// # Safety
/// As of [`get`], and nothing else accesses the object.
unsafe fn set<O, T>(object: *mut O, place: usize, value: T) {
    // SAFETY: the caller's contract.
    unsafe { object.cast::<u8>().add(place).cast::<T>().write(value) }
}

/// What is read of a frame.
#[derive(Clone, Copy)]
pub(super) struct FrameFields {
    pub(super) data: [*const u8; 3],
    pub(super) strides: [c_int; 3],
    pub(super) size: [c_int; 2],
    pub(super) format: c_int,
    pub(super) pts: i64,
}

/// Reads the fields of a frame.
///
/// # Safety
/// The frame is one of the library's, whose layout was checked.
pub(super) unsafe fn frame(frame: *const AvFrame) -> FrameFields {
    // SAFETY: the caller's contract; the frame has arrays of eight pointers and strides.
    unsafe {
        FrameFields {
            data: get(frame, FRAME_DATA),
            strides: get(frame, FRAME_STRIDES),
            size: [get(frame, FRAME_WIDTH), get(frame, FRAME_HEIGHT)],
            format: get(frame, FRAME_FORMAT),
            pts: get(frame, FRAME_PTS),
        }
    }
}

/// Sets the time of a packet, and returns where its bytes lie.
///
/// # Safety
/// As of [`frame`], and the packet is used by nothing else.
pub(super) unsafe fn prepare_packet(packet: *mut AvPacket, pts: i64) -> *mut u8 {
    // SAFETY: the caller's contract.
    unsafe {
        set(packet, PACKET_PTS, pts);
        get(packet.cast_const(), PACKET_DATA)
    }
}

/// Sets what a context gets: that it is of pictures, the codec, and bytes of `av_mallocz` that the parameters own from then on.
///
/// # Safety
/// As of [`frame`]; the parameters are new ones.
pub(super) unsafe fn fill_parameters(parameters: *mut AvParameters, codec: *const AvCodec, extra: (*mut u8, c_int)) {
    const VIDEO: c_int = 0;
    // SAFETY: the caller's contract.
    unsafe {
        set(parameters, PARAMETERS_TYPE, VIDEO);
        set(parameters, PARAMETERS_ID, get::<_, c_int>(codec, CODEC_ID));
        set(parameters, PARAMETERS_EXTRA_DATA, extra.0);
        set(parameters, PARAMETERS_EXTRA_BYTES, extra.1);
    }
}

/// Returns the version of libavcodec in words, if the library has the expected layout.
///
/// # Errors
/// What is other than expected.
pub(super) fn check(functions: &CodecFunctions) -> Result<String, String> {
    // SAFETY: they may be called at any time.
    let [codec, util] = unsafe { [(functions.avcodec_version)(), (functions.avutil_version)()] };
    let version = format!("libavcodec {}.{}.{}", codec >> 16, codec >> 8 & 0xff, codec & 0xff);
    let (oldest, newest) = (MAJORS.start(), MAJORS.end());
    if !MAJORS.contains(&(codec >> 16)) || (util >> 16) + 2 != codec >> 16 {
        return Err(format!("{version} with libavutil {} is not of FFmpeg 5 to 9 ({oldest} to {newest})", util >> 16));
    }
    // SAFETY: both are valid or null, and freed once. A layout that differs still has more than 144 and 32 bytes, so that memory of the
    // objects is read.
    let is_known = unsafe {
        let (mut packet, mut fresh) = ((functions.av_packet_alloc)(), (functions.av_frame_alloc)());
        let is_known = !packet.is_null() && !fresh.is_null() && {
            let fields = frame(fresh);
            get::<_, i64>(packet.cast_const(), PACKET_PTS) == NO_TIME
                && get::<_, *const u8>(packet.cast_const(), PACKET_DATA).is_null()
                && (fields.pts, fields.format, fields.size) == (NO_TIME, -1, [0, 0])
        };
        (functions.av_packet_free)(&raw mut packet);
        (functions.av_frame_free)(&raw mut fresh);
        is_known
    };
    is_known
        .then(|| version.clone())
        .ok_or_else(|| format!("{version} has another layout than the versions that are known"))
}
