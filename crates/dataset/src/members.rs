//! Writes the fields of a record as members of a tar.

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;

use super::{
    DatasetError, Jpegs,
    catalog::SegmentsOf,
    coded_anew::{CodedVideo, VideoCoder},
    crop_ready::{CropReady, crop_ready},
    originals::is_jpeg,
    report::{Growth, JpegTally},
    scalable::{JpegAsItIs, PackingMemory, scalable},
    source::FilePlace,
    stages::Memory,
};
use crate::tar::{append_member_header, padding_bytes};

/// Upper limit of the bytes of a record that are read into memory; its other files are copied in pieces.
pub(super) const MAX_RECORD_BYTES: u64 = 48 << 20;
/// Size up to which a file is copied into the part of the members before it, in bytes, so that a record has few parts.
const SMALL_FILE_BYTES: usize = 16 << 10;

/// Rewrites JPEGs while they are packed.
#[derive(Debug)]
pub(super) struct JpegRewriter {
    pub(super) jpegs: Jpegs,
    pub(super) packing: PackingMemory,
}

impl JpegRewriter {
    pub(super) fn new(jpegs: Jpegs) -> Self {
        Self { jpegs, packing: PackingMemory::default() }
    }

    /// Returns whether JPEGs are rewritten at all.
    pub(super) fn rewrites(&self) -> bool {
        self.jpegs != Jpegs::AsTheyAre
    }

    /// Returns how often a file is in memory: twice while it is rewritten.
    pub(super) fn copies(&self) -> u64 {
        if self.rewrites() { 2 } else { 1 }
    }
}

pub(super) enum FieldContent {
    Memory(Vec<u8>),
    File {
        place: FilePlace,
        bytes: u64,
    },
    /// A video that is coded anew.
    Video {
        place: FilePlace,
        bytes: u64,
    },
}

/// The members of a record, as they are written to the tar.
pub(super) struct Members {
    pub(super) parts: Vec<MemberPart>,
    /// Bytes of all parts.
    pub(super) bytes: u64,
    /// Counts of its JPEGs, if they are rewritten.
    pub(super) jpegs: JpegTally,
    pub(super) tables: Vec<SegmentsOf>,
    /// The JPEGs that are too long to be rewritten.
    long_jpegs: Vec<PathBuf>,
    notes: Vec<String>,
    /// Memory and files that are held until the parts are written.
    _memory: Arc<Memory>,
    _coded: Vec<CodedVideo>,
}

impl Members {
    pub(super) fn new(
        parts: Vec<MemberPart>,
        (bytes, jpegs, tables): (u64, JpegTally, Vec<SegmentsOf>),
        (long_jpegs, notes): (Vec<PathBuf>, Vec<String>),
        (memory, coded): (Arc<Memory>, Vec<CodedVideo>),
    ) -> Self {
        Self { parts, bytes, jpegs, tables, long_jpegs, notes, _memory: memory, _coded: coded }
    }

    /// Returns a note for each JPEG that is too long to be rewritten, and each video that was not coded anew.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        let of_jpegs = self.long_jpegs.iter().map(|path| {
            let (path, mib) = (path.display(), MAX_RECORD_BYTES >> 20);
            let why = format!("of each record at most {mib} MiB are in memory");
            format!("`{path}` was packed as it is and not rewritten: {why}")
        });
        of_jpegs.chain(self.notes.iter().cloned())
    }
}

/// A part of the bytes of members.
pub(super) enum MemberPart {
    Bytes(Bytes),
    /// The content of a file, which has this size.
    File {
        place: FilePlace,
        bytes: u64,
    },
}

/// Writes the members of one record.
pub(super) struct MemberWriter {
    pub(super) key: String,
    parts: Vec<MemberPart>,
    /// The bytes after the last part.
    open: Vec<u8>,
    bytes: u64,
    fields: u32,
    jpegs: JpegTally,
    tables: Vec<SegmentsOf>,
    coded: Vec<CodedVideo>,
    notes: Vec<String>,
}

impl MemberWriter {
    pub(super) fn new(key: String) -> Self {
        let (jpegs, tables) = (JpegTally::default(), Vec::new());
        let (coded, notes) = (Vec::new(), Vec::new());
        Self { key, parts: Vec::new(), open: Vec::new(), bytes: 0, fields: 0, jpegs, tables, coded, notes }
    }

