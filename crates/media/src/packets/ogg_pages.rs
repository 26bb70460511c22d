//! Writes packets as a file of Ogg, each in a page of its own.

use super::{
    ogg::{BEGINS, CONTINUES, ENDS},
    ogg_checksum::checksum,
};

/// Where the flags and the checksum of a page are.
const FLAGS: usize = 5;
const CHECKSUM: std::ops::Range<usize> = 22..26;
/// The most segments of a page, and the bytes of a segment that is not the last of its packet.
const SEGMENTS: usize = 255;
const SEGMENT_BYTES: usize = 255;

/// The pages so far.
#[derive(Debug, Default)]
pub(crate) struct OggPageWriter {
    file: Vec<u8>,
    last_page: usize,
    sequence: u32,
}

impl OggPageWriter {
    /// Writes a packet. `granule` are the frames up to its end.
    pub(crate) fn write(&mut self, packet: &[u8], granule: u64) {
        let mut lengths = vec![u8::MAX; packet.len() / SEGMENT_BYTES];
        lengths.push(u8::try_from(packet.len() % SEGMENT_BYTES).expect("less than 255"));
        let mut rest = packet;
        let pages = lengths.len().div_ceil(SEGMENTS);
        for (nth, segments) in lengths.chunks(SEGMENTS).enumerate() {
            let (body, behind) = rest.split_at(segments.iter().map(|length| usize::from(*length)).sum());
            rest = behind;
            let begins = if self.sequence == 0 { BEGINS } else { 0 };
            let continues = if nth > 0 { CONTINUES } else { 0 };
            // No packet ends in the others.
            let granule = if nth + 1 == pages { granule } else { u64::MAX };
            self.write_page(begins | continues, granule, segments, body);
        }
    }

    fn write_page(&mut self, flags: u8, granule: u64, segments: &[u8], body: &[u8]) {
        self.last_page = self.file.len();
        self.file.extend_from_slice(b"OggS\0");
        self.file.push(flags);
        self.file.extend(granule.to_le_bytes());
        self.file.extend([1, self.sequence, 0].map(u32::to_le_bytes).as_flattened());
        self.file.push(u8::try_from(segments.len()).expect("at most 255"));
        self.file.extend_from_slice(segments);
        self.file.extend_from_slice(body);
        self.sequence = self.sequence.wrapping_add(1);
        self.seal();
    }

    /// Writes the checksum of the last page.
    fn seal(&mut self) {
        let page = &mut self.file[self.last_page..];
        page[CHECKSUM].fill(0);
        let sum = checksum(&[page]);
        page[CHECKSUM].copy_from_slice(&sum.to_le_bytes());
    }

    /// Returns the file.
    pub(crate) fn finish(mut self) -> Vec<u8> {
        if let Some(flags) = self.file.get_mut(self.last_page + FLAGS) {
            *flags |= ENDS;
            self.seal();
        }
        self.file
    }
}
