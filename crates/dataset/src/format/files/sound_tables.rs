//! The tables of long sounds, which say where each part of one lies: a worker then reads the bytes of a segment alone.
//!
//! Samples of WAV lie side by side, and the head of a file says where. Of other files all packets have to be found, which reads the
//! whole file once; that is done where the rows of a table say that samples are parts of it.

use std::collections::{HashMap, HashSet};

use bytes::Bytes;
use futures::{
    StreamExt, TryStreamExt,
    stream::{self, BoxStream},
};
use spdl_media::{HeadReader, SoundCodec, encode_pcm_table, encode_sound_table};
use spdl_shard::store::DatasetStore;

use super::records::is_sound_file;
use crate::{DatasetError, Listing, format::footer_files::FooterFile};

/// Sounds of at least this many bytes get a table. Shorter ones are read whole: a second request costs as much.
const LONG_SOUND_BYTES: u64 = 4 << 20;
/// Sounds of more bytes are not read whole when they are indexed, as they are in memory for that: 10 hours of FLAC of 16 kHz.
const MAX_SOUND_BYTES: u64 = 1 << 30;
/// Number of sounds that are read at once. When raised, indexing is faster from a store, and takes more memory.
const READS_AT_ONCE: usize = 2;
/// Number of heads that are read at once.
const HEADS_AT_ONCE: usize = 16;

/// The tables of long sounds, by the numbers of files in a listing, in their order.
pub(super) struct SoundTables<'s> {
    /// The files whose tables are not read so far.
    left: HashSet<usize>,
    tables: BoxStream<'s, Result<(usize, Option<Bytes>), DatasetError>>,
    /// Those that were read before their records came.
    early: HashMap<usize, Option<Bytes>>,
}

impl<'s> SoundTables<'s> {
    /// The tables of the long sounds of a listing; `samples` returns how many samples a file makes.
    pub(super) fn new(from: &'s DatasetStore, files: &Listing, samples: impl Fn(&str) -> usize) -> Self {
        let mut wanted = Vec::new();
        for (number, file) in files.iter().enumerate() {
            if file.bytes < LONG_SOUND_BYTES || !is_sound_file(file.name) {
                continue;
            }
            let samples = samples(file.name);
            if samples > 0 {
                wanted.push((number, FooterFile::new(from, &file), samples > 1 && file.bytes <= MAX_SOUND_BYTES));
            }
        }
        let left = wanted.iter().map(|(number, ..)| *number).collect();
        let at_once =
            if wanted.iter().any(|(.., is_read_whole)| *is_read_whole) { READS_AT_ONCE } else { HEADS_AT_ONCE };
        let read = |(number, file, is_read_whole)| async move { Ok((number, read_table(&file, is_read_whole).await?)) };
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

/// Reads the table of a sound; `None` if it is none, or has to be read whole for its segments.
async fn read_table(file: &FooterFile, is_read_whole: bool) -> Result<Option<Bytes>, DatasetError> {
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
    if matches!(track.codec, SoundCodec::Pcm(_)) {
        return Ok(encode_pcm_table(&track).map(Bytes::from));
    }
    if !is_read_whole {
        return Ok(None);
    }
    let bytes = file.read(0..file.bytes()).await?;
    let made = tokio::task::spawn_blocking(move || encode_sound_table(&bytes)).await;
    Ok(made.ok().and_then(|table| table.ok()?).map(Bytes::from))
}
