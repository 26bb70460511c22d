//! Guards against the database library, which may panic on a damaged file. Such a panic becomes an error about the file
//! and is not reported as a panic; and the file itself is only opened once a copy of it in memory has proved sound.

use std::{
    cell::Cell,
    io,
    panic::{AssertUnwindSafe, catch_unwind, set_hook, take_hook},
    sync::Once,
};

use parking_lot::RwLock;
use redb::StorageBackend;

/// How far a copy may grow beyond the size of its file: a damaged length could request any amount.
const MAX_GROWTH_BYTES: u64 = 64 << 20;

static HOOK: Once = Once::new();

thread_local! {
    static IS_GUARDED: Cell<bool> = const { Cell::new(false) };
}

/// The cause in the error about a file on which the library panicked. The panic's own text is about the library's code,
/// so it goes into the debug log.
const INVALID: &str = "its content is invalid";

/// Runs `action` and returns `Err` with the cause if it panics. After that, nothing that `action` changed may be used.
pub(super) fn guarded<T>(action: impl FnOnce() -> T) -> Result<T, String> {
    HOOK.call_once(|| {
        let usual = take_hook();
        set_hook(Box::new(move |panic| {
            if !IS_GUARDED.get() {
                usual(panic);
            }
        }));
    });
    let outer = IS_GUARDED.replace(true);
    let result = catch_unwind(AssertUnwindSafe(action));
    IS_GUARDED.set(outer);
    result.map_err(|panic| {
        let text = panic.downcast_ref::<String>().map(String::as_str).or_else(|| panic.downcast_ref::<&str>().copied());
        tracing::debug!(panic = text, "the database library panicked");
        INVALID.to_owned()
    })
}

/// The bytes of a database file in memory, to test whether it can be read.
#[derive(Debug)]
pub(super) struct Copy {
    bytes: RwLock<Vec<u8>>,
    max_bytes: u64,
}

impl Copy {
    pub(super) fn of(bytes: Vec<u8>) -> Self {
        Self { max_bytes: bytes.len() as u64 + MAX_GROWTH_BYTES, bytes: RwLock::new(bytes) }
    }
}

fn outside() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "it points beyond its end")
}

fn range(offset: u64, length: usize, bytes: &[u8]) -> io::Result<std::ops::Range<usize>> {
    let start = usize::try_from(offset).map_err(|_| outside())?;
    let end = start.checked_add(length).filter(|end| *end <= bytes.len()).ok_or_else(outside)?;
    Ok(start..end)
}

impl StorageBackend for Copy {
    fn len(&self) -> io::Result<u64> {
        Ok(self.bytes.read().len() as u64)
    }

    fn read(&self, offset: u64, out: &mut [u8]) -> io::Result<()> {
        let bytes = self.bytes.read();
        out.copy_from_slice(&bytes[range(offset, out.len(), &bytes)?]);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        if len > self.max_bytes {
            return Err(outside());
        }
        self.bytes.write().resize(usize::try_from(len).map_err(|_| outside())?, 0);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn write(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        let mut bytes = self.bytes.write();
        let range = range(offset, data.len(), &bytes)?;
        bytes[range].copy_from_slice(data);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_quotes_no_panic() {
        assert_eq!(guarded(|| "x".parse::<u32>().unwrap()).unwrap_err(), "its content is invalid");
        assert_eq!(guarded(|| 3), Ok(3));
    }
}
