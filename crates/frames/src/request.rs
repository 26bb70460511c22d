//! What is decoded.

use spdl_media::VideoCodec;

/// Packets, and which of their frames are wanted.
#[derive(Clone, Copy, Debug)]
pub struct FrameRequest<'r> {
    /// How pictures are coded.
    pub codec: &'r VideoCodec,
    /// What a decoder has to know before the first packet: [`VideoTrack::extra_data`](spdl_media::VideoTrack::extra_data).
    pub extra_data: &'r [u8],
    /// The packets, in the order in which they are decoded.
    pub packets: &'r [PacketBytes<'r>],
    /// The times of the wanted frames, ascending and without doubles.
    pub wanted: &'r [i64],
    /// The most pixels that a frame may have; a larger one is an error. The memory of a child and the time that decoding may take
    /// grow with it, so give what the track says rather than the most of all videos.
    pub max_pixels: u64,
}

/// The bytes of a packet.
#[derive(Clone, Copy, Debug)]
pub struct PacketBytes<'r> {
    /// When its frame is shown, in units of the track's time base.
    pub pts: i64,
    /// Its bytes, with the [prefix](spdl_media::VideoTrack::packet_prefix) of the track.
    pub bytes: &'r [u8],
    /// Whether decoding begins anew at this key frame, as it must if packets before it that others refer to are left out. The first packet
    /// is such a one in any case. The decoder then gives all frames so far, and forgets them.
    pub begins_anew: bool,
}
