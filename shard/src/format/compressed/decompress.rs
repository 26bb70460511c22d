//! Decompresses objects, never into more bytes than the caller allows.

use std::io::{self, BufRead, Read};

use bytes::Bytes;

use super::{Compressed, Compression, CompressionError};

/// Bytes that are read at once from a decompressor.
const CHUNK_BYTES: usize = 64 << 10;
/// The largest window of zstd as the binary logarithm of its bytes: that of `zstd --long=31`.
const MAX_ZSTD_WINDOW_LOG: u32 = 31;
/// Upper limit of the bytes that an element of a snappy block becomes, for each byte of the element.
const MAX_SNAPPY_RATIO: usize = 64;

impl Compressed {
    /// Returns the shard that the object decompresses to. The object's bytes come in `pieces`.
    ///
    /// # Errors
    /// If the object is another than was indexed, is damaged, or decompresses to another number of bytes.
    pub fn decompress(&self, pieces: &[Bytes]) -> Result<Bytes, CompressionError> {
        if let Some(checksum) = &self.checksum {
            let mut hasher = checksum.hasher();
            pieces.iter().for_each(|piece| hasher.update(piece));
            hasher.finish().map_err(CompressionError::Checksum)?;
        }
        let mut shard = Vec::new();
        self.compression.decompress(PiecesReader::new(pieces), self.shard_bytes, &mut shard)?;
        match shard.len() as u64 {
            bytes if bytes == self.shard_bytes => Ok(shard.into()),
            _ => Err(CompressionError::OtherSize { limit: self.shard_bytes, is_more: false }),
        }
    }
}

impl Compression {
    /// Decompresses all of `source` into `out`, which is empty, up to `max_bytes`.
    pub(in crate::format) fn decompress(
        self,
        mut source: impl BufRead + Send,
        max_bytes: u64,
        out: &mut Vec<u8>,
    ) -> Result<(), CompressionError> {
        let damaged = |problem: &dyn std::fmt::Display| CompressionError::Damaged {
            compression: self,
            problem: problem.to_string(),
        };
        if self == Self::Snappy {
            let mut compressed = Vec::new();
            source.read_to_end(&mut compressed).map_err(|error| damaged(&error))?;
            let bytes = snap::raw::decompress_len(&compressed).map_err(|error| damaged(&error))?;
            if bytes as u64 > max_bytes {
                return Err(CompressionError::OtherSize { limit: max_bytes, is_more: true });
            }
            if bytes / MAX_SNAPPY_RATIO > compressed.len() {
                return Err(damaged(&"it claims more bytes than it can hold"));
            }
            *out = snap::raw::Decoder::new().decompress_vec(&compressed).map_err(|error| damaged(&error))?;
            return Ok(());
        }
        let mut decompressor = Decompressor::new(self, source).map_err(|error| damaged(&error))?;
        loop {
            let start = out.len();
            let room = usize::try_from(max_bytes - start as u64).unwrap_or(usize::MAX);
            if room == 0 {
                return match decompressor.read(&mut [0]).map_err(|error| damaged(&error))? {
                    0 => Ok(()),
                    _ => Err(CompressionError::OtherSize { limit: max_bytes, is_more: true }),
                };
            }
            // The buffer grows with the bytes that arrive, whatever size an index claims.
            out.resize(start + room.min(CHUNK_BYTES.max(start)), 0);
            let read = decompressor.read(&mut out[start..]).map_err(|error| damaged(&error))?;
            out.truncate(start + read);
            if read == 0 {
                return Ok(());
            }
        }
    }
}

/// Decompresses a stream of bytes.
pub struct Decompressor<'s>(Box<dyn Read + Send + 's>);

impl<'s> Decompressor<'s> {
    /// Begins to decompress `source`. Refuses snappy, which has no streams.
    ///
    /// # Errors
    /// If the decompressor cannot be made.
    pub fn new<S: BufRead + Send + 's>(compression: Compression, source: S) -> io::Result<Self> {
        Ok(Self(match compression {
            Compression::Gzip => Box::new(GzipMembers::new(source)),
            Compression::Zlib => Box::new(flate2::bufread::ZlibDecoder::new(source)),
            Compression::Zstd => {
                let mut decoder = zstd::stream::read::Decoder::with_buffer(source)?;
                // The window takes memory only as bytes come, and their number has an upper limit.
                decoder.window_log_max(MAX_ZSTD_WINDOW_LOG)?;
                Box::new(decoder)
            }
            Compression::Brotli => Box::new(brotli_decompressor::Decompressor::new(source, CHUNK_BYTES)),
            Compression::Bzip2 => Box::new(bzip2::bufread::MultiBzDecoder::new(source)),
            Compression::Snappy => return Err(io::ErrorKind::Unsupported.into()),
        }))
    }
}

impl Read for Decompressor<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        self.0.read(out)
    }
}

/// The members of a gzip stream. Like gzip, it skips zeros after the last member: they pad the blocks of tapes and
/// devices.
struct GzipMembers<S> {
    /// The member that is read; `None` at the end.
    member: Option<flate2::bufread::GzDecoder<S>>,
}

impl<S: BufRead> GzipMembers<S> {
    fn new(source: S) -> Self {
        Self { member: Some(flate2::bufread::GzDecoder::new(source)) }
    }
}

impl<S: BufRead> Read for GzipMembers<S> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(member) = &mut self.member {
            let read = member.read(out)?;
            if read > 0 || out.is_empty() {
                return Ok(read);
            }
            let mut source = self.member.take().expect("it is there").into_inner();
            let mut has_zeros = false;
            let next = loop {
                let bytes = source.fill_buf()?;
                match bytes.iter().position(|byte| *byte != 0) {
                    Some(zeros) => {
                        has_zeros |= zeros > 0;
                        source.consume(zeros);
                        break true;
                    }
                    None if bytes.is_empty() => break false,
                    None => {
                        has_zeros = true;
                        let zeros = bytes.len();
                        source.consume(zeros);
                    }
                }
            };
            if next && has_zeros {
                return Err(io::Error::other("bytes follow the zeros behind its end"));
            }
            self.member = next.then(|| flate2::bufread::GzDecoder::new(source));
        }
        Ok(0)
    }
}

/// Pieces of bytes, read one after the other.
struct PiecesReader<'p> {
    pieces: &'p [Bytes],
    at: usize,
}

impl<'p> PiecesReader<'p> {
    fn new(pieces: &'p [Bytes]) -> Self {
        Self { pieces, at: 0 }
    }
}

impl Read for PiecesReader<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.fill_buf()?.read(out)?;
        self.consume(count);
        Ok(count)
    }
}

impl BufRead for PiecesReader<'_> {
    fn fill_buf(&mut self) -> io::Result<&[u8]> {
        while let Some((first, rest)) = self.pieces.split_first() {
            if self.at < first.len() {
                return Ok(&first[self.at..]);
            }
            (self.pieces, self.at) = (rest, 0);
        }
        Ok(&[])
    }

    fn consume(&mut self, bytes: usize) {
        self.at += bytes;
    }
}
