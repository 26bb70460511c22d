//! The head of a WAV file: RIFF, its variants RF64 and BW64 for more than 4 GiB, and Sony's Wave64.
//!
//! Sizes that recorders left open or that are beyond the end of the file are read as `libsndfile` reads them: the samples
//! go to the end of the file.

use crate::{MediaError, PcmSample, Track, input::Input};

/// More chunks before the samples than any program writes.
const MAX_CHUNKS: u32 = 4096;
/// The end of the identifiers of Wave64 that begin with `riff`, and of those that begin with other words.
const RIFF_GUID: [u8; 12] = *b"\x2e\x91\xcf\x11\xa5\xd6\x28\xdb\x04\xc1\x00\x00";
const CHUNK_GUID: [u8; 12] = *b"\xf3\xac\xd3\x11\x8c\xd1\x00\xc0\x4f\x8e\xdb\x8a";
/// The end of a sub-format that begins with a format's number.
const SUBFORMAT_GUID: [u8; 14] = *b"\x00\x00\x00\x00\x10\x00\x80\x00\x00\xaa\x00\x38\x9b\x71";

/// Reads the chunks of a WAV file up to its samples.
#[derive(Clone, Debug)]
pub(crate) struct WavHead {
    container: Container,
    /// Whether the size of the whole file was left open.
    is_open: bool,
    chunks: u32,
    /// Bytes of the samples, as the chunk `ds64` says it.
    data_bytes: Option<u64>,
    format: Option<WavFormat>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Container {
    Riff,
    Rf64,
    Wave64,
}

#[derive(Clone, Copy, Debug)]
struct WavFormat {
    sample: PcmSample,
    rate: u64,
    channels: u64,
}

impl WavHead {
    /// Returns a reader if a file with these first bytes is a WAV file.
    pub(crate) fn recognise(begins: &[u8]) -> Option<Self> {
        let container = match begins {
            [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Container::Riff,
            [b'R', b'F', b'6', b'4', _, _, _, _, b'W', b'A', b'V', b'E', ..]
            | [b'B', b'W', b'6', b'4', _, _, _, _, b'W', b'A', b'V', b'E', ..] => Container::Rf64,
            [b'r', b'i', b'f', b'f', guid @ ..] if *guid == RIFF_GUID => Container::Wave64,
            _ => return None,
        };
        // Without chunks, or with as many bytes as fit: a program that stopped before it closed the file.
        let is_open = matches!(begins[4..8], [0 | 8, 0, 0, 0] | [0xff, 0xff, 0xff, 0xff]);
        Some(Self { container, is_open, chunks: 0, data_bytes: None, format: None })
    }

    /// Reads what is there; returns the track when the samples begin.
    pub(crate) fn read(&mut self, input: &mut Input<'_, '_>) -> Result<Option<Track>, MediaError> {
        if self.chunks == 0 {
            input.skip(if self.container == Container::Wave64 { 40 } else { 12 });
            self.chunks = 1;
        }
        loop {
            let Some((name, size)) = self.chunk(input)? else { return Ok(None) };
            match (&name, self.container) {
                (b"data", _) => return self.track(size, input).map(Some),
                (b"ds64", Container::Rf64) if size >= 16 => {
                    let Some(sizes) = input.peek(8 + 16, "its chunk `ds64`")? else { return Ok(None) };
                    self.data_bytes = sizes.get(16..24).map(little_endian);
                }
                (b"fmt ", _) => {
                    let header = self.header_bytes();
                    let Some(chunk) = input.peek(header + size.min(40), "its chunk `fmt `")? else { return Ok(None) };
                    self.format = Some(WavFormat::read(&chunk[usize::try_from(header).expect("small")..], input)?);
                }
                _ => {}
            }
            self.chunks += 1;
            if self.chunks > MAX_CHUNKS {
                return Err(input.malformed("more than 4,096 chunks come before the samples"));
            }
            let align = if self.container == Container::Wave64 { 8 } else { 2 };
            let next = self.header_bytes().saturating_add(size).checked_next_multiple_of(align);
            input.skip(next.unwrap_or(u64::MAX));
        }
    }

    const fn header_bytes(&self) -> u64 {
        if matches!(self.container, Container::Wave64) { 24 } else { 8 }
    }

    /// Returns the name of the next chunk, and the bytes after its header.
    fn chunk(&self, input: &mut Input<'_, '_>) -> Result<Option<([u8; 4], u64)>, MediaError> {
        let header = self.header_bytes();
        let Some(bytes) = input.peek(header, "its chunks: none has samples")? else { return Ok(None) };
        let Some((name, rest)) = bytes.split_first_chunk() else { return Ok(None) };
        if self.container != Container::Wave64 {
            return Ok(Some((*name, little_endian(rest))));
        }
        let (guid, size) = rest.split_at(12);
        // A chunk that is not one of the format's own has another name.
        let name = if *guid == CHUNK_GUID { *name } else { *b"????" };
        match little_endian(size).checked_sub(header) {
            Some(size) => Ok(Some((name, size))),
            None => Err(input.malformed("a chunk is shorter than its header")),
        }
    }

    fn track(&self, size: u64, input: &Input<'_, '_>) -> Result<Track, MediaError> {
        let Some(WavFormat { sample, rate, channels }) = self.format else {
            return Err(input.malformed("the samples come before the chunk `fmt `"));
        };
        let start = input.at().saturating_add(self.header_bytes()).min(input.file_bytes());
        let size = match (self.container, size) {
            (Container::Rf64, 0xffff_ffff) => self.data_bytes.unwrap_or(u64::MAX),
            // What a recorder writes first, and replaces when it closes the file.
            (Container::Riff, 0) if self.is_open => u64::MAX,
            (_, size) => size,
        };
        Track::of_samples(sample, (rate, channels), start..start.saturating_add(size), input)
    }
}

impl WavFormat {
    /// Reads the chunk `fmt `.
    fn read(chunk: &[u8], input: &Input<'_, '_>) -> Result<Self, MediaError> {
        let number = |range: std::ops::Range<usize>| chunk.get(range).map(little_endian);
        let numbers = (number(0..2), number(2..4), number(4..8), number(12..14), number(14..16));
        let (Some(mut tag), Some(channels), Some(rate), Some(frame_bytes), Some(bits)) = numbers else {
            return Err(input.malformed("the chunk `fmt ` has fewer than 16 bytes"));
        };
        if tag == 0xfffe {
            tag = match chunk.get(24..40) {
                Some(format) if format[2..] == SUBFORMAT_GUID => little_endian(&format[..2]),
                _ => return Err(MediaError::Unsupported { what: "samples of an unknown sub-format".to_owned() }),
            };
        }
        // Samples of 12 or 20 bits lie in the upper bits of 2 or 3 bytes.
        let width = bits.div_ceil(8);
        if frame_bytes != 0 && frame_bytes != channels * width {
            return Err(input.malformed("a frame has another size than its samples together"));
        }
        let sample = match (tag, width) {
            (1, 1) => PcmSample::U8,
            (1, 2) => PcmSample::I16,
            (1, 3) => PcmSample::I24,
            (1, 4) => PcmSample::I32,
            (3, 4) => PcmSample::F32,
            (3, 8) => PcmSample::F64,
            (6, 1) => PcmSample::ALaw,
            (7, 1) => PcmSample::MuLaw,
            _ => {
                let codec = match tag {
                    1 => "whole numbers",
                    2 => "Microsoft's ADPCM",
                    3 => "floating-point numbers",
                    6 => "A-law",
                    7 => "mu-law",
                    0x11 => "IMA ADPCM",
                    0x31 => "GSM 6.10",
                    0x40 | 0x45 | 0x64 | 0x65 => "G.72x ADPCM",
                    0x50 | 0x55 => "MPEG",
                    _ => return Err(MediaError::Unsupported { what: format!("samples of format {tag:#06x}") }),
                };
                let what = format!("samples of {bits} bits in the format {tag:#06x} ({codec})");
                return Err(MediaError::Unsupported { what });
            }
        };
        Ok(Self { sample, rate, channels })
    }
}

/// Returns the number in at most eight bytes.
fn little_endian(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, byte| number << 8 | u64::from(*byte))
}
