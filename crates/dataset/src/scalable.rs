//! Packs JPEGs as scalable pictures, and restores them.

use std::{
    borrow::Cow,
    sync::{Condvar, Mutex},
};

use serde::{Deserialize, Serialize};
use spdl_jpeg::{
    Error, Jpeg, Limits,
    scalable::{self, ScalablePicture},
};

/// Upper limit of the memory that packing pictures takes, in bytes, on all threads together. A picture that needs more
/// than this stays as it is.
const MAX_PACKING_BYTES: u64 = 96 << 20;

/// Why a JPEG was not packed as a scalable picture, and stays as it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum JpegAsItIs {
    /// It is progressive.
    Progressive,
    /// The decoder of crops does not decode it, for example because it is CMYK.
    Kind,
    /// Its file could not be given back bit for bit.
    Odd,
    /// It would be larger.
    Larger,
    /// It is too large to be packed in memory.
    TooLarge,
    /// It is broken or cut off.
    Broken,
}

impl JpegAsItIs {
    /// Returns the reason in words.
    #[must_use]
    pub const fn text(self) -> &'static str {
        match self {
            Self::Progressive => "progressive",
            Self::Kind => "of a kind that is decoded as a whole, such as CMYK",
            Self::Odd => "with bits that could not be given back",
            Self::Larger => "would be larger",
            Self::TooLarge => "too large to be packed in memory",
            Self::Broken => "broken or cut off",
        }
    }

    fn of(error: &Error) -> Self {
        match error {
            Error::Unsupported(spdl_jpeg::Unsupported::NotRestorable) => Self::Odd,
            Error::Unsupported(_) => Self::Kind,
            Error::TooLarge { .. } => Self::TooLarge,
            _ => Self::Broken,
        }
    }
}

/// The memory that packing takes beside the files, which threads share.
#[derive(Debug, Default)]
pub(super) struct PackingMemory {
    used_bytes: Mutex<u64>,
    freed: Condvar,
}

impl PackingMemory {
    /// Waits until `bytes` are free, and does work that takes them.
    fn with<T>(&self, bytes: u64, work: impl FnOnce() -> T) -> T {
        let used = self.used_bytes.lock().expect("no thread panics with it");
        let is_full = |used: &mut u64| *used + bytes > MAX_PACKING_BYTES;
        *self.freed.wait_while(used, is_full).expect("no thread panics with it") += bytes;
        let _permit = PackingPermit { memory: self, bytes };
        work()
    }
}

/// Memory that is free again when this is dropped.
struct PackingPermit<'m> {
    memory: &'m PackingMemory,
    bytes: u64,
}

impl Drop for PackingPermit<'_> {
    fn drop(&mut self) {
        *self.memory.used_bytes.lock().expect("no thread panics with it") -= self.bytes;
        self.memory.freed.notify_all();
    }
}

/// Returns a JPEG as a scalable picture, or why it stays as it is.
pub(super) fn scalable(picture: &[u8], memory: &PackingMemory) -> Result<Vec<u8>, JpegAsItIs> {
    let limits = Limits::default();
    let jpeg = Jpeg::open(picture, limits).map_err(|error| JpegAsItIs::of(&error))?;
    if jpeg.is_progressive() {
        return Err(JpegAsItIs::Progressive);
    }
    let bytes = scalable::pack_bytes(&jpeg, picture.len() as u64);
    if bytes > MAX_PACKING_BYTES {
        return Err(JpegAsItIs::TooLarge);
    }
    let packed = memory.with(bytes, || scalable::pack(picture, limits)).map_err(|error| JpegAsItIs::of(&error))?;
    if packed.len() > picture.len() { Err(JpegAsItIs::Larger) } else { Ok(packed) }
}

/// Returns whether a field with these first bytes is a scalable picture.
pub(super) fn is_scalable(bytes: &[u8]) -> bool {
    ScalablePicture::is_packed(bytes)
}

/// Returns the file that a field was made of: restored from a scalable picture, otherwise the field itself.
pub(super) fn original(content: &[u8]) -> Result<Cow<'_, [u8]>, Error> {
    if is_scalable(content) {
        return scalable::restore(content, Limits::default()).map(Cow::Owned);
    }
    Ok(Cow::Borrowed(content))
}
