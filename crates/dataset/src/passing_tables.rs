//! The tables of long sounds and videos in a tar, which are made while its bytes pass: a worker then reads the bytes of a segment or a
//! clip alone.
//!
//! Since all of a tar is read when it is indexed, every long sound in it gets a table, whatever the number of its segments.

use std::{ops::Range, sync::Mutex};

use spdl_media::{HeadReader, VideoReader, encode_pcm_table, encode_sound_table, encode_stored_video};
use spdl_shard::index::Spool;
use spdl_store::{TemporaryError, TemporaryFolder};

use crate::{
    format::{LONG_BYTES, MAX_SOUND_BYTES, is_matroska},
    is_sound,
};

/// Bytes of a field after which its head is read. WAV with a longer one is kept as a whole, as other sounds are.
const HEAD_BYTES: usize = 64 << 10;

/// Held while a whole sound is in memory, which may have a GiB: shards are read at the same time.
static WHOLE_SOUND: Mutex<()> = Mutex::new(());

/// Makes the tables of the fields of a shard.
#[derive(Debug)]
pub(crate) struct PassingTables {
    folder: TemporaryFolder,
    field: Option<PassingField>,
    error: Option<TemporaryError>,
}

/// A field whose bytes pass.
#[derive(Debug)]
struct PassingField {
    bytes: u64,
    is_matroska: bool,
    /// Its first bytes, until its head has been read.
    head: Option<Vec<u8>>,
    content: Spool,
    table: Option<Vec<u8>>,
}

impl PassingTables {
    /// Keeps what passes in `folder` until its table is made.
    pub(crate) fn new(folder: &TemporaryFolder) -> Self {
        Self { folder: folder.clone(), field: None, error: None }
    }

    /// Begins with a field.
    pub(crate) fn begin(&mut self, name: &str, bytes: u64) {
        let suffix = name.rsplit('.').next().unwrap_or_default();
        let is_matroska = is_matroska(suffix);
        let is_long = (LONG_BYTES..=MAX_SOUND_BYTES).contains(&bytes);
        let is_wanted = is_long && (is_matroska || is_sound(suffix));
        self.field = is_wanted.then(|| PassingField {
            bytes,
            is_matroska,
            head: Some(Vec::new()),
            content: Spool::in_folder(&self.folder),
            table: None,
        });
    }

    /// Takes the next bytes of the field that began last.
    pub(crate) fn data(&mut self, data: &[u8]) {
        let Some(field) = &mut self.field else { return };
        match field.take(data) {
            Ok(true) => {}
            Ok(false) => self.field = None,
            Err(error) => self.fail(error),
        }
    }

    /// Ends a field, and returns its table if it has one.
    pub(crate) fn end(&mut self) -> Option<Vec<u8>> {
        let field = self.field.take()?;
        field.end().unwrap_or_else(|error| {
            self.fail(error);
            None
        })
    }

    /// Returns what went wrong since it was asked last.
    pub(crate) fn error(&mut self) -> Option<TemporaryError> {
        self.error.take()
    }

    fn fail(&mut self, error: TemporaryError) {
        self.field = None;
        self.error.get_or_insert(error);
    }
}

impl PassingField {
    /// Takes bytes; returns whether more are needed.
    fn take(&mut self, data: &[u8]) -> Result<bool, TemporaryError> {
        if self.table.is_some() {
            return Ok(true);
        }
        let Some(head) = &mut self.head else {
            self.content.append(data)?;
            return Ok(true);
        };
        head.extend_from_slice(data);
        if head.len() < HEAD_BYTES {
            return Ok(true);
        }
        let head = std::mem::take(head);
        self.head = None;
        if !self.is_matroska {
            match codec_of(&head, self.bytes) {
                PassingHead::Pcm(table) => {
                    self.table = Some(table);
                    return Ok(true);
                }
                PassingHead::Wrong => return Ok(false),
                PassingHead::OfPackets => {}
            }
        }
        self.content.append(&head)?;
        Ok(true)
    }

    fn end(self) -> Result<Option<Vec<u8>>, TemporaryError> {
        if self.table.is_some() || self.content.len() != self.bytes {
            return Ok(self.table);
        }
        if self.is_matroska
            && let Some(table) = self.video_table()?
        {
            return Ok(Some(table));
        }
        let _one_at_a_time = WHOLE_SOUND.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let bytes = read(&self.content, 0..self.bytes)?;
        // Decoding says what is wrong with it.
        Ok(encode_sound_table(&bytes).ok().flatten())
    }

    /// Returns the table of the pictures of Matroska; `None` if there are none, or they cannot be read.
    fn video_table(&self) -> Result<Option<Vec<u8>>, TemporaryError> {
        let mut reader = VideoReader::new(self.bytes);
        loop {
            let wanted = reader.wants();
            if wanted.is_empty() {
                return Ok(None);
            }
            match reader.read(&read(&self.content, wanted)?) {
                Ok(None) if reader.is_pass() => {}
                Ok(Some(video)) if reader.is_pass() => return Ok(encode_stored_video(&video).ok()),
                _ => return Ok(None),
            }
        }
    }
}

/// What the head of a sound tells.
enum PassingHead {
    /// Its samples lie side by side; the table.
    Pcm(Vec<u8>),
    /// All of it has to be read.
    OfPackets,
    /// It is not valid.
    Wrong,
}

/// Reads the head of a sound of so many bytes, which begins with these.
fn codec_of(begins: &[u8], bytes: u64) -> PassingHead {
    let mut reader = HeadReader::new(bytes);
    loop {
        let wanted = reader.wants();
        let place = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
        let Some(part) = begins.get(place(wanted.start)..place(wanted.end)) else { return PassingHead::OfPackets };
        match reader.read(part) {
            Ok(None) => {}
            Ok(Some(track)) => return encode_pcm_table(&track).map_or(PassingHead::OfPackets, PassingHead::Pcm),
            Err(_) => return PassingHead::Wrong,
        }
    }
}

fn read(content: &Spool, range: Range<u64>) -> Result<Vec<u8>, TemporaryError> {
    let mut bytes = vec![0; usize::try_from(range.end - range.start).unwrap_or(usize::MAX)];
    content.read(range.start, &mut bytes)?;
    Ok(bytes)
}
