//! Entries of the directory of a table of packets.

/// Bytes of an entry.
pub(super) const ENTRY_BYTES: usize = 24;
/// The most packets of a block.
pub(super) const MAX_BLOCK_PACKETS: usize = 4096;

/// What the directory says of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct BlockEntry {
    /// The time of the first frame that is shown.
    pub(super) time: i64,
    pub(super) first_packet: u32,
    pub(super) first_frame: u32,
    /// How many packets before the first one decoding begins for some frames of the block.
    pub(super) before: u32,
    pub(super) end: u32,
}

impl BlockEntry {
    pub(super) fn read(bytes: &[u8; ENTRY_BYTES]) -> Self {
        let [first_packet, first_frame, before, end] = [8, 12, 16, 20].map(|at| field(bytes, at));
        Self { time: signed(bytes, 0), first_packet, first_frame, before, end }
    }
}

/// Returns a number of 4 bytes.
pub(super) fn field(bytes: &[u8; ENTRY_BYTES], at: usize) -> u32 {
    u32::from_le_bytes(*bytes[at..].first_chunk().expect("a field of 4 bytes"))
}

/// Returns a number of 8 bytes with a sign.
pub(super) fn signed(bytes: &[u8; ENTRY_BYTES], at: usize) -> i64 {
    i64::from_le_bytes(*bytes[at..].first_chunk().expect("a field of 8 bytes"))
}