    /// Appends a video, coded anew if it can be.
    pub(super) fn video(
        &mut self,
        name: &str,
        place: FilePlace,
        bytes: u64,
        coder: &VideoCoder,
    ) -> Result<(), DatasetError> {
        match coder.code(&place, bytes)? {
            Ok(video) => {
                self.jpegs.coded_videos.add(Growth::of_video(bytes, video.bytes));
                self.append(name, FieldContent::File { place: video.place(), bytes: video.bytes });
                self.coded.push(video);
            }
            Err(problem) => {
                self.notes.push(format!("`{place}` was packed as it is and not coded anew: {problem}"));
                self.append(name, FieldContent::File { place, bytes });
            }
        }
        Ok(())
    }

    /// Appends a field, rewritten if it is a picture that can be.
    pub(super) fn picture(&mut self, name: &str, content: Vec<u8>, jpegs: &JpegRewriter) {
        match jpegs.jpegs {
            Jpegs::AsTheyAre => self.append(name, FieldContent::Memory(content)),
            Jpegs::CropReady => self.crop_ready(name, content),
            Jpegs::Scalable => self.scalable(name, content, &jpegs.packing),
        }
    }

    fn scalable(&mut self, name: &str, content: Vec<u8>, memory: &PackingMemory) {
        if !is_jpeg(&content) {
            return self.append(name, FieldContent::Memory(content));
        }
        match scalable(&content, memory) {
            Ok(packed) => {
                self.jpegs.scalable.add(Growth::of(content.len(), packed.len(), None));
                drop(content);
                self.append(name, FieldContent::Memory(packed));
            }
            Err(why) => {
                self.jpegs.stays(why, 1);
                self.append(name, FieldContent::Memory(content));
            }
        }
    }

    fn crop_ready(&mut self, name: &str, content: Vec<u8>) {
        let Some(CropReady { picture, segments }) = crop_ready(&content) else {
            return self.append(name, FieldContent::Memory(content));
        };
        let table_entries = segments.as_ref().map(|(_, lengths)| lengths.len());
        self.jpegs.crop_ready.add(Growth::of(content.len(), picture.len(), table_entries));
        drop(content);
        if let Some((step, lengths)) = segments {
            self.tables.push(SegmentsOf { key: self.key.clone(), field: self.fields, step, lengths });
        }
        self.append(name, FieldContent::Memory(picture));
    }

    pub(super) fn append(&mut self, name: &str, content: FieldContent) {
        let path = format!("{}.{name}", self.key);
        let bytes = match &content {
            FieldContent::Memory(content) => content.len() as u64,
            FieldContent::File { bytes, .. } | FieldContent::Video { bytes, .. } => *bytes,
        };
        append_member_header(&mut self.open, &path, bytes);
        match content {
            FieldContent::Memory(content) if content.len() <= SMALL_FILE_BYTES => self.open.extend_from_slice(&content),
            FieldContent::Memory(content) => self.part(MemberPart::Bytes(content.into()), bytes),
            FieldContent::File { place, bytes } | FieldContent::Video { place, bytes } => {
                self.part(MemberPart::File { place, bytes }, bytes);
            }
        }
        self.open.resize(self.open.len() + padding_bytes(bytes) as usize, 0);
        self.fields += 1;
    }

    fn part(&mut self, part: MemberPart, bytes: u64) {
        self.close_part();
        self.bytes += bytes;
        self.parts.push(part);
    }

    fn close_part(&mut self) {
        if !self.open.is_empty() {
            self.bytes += self.open.len() as u64;
            self.parts.push(MemberPart::Bytes(std::mem::take(&mut self.open).into()));
        }
    }

    pub(super) fn finish(mut self, long_jpegs: Vec<PathBuf>, rewriter: &JpegRewriter, memory: Arc<Memory>) -> Members {
        self.close_part();
        if rewriter.jpegs == Jpegs::Scalable {
            self.jpegs.stays(JpegAsItIs::TooLarge, long_jpegs.len() as u64);
        }
        let Self { parts, bytes, jpegs, tables, coded, notes, .. } = self;
        Members::new(parts, (bytes, jpegs, tables), (long_jpegs, notes), (memory, coded))
    }
}
