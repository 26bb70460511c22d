//! Fields that are compressed with gzip: those whose names end in `.gz`, as in WebDataset. Their decompressed size is
//! bounded by their column's `max_bytes`, and counts as memory for decoding unless it is small.

use std::io::{self, Read as _};

use bytes::Bytes;
use flate2::bufread::MultiGzDecoder;

use super::cause::BadSampleProblem;

/// Ending of the names of such fields.
const SUFFIX: &str = ".gz";
/// The first bytes of what gzip writes.
const MAGIC: &[u8] = b"\x1f\x8b";
/// Maximum decompressed bytes of a field.
const MAX_BYTES: u64 = 256 << 20;
/// Maximum decompressed bytes of a field that do not count as memory for decoding. Each thread can hold that many for
/// each such field of a sample.
const SMALL_BYTES: usize = 1 << 20;

/// A field that is compressed.
#[derive(Clone, Debug)]
pub(super) enum CompressedField {
    /// Its decompressed bytes.
    Small(Bytes),
    /// The number of its decompressed bytes, and whether a sample counts them as memory that it needs.
    Large { bytes: u64, is_counted: bool },
    /// The reason why it cannot be used.
    Wrong(BadSampleProblem),
}

/// Returns whether a field is compressed, by its name and its first bytes.
pub(crate) fn is_compressed(name: &str, content: &[u8]) -> bool {
    name.ends_with(SUFFIX) && content.starts_with(MAGIC)
}

impl CompressedField {
    /// Decompresses the field `name` if it is small, and only counts its decompressed bytes otherwise. Holds no more
    /// than a small field in memory.
    pub(super) fn open(name: &str, content: &[u8]) -> Self {
        let mut decoder = MultiGzDecoder::new(content);
        let mut small = Vec::new();
        let read = (&mut decoder).take(SMALL_BYTES as u64 + 1).read_to_end(&mut small);
        let counted = match read {
            Ok(bytes) if bytes <= SMALL_BYTES => Ok(bytes as u64),
            Ok(bytes) => {
                small = Vec::new();
                let rest = io::copy(&mut (&mut decoder).take(MAX_BYTES + 1 - bytes as u64), &mut io::sink());
                rest.map(|rest| bytes as u64 + rest)
            }
            Err(error) => Err(error),
        };
        let malformed = |problem| Self::Wrong(BadSampleProblem::Malformed { field: name.to_owned(), problem });
        match counted {
            Err(error) => malformed(format!("does not decompress with gzip: {error}")),
            Ok(bytes) if bytes > MAX_BYTES => malformed(format!("decompresses to more than {} MiB", MAX_BYTES >> 20)),
            Ok(bytes) if bytes <= SMALL_BYTES as u64 => Self::Small(small.into()),
            Ok(bytes) => Self::Large { bytes, is_counted: false },
        }
    }

    /// Returns the decompressed field `name`. For a large one, the caller has to reserve the memory.
    pub(super) fn content(&self, name: &str, compressed: &[u8]) -> Result<Bytes, BadSampleProblem> {
        match self {
            Self::Small(content) => Ok(content.clone()),
            Self::Wrong(problem) => Err(problem.clone()),
            Self::Large { bytes, .. } => {
                let mut content = Vec::with_capacity(usize::try_from(*bytes).expect("at most 256 MiB"));
                let read = MultiGzDecoder::new(compressed).take(*bytes).read_to_end(&mut content);
                read.map(|_| content.into()).map_err(|error| {
                    let problem = format!("does not decompress with gzip: {error}");
                    BadSampleProblem::Malformed { field: name.to_owned(), problem }
                })
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;

    use flate2::{Compression, write::GzEncoder};

    use super::*;

    fn gzip(bytes: &[u8]) -> Vec<u8> {
        let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
        encoder.write_all(bytes).unwrap();
        encoder.finish().unwrap()
    }

    fn opened(file: &[u8]) -> Result<Bytes, String> {
        let field = CompressedField::open("json.gz", file);
        field.content("json.gz", file).map_err(|problem| problem.to_string())
    }

    #[test]
    fn fields_are_compressed_by_their_names_and_their_first_bytes() {
        let file = gzip(b"{}");
        assert!(is_compressed("json.gz", &file) && !is_compressed("json", &file) && !is_compressed("json.gz", b"{}"));
        assert_eq!(opened(&file).unwrap(), "{}");
        let joined = [&file[..], &gzip(b"[]")].concat();
        assert_eq!(opened(&joined).unwrap(), "{}[]");
        let cut = opened(&file[..file.len() - 5]).unwrap_err();
        assert!(cut.contains("does not decompress with gzip"), "{cut}");
    }

    #[test]
    fn large_ones_are_counted_before_there_is_memory_for_them() {
        let content = vec![7; SMALL_BYTES + 1];
        let file = gzip(&content);
        let field = CompressedField::open("json.gz", &file);
        assert!(matches!(field, CompressedField::Large { bytes, .. } if bytes == content.len() as u64), "{field:?}");
        assert_eq!(opened(&file).unwrap(), content);
        assert!(matches!(CompressedField::open("json.gz", &gzip(&content[1..])), CompressedField::Small(_)));
    }

    #[test]
    fn a_bomb_is_refused() {
        let bomb = gzip(&vec![0; (MAX_BYTES + 1) as usize]);
        assert!(bomb.len() < 4 << 20);
        assert_eq!(opened(&bomb).unwrap_err(), "field `json.gz` decompresses to more than 256 MiB");
    }
}
