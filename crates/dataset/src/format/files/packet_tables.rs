//! The tables of long sounds and videos, which say where each part of one lies: a worker then reads the bytes of a segment or a clip
//! alone.
//!
//! Samples of WAV, AIFF, AU and CAF lie side by side, and the head of a file says where. Of other sounds all packets have to be found, which reads the
//! whole file once; that is done where the rows of a table say that samples are parts of it. The tables of MP4 lie in one place, where a
//! worker finds them; those of Matroska lie between the packets, and are found here.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use spdl_media::{HeadReader, VideoReader, encode_pcm_table, encode_sound_table, encode_stored_video};
use spdl_shard::store::DatasetStore;

use super::records::{is_sound_file, last_dot};
use crate::{DatasetError, Listing, format::footer_files::FooterFile};

/// Files of at least this many bytes get a table. Shorter ones are read whole: a second request costs as much.
pub(crate) const LONG_BYTES: u64 = 4 << 20;
/// The extensions of videos, and of sounds like them, whose tables lie between their packets.
const MATROSKA: [&str; 3] = ["mkv", "webm", "mka"];
/// Sounds of more bytes are not read whole when they are indexed, as they are in memory for that: 10 hours of FLAC of 16 kHz.
pub(crate) const MAX_SOUND_BYTES: u64 = 1 << 30;
/// Number of sounds that are read at once. When raised, indexing is faster from a store, and takes more memory.
const READS_AT_ONCE: usize = 2;
/// Number of heads, and of videos, that are read at once: of these a MiB at a time.
const HEADS_AT_ONCE: usize = 16;

/// What is read of a file for its table.
#[derive(Clone, Copy, PartialEq, Eq)]
enum TableSource {
    Head,
    WholeSound,
    /// Pictures, or else sounds if there are several samples of it.
    Video {
        has_segments: bool,
    },
}

/// The tables of long sounds and videos, by the numbers of files in a listing, in their order.
pub(super) struct PacketTables<'s> {
    /// The files whose tables are not read so far.
    left: HashSet<usize>,
    tables: BoxStream<'s, Result<(usize, Option<Bytes>), DatasetError>>,
    /// Those that were read before their records came.
    early: HashMap<usize, Option<Bytes>>,
}

impl<'s> PacketTables<'s> {
    /// The tables of the long sounds and videos of a listing; `samples` returns how many samples a file makes.
    pub(super) fn new(from: &'s DatasetStore, files: &Listing, samples: impl Fn(&str) -> usize) -> Self {
        let mut wanted = Vec::new();
        for (number, file) in files.iter().enumerate() {
            if file.bytes < LONG_BYTES {
                continue;
            }
            let source = match (is_matroska_file(file.name), is_sound_file(file.name), samples(file.name)) {
                (true, _, samples @ 1..) => {
                    TableSource::Video { has_segments: samples > 1 && file.bytes <= MAX_SOUND_BYTES }
                }
                (_, true, 2..) if file.bytes <= MAX_SOUND_BYTES => TableSource::WholeSound,
                (_, true, 1..) => TableSource::Head,
                _ => continue,
            };
            wanted.push((number, FooterFile::new(from, &file), source));
        }
        let left = wanted.iter().map(|(number, ..)| *number).collect();
        let is_whole = |source| matches!(source, TableSource::WholeSound | TableSource::Video { has_segments: true });
        let at_once = if wanted.iter().any(|(.., source)| is_whole(*source)) { READS_AT_ONCE } else { HEADS_AT_ONCE };
        let read = |(number, file, source)| async move {
            let table = match source {
                TableSource::Video { has_segments } => match read_video_table(&file).await? {
                    None if has_segments => read_sound_table(&file, true).await?,
                    table => table,
                },
                source => read_sound_table(&file, source == TableSource::WholeSound).await?,
            };
            Ok((number, table))
        };
        let tables = stream::iter(wanted).map(read).buffered(at_once).boxed();
        Self { left, tables, early: HashMap::new() }
    }

    /// Returns the table of file number `number`, if it has one.
    pub(super) async fn of(&mut self, number: usize) -> Result<Option<Bytes>, DatasetError> {
        // Files come in the order of their records, but for some neighbours.
        while self.left.contains(&number) {
            let Some((read, table)) = self.tables.try_next().await? else { break };
            self.left.remove(&read);
            self.early.insert(read, table);
        }
        Ok(self.early.remove(&number).flatten())
    }
}

/// Returns whether a file with this path is a video whose tables lie between its packets, by its extension.
fn is_matroska_file(path: &str) -> bool {
    last_dot(path).is_some_and(|dot| is_matroska(&path[dot + 1..]))
}

/// Returns whether files with this extension are videos whose tables lie between their packets.
pub(crate) fn is_matroska(extension: &str) -> bool {
    MATROSKA.iter().any(|matroska| extension.eq_ignore_ascii_case(matroska))
}

/// Reads the table of a video in one pass over its file; `None` if it has its tables in one place, or cannot be read.
async fn read_video_table(file: &FooterFile) -> Result<Option<Bytes>, DatasetError> {
    let mut reader = VideoReader::new(file.bytes());
    loop {
        let wanted = reader.wants();
        if wanted.is_empty() {
            return Ok(None);
        }
        match reader.read(&file.read(wanted).await?) {
            Ok(None) if reader.is_pass() => {}
            Ok(Some(video)) if reader.is_pass() => {
                return Ok(encode_stored_video(&video).ok().map(Bytes::from));
            }
            // Decoding says what is wrong with it.
            _ => return Ok(None),
        }
    }
}

/// Reads the table of a sound; `None` if it is none, or has to be read whole for its segments.
async fn read_sound_table(file: &FooterFile, is_read_whole: bool) -> Result<Option<Bytes>, DatasetError> {
    let mut reader = HeadReader::new(file.bytes());
    let track = loop {
        let wanted = reader.wants();
        if wanted.is_empty() {
            return Ok(None);
        }
        match reader.read(&file.read(wanted).await?) {
            Ok(None) => {}
            Ok(Some(track)) => break track,
            // Decoding says what is wrong with it.
            Err(_) => return Ok(None),
        }
    };
    if let Some(table) = encode_pcm_table(&track) {
        return Ok(Some(table.into()));
    }
    if !is_read_whole {
        return Ok(None);
    }
    let bytes = file.read(0..file.bytes()).await?;
    let made = tokio::task::spawn_blocking(move || encode_sound_table(&bytes)).await;
    Ok(made.ok().and_then(|table| table.ok()?).map(Bytes::from))
}
