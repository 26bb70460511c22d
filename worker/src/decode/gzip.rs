//! Fields that are compressed with gzip: those whose names end in `.gz`, as in WebDataset.

use std::io::Read as _;

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;

/// Ending of the names of such fields.
const SUFFIX: &str = ".gz";
/// The first bytes of what gzip writes.
const MAGIC: &[u8] = b"\x1f\x8b";
/// Most bytes that a field becomes.
const MAX_BYTES: u64 = 256 << 20;

/// Returns the content of the field `name`, decompressed if it is compressed by its name and its first bytes.
///
/// # Errors
/// What is wrong with it, as words that follow its name.
pub(super) fn decompressed(name: &str, content: Bytes) -> Result<Bytes, String> {
    if !name.ends_with(SUFFIX) || !content.starts_with(MAGIC) {
        return Ok(content);
    }
    let mut out = Vec::new();
    let read = MultiGzDecoder::new(&*content).take(MAX_BYTES + 1).read_to_end(&mut out);
    read.map_err(|error| format!("does not decompress with gzip: {error}"))?;
    if out.len() as u64 > MAX_BYTES {
        return Err(format!("decompresses to more than {} MiB", MAX_BYTES >> 20));
    }
    Ok(out.into())
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Bytes {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap().into()
    }

    #[test]
    fn fields_are_decompressed_by_their_names_and_their_first_bytes() {
        let file = gzip(b"{}");
        assert_eq!(decompressed("json.gz", file.clone()).unwrap(), "{}");
        let joined = [&file[..], &gzip(b"[]")].concat();
        assert_eq!(decompressed("json.gz", joined.into()).unwrap(), "{}[]");
        assert_eq!(decompressed("json", file.clone()).unwrap(), file);
        assert_eq!(decompressed("json.gz", Bytes::from_static(b"{}")).unwrap(), "{}");
        let cut = decompressed("json.gz", file.slice(..file.len() - 5)).unwrap_err();
        assert!(cut.contains("does not decompress with gzip"), "{cut}");
    }

    #[test]
    fn a_bomb_is_refused() {
        let bomb = gzip(&vec![0; (MAX_BYTES + 1) as usize]);
        assert!(bomb.len() < 4 << 20);
        assert_eq!(decompressed("x.gz", bomb).unwrap_err(), "decompresses to more than 256 MiB");
    }
}
