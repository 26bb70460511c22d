//! A packet of a video.

/// A packet: what a decoder makes one picture of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VideoPacket {
    /// Where its bytes lie in the file.
    pub offset: u64,
    /// Their number, 1 or more.
    pub bytes: u32,
    /// When the picture is shown, in units of the track's time base: 0 is the beginning of the video.
    pub pts: i64,
    /// When the packet is decoded; at most `pts`, but for files that break this rule. Matroska does not have it: there, the times at
    /// which pictures are shown are taken in their order, and all of them so much earlier that none is later than `pts`.
    pub dts: i64,
    /// How long the picture is shown; 0 if the file does not say it.
    pub duration: u32,
    /// Whether decoding can begin here.
    pub is_key: bool,
    /// Whether the file says that no other picture refers to this one, so that it need not be decoded for others. Not of AV1, VP8 and VP9,
    /// whose packets may have several pictures.
    pub is_droppable: bool,
    /// Whether the picture belongs to the video. Others, before its beginning or behind its end, are only decoded.
    pub is_shown: bool,
}

/// The most packets of a track: more than 70 hours of 60 pictures a second.
pub(crate) const MAX_PACKETS: usize = 1 << 24;
/// The largest time that files may have.
pub(crate) const MAX_TIME: i64 = 1 << 60;
/// The largest time of a packet in a table, and the least one with a minus: it is a sum of times in a file, and differences are
/// numbers, too.
pub(super) const MAX_TABLE_TIME: i64 = 3 * MAX_TIME;
