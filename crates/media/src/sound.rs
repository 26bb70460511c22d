//! A sound file in memory, and the decoding of its frames.

use std::{borrow::Cow, ops::Range};

use crate::{
    ChannelMix, FlacStream, MediaError, PcmSample, SoundCodec, SoundContainer, Track,
    codec::PacketDecoder,
    flac::{PacketScratch, PacketSearch},
    head::read_track,
    packets::{JoinedPackets, PacketTable},
    pcm,
    sound_table::{SoundCoding, SoundExcerpt, SoundFacts},
};

/// About the samples that are passed on at once: they stay in the processor's nearest cache.
const STEP_SAMPLES: usize = 2048;

/// A sound file in memory.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let file = std::fs::read("speech.flac")?;
/// let mut scratch = spdl_media::SoundScratch::default();
/// let sound = spdl_media::Sound::open(&file, &mut scratch)?;
/// // Two seconds from the fifth second on, as one channel.
/// let rate = u64::from(sound.track().rate);
/// let mut samples = Vec::new();
/// let mix = spdl_media::ChannelMix::Mean;
/// sound.decode(5 * rate..7 * rate, mix, &mut scratch, |decoded| samples.extend_from_slice(decoded))?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct Sound<'b> {
    /// The bytes of its samples or packets: all of them, or those of an excerpt. A copy, if a container has them in parts.
    data: Cow<'b, [u8]>,
    /// The parts of a copy.
    joined: JoinedPackets,
    /// Where these begin in the file, and the length of all that is in memory.
    data_byte: u64,
    memory_bytes: u64,
    /// The frames before them, of sounds without a table.
    data_frame: u64,
    track: Track,
    frames: u64,
    /// The frames of the first packet of FLAC, in an excerpt.
    frames_each: Option<u32>,
    is_excerpt: bool,
    /// The packets of codecs that have some, other than FLAC.
    table: Option<PacketTable<'b>>,
}

/// Buffers that a thread keeps between sounds, to avoid allocations: at most some megabytes.
#[derive(Debug, Default)]
pub struct SoundScratch {
    packet: PacketScratch,
    samples: Vec<f32>,
}

impl<'b> Sound<'b> {
    /// Reads the head of a file, or of an [excerpt](crate::encode_sound_excerpt): that has the frames of its segment alone.
    ///
    /// # Errors
    /// If the file is not a sound that can be decoded, or its head is damaged or cut off.
    pub fn open(bytes: &'b [u8], scratch: &mut SoundScratch) -> Result<Self, MediaError> {
        if let Some(excerpt) = SoundExcerpt::read(bytes) {
            let damaged = MediaError::Malformed { byte: 0, problem: "the excerpt of a sound" };
            return excerpt.map(|excerpt| Self::of_excerpt(excerpt, bytes.len() as u64)).ok_or(damaged);
        }
        let track = read_track(bytes)?;
        let table = PacketTable::open(bytes, &track)?;
        let mut joined = JoinedPackets::of_file(bytes, &track)?;
        let copy = joined.as_mut().map(|joined| std::mem::take(&mut joined.bytes));
        let is_placed = matches!(track.container, SoundContainer::Mp4 | SoundContainer::Matroska);
        // Of such containers, places are those in the file.
        let range = if is_placed { 0..bytes.len() as u64 } else { track.data.clone() };
        let place = |byte: u64| usize::try_from(byte).unwrap_or(usize::MAX);
        let data = bytes.get(place(range.start)..place(range.end)).unwrap_or_default();
        let mut sound = Self {
            data: copy.map_or(Cow::Borrowed(data), Cow::Owned),
            joined: joined.unwrap_or_default(),
            data_byte: range.start,
            memory_bytes: bytes.len() as u64,
            data_frame: 0,
            track,
            frames: 0,
            frames_each: None,
            is_excerpt: false,
            table,
        };
        sound.frames = match (sound.track.frames, sound.track.codec) {
            _ if let Some(table) = &sound.table => table.frames(),
            (Some(frames), _) => frames,
            (None, SoundCodec::Flac(stream)) if !sound.data.is_empty() => {
                let counted = sound.packets(stream)?.count(&mut scratch.packet);
                counted.ok_or_else(|| sound.damaged(0, "no packet of the file can be decoded"))?
            }
            (None, SoundCodec::Pcm(sample)) => {
                let frame_bytes = u64::from(sound.track.channels) * u64::from(sample.bytes());
                sound.data.len() as u64 / frame_bytes
            }
            (None, _) => 0,
        };
        Ok(sound)
    }

    fn of_excerpt(excerpt: SoundExcerpt<'b>, memory_bytes: u64) -> Self {
        let SoundExcerpt { facts, byte, frame, follows_long, part } = excerpt;
        let (frames, SoundFacts { track, coding }) = (facts.frames(), facts);
        let (mut frames_each, mut table) = (None, None);
        let (mut data, mut joined) = (Cow::Borrowed(part.bytes), JoinedPackets::default());
        match coding {
            SoundCoding::Pcm(_) => {}
            SoundCoding::Flac { frames_each: of_first } => {
                frames_each = Some(of_first);
                if track.container == SoundContainer::Ogg {
                    joined = JoinedPackets::of_pages(part.bytes).unwrap_or_default();
                    data = Cow::Owned(std::mem::take(&mut joined.bytes));
                }
            }
            SoundCoding::Packets(facts) => {
                table = PacketTable::of_part((track.codec, track.container), facts, (frame, follows_long), part);
            }
        }
        Self {
            data,
            joined,
            data_byte: byte,
            memory_bytes,
            data_frame: frame,
            track,
            frames,
            frames_each,
            is_excerpt: true,
            table,
        }
    }

    /// Returns what the head says.
    #[must_use]
    pub const fn track(&self) -> &Track {
        &self.track
    }

    /// Returns the number of frames.
    #[must_use]
    pub const fn frames(&self) -> u64 {
        self.frames
    }

    /// Returns the bytes that are kept beside those of the file: of containers that have FLAC or PCM samples in parts, all of these.
    #[must_use]
    pub fn copy_bytes(&self) -> u64 {
        match &self.data {
            Cow::Borrowed(_) => 0,
            Cow::Owned(copy) => copy.len() as u64,
        }
    }

    /// Returns about how many bytes of the file decoding a range of frames reads: their share of all, and all of an excerpt.
    #[must_use]
    pub fn bytes_of(&self, frames: &Range<u64>) -> u64 {
        if self.is_excerpt {
            return self.memory_bytes;
        }
        let wanted = u128::from(frames.end.saturating_sub(frames.start));
        let bytes = self.data.len() as u128 * wanted / u128::from(self.frames.max(1));
        u64::try_from(bytes).unwrap_or(u64::MAX).min(self.memory_bytes)
    }

    /// Decodes a range of frames, and passes them to `write` in their order, some at a time: the samples of a frame lie side
    /// by side, those of full scale are -1 to 1.
    ///
    /// # Errors
    /// If the file has no such frames, is cut off or damaged where they lie, or one is not finite. Earlier frames have then
    /// been written.
    pub fn decode(
        &self,
        frames: Range<u64>,
        mix: ChannelMix,
        scratch: &mut SoundScratch,
        write: impl FnMut(&[f32]),
    ) -> Result<(), MediaError> {
        if frames.start >= frames.end {
            return Ok(());
        }
        if frames.end > self.frames || (self.table.is_none() && frames.start < self.data_frame) {
            return Err(self.ends());
        }
        match self.track.codec {
            SoundCodec::Pcm(sample) => self.decode_pcm(frames, sample, mix, scratch, write),
            SoundCodec::Flac(stream) => self.decode_flac(frames, stream, mix, scratch, write),
            SoundCodec::Mp3 | SoundCodec::Vorbis | SoundCodec::Opus | SoundCodec::Aac => {
                self.decode_packets(frames, mix, scratch, write)
            }
        }
    }

    /// Decodes a range of frames, each channel by itself.
    ///
    /// # Errors
    /// As [`decode`](Self::decode).
    pub fn decode_channels(
        &self,
        frames: Range<u64>,
        mix: ChannelMix,
        scratch: &mut SoundScratch,
    ) -> Result<Vec<Vec<f32>>, MediaError> {
        let count = usize::from(mix.channels(self.track.channels));
        let capacity = usize::try_from(frames.end.saturating_sub(frames.start).min(self.frames)).unwrap_or_default();
        let mut channels: Vec<Vec<f32>> = (0..count).map(|_| Vec::with_capacity(capacity)).collect();
        self.decode(frames, mix, scratch, |samples| match &mut channels[..] {
            [channel] => channel.extend_from_slice(samples),
            channels => {
                for (nth, channel) in channels.iter_mut().enumerate() {
                    channel.extend(samples[nth..].iter().step_by(count));
                }
            }
        })?;
        Ok(channels)
    }

    fn decode_pcm(
        &self,
        frames: Range<u64>,
        sample: PcmSample,
        mix: ChannelMix,
        scratch: &mut SoundScratch,
        mut write: impl FnMut(&[f32]),
    ) -> Result<(), MediaError> {
        let channels = usize::from(self.track.channels);
        let frame_bytes = channels * sample.bytes() as usize;
        let place = |frame: u64| usize::try_from(frame - self.data_frame).ok()?.checked_mul(frame_bytes);
        let bytes = place(frames.start).zip(place(frames.end)).and_then(|(from, to)| self.data.get(from..to));
        let may_be_infinite = sample.is_float();
        let mut frame = frames.start;
        for bytes in bytes.ok_or_else(|| self.ends())?.chunks(self.step_frames() * frame_bytes) {
            scratch.samples.clear();
            pcm::read(sample, bytes, &mut scratch.samples);
            if may_be_infinite && let Some(nth) = scratch.samples.iter().position(|sample| !sample.is_finite()) {
                return Err(MediaError::NotFinite { frame: frame + (nth / channels) as u64 });
            }
            frame += (bytes.len() / frame_bytes) as u64;
            write(mix.mix(&mut scratch.samples, channels));
        }
        Ok(())
    }

    fn decode_flac(
        &self,
        frames: Range<u64>,
        stream: FlacStream,
        mix: ChannelMix,
        SoundScratch { packet: scratch, samples }: &mut SoundScratch,
        mut write: impl FnMut(&[f32]),
    ) -> Result<(), MediaError> {
        let packets = self.packets(stream)?;
        let channels = usize::from(self.track.channels);
        let first_frame = self.data_frame;
        let found = match frames.start {
            start if start == first_frame => None,
            start => packets.find(start),
        };
        let mut byte = found.map_or(0, |place| place.byte);
        let mut next_frame = found.map_or(first_frame, |place| place.start);
        let mut is_sure = byte == 0;
        while next_frame < frames.end {
            let (start, packet_frames, decoded) = match packets.packet(byte) {
                Ok((packet, place)) => (place.start, place.frames, packet.decode(scratch)),
                Err(problem) => (next_frame, 0, Err(problem)),
            };
            let decoded = match decoded {
                Ok(_) if start != next_frame => Err("the packet is not the next one"),
                Ok(decoded) => Ok(decoded),
                Err(problem) => Err(problem.text()),
            };
            let (blocks, bytes) = match decoded {
                Ok(decoded) => decoded,
                // What was found is no packet.
                Err(_) if !is_sure => {
                    (byte, next_frame, is_sure) = (0, first_frame, true);
                    continue;
                }
                Err(problem) => return Err(self.damaged(byte, problem)),
            };
            is_sure = true;
            byte += bytes;
            next_frame += u64::from(packet_frames);
            let within = |frame: u64| usize::try_from(frame.saturating_sub(start)).unwrap_or(usize::MAX);
            let (from, to) = (within(frames.start), within(frames.end).min(packet_frames as usize));
            for from in (from..to).step_by(self.step_frames()) {
                let step = from..to.min(from + self.step_frames());
                // Every sample is written, so that old ones need not be cleared.
                samples.resize(step.len() * channels, 0.0);
                for (nth, block) in blocks.channels().enumerate() {
                    let block = &block[step.clone()];
                    match channels {
                        1 => scaled(block, stream.bits, samples.iter_mut()),
                        _ => scaled(block, stream.bits, samples[nth..].iter_mut().step_by(channels)),
                    }
                }
                write(mix.mix(samples, channels));
            }
        }
        Ok(())
    }

    fn decode_packets(
        &self,
        frames: Range<u64>,
        mix: ChannelMix,
        scratch: &mut SoundScratch,
        mut write: impl FnMut(&[f32]),
    ) -> Result<(), MediaError> {
        let Some(table) = &self.table else { return Err(self.ends()) };
        let channels = usize::from(self.track.channels);
        let mut frame = frames.start;
        self.decode_part(table, table.decoded(frames), &mut scratch.samples, |samples| {
            for step in samples.chunks_mut(self.step_frames() * channels) {
                if let Some(nth) = step.iter().position(|sample| !sample.is_finite()) {
                    return Err(MediaError::NotFinite { frame: frame + (nth / channels) as u64 });
                }
                frame += (step.len() / channels) as u64;
                write(mix.mix(step, channels));
            }
            Ok(())
        })
    }

    /// Decodes packets, and passes on their samples in a range of all frames that are decoded.
    fn decode_part(
        &self,
        table: &PacketTable<'b>,
        frames: Range<u64>,
        samples: &mut Vec<f32>,
        mut write: impl FnMut(&mut [f32]) -> Result<(), MediaError>,
    ) -> Result<(), MediaError> {
        let channels = usize::from(self.track.channels);
        let (mut reader, mut section) = table.reader(frames.start)?;
        let mut behind = reader.clone();
        let mut buffer = Vec::new();
        let new_decoder = |byte| PacketDecoder::new(table.setup()).map_err(|problem| self.damaged(byte, problem));
        let mut decoder = new_decoder(reader.at())?;
        while reader.frame() < frames.end {
            let (start, byte) = (reader.frame(), reader.at());
            if table.section(start) > section {
                section = table.section(start);
                decoder = new_decoder(byte)?;
                behind.pass(table.section_start(section))?;
                let mut before = behind.clone();
                while before.frame() < start
                    && let Some(packet) = before.next(&mut buffer)?
                {
                    // What is wrong with it has been said.
                    _ = decoder.decode(packet.bytes, samples);
                }
            }
            let Some(packet) = reader.next(&mut buffer)? else { return Err(self.ends()) };
            let decoded = decoder.decode(packet.bytes, samples);
            let within = |frame: u64| usize::try_from(frame.saturating_sub(start)).unwrap_or(usize::MAX);
            let (from, to) = (within(frames.start), within(frames.end).min(packet.frames as usize));
            if from >= to {
                // A packet before the range, of which only what it leaves in the decoder counts.
                continue;
            }
            decoded.map_err(|problem| self.damaged(byte, problem))?;
            if samples.len() != packet.frames as usize * channels {
                return Err(self.damaged(byte, "the packet has another number of samples than its header says"));
            }
            write(&mut samples[from * channels..to * channels])?;
        }
        Ok(())
    }

    /// Returns the frames that are passed on at once.
    fn step_frames(&self) -> usize {
        (STEP_SAMPLES / usize::from(self.track.channels)).max(1)
    }

    fn packets(&self, stream: FlacStream) -> Result<PacketSearch<'_, '_>, MediaError> {
        let found = match self.frames_each {
            Some(frames_each) => Ok(PacketSearch::of_part(&self.data, &self.track, stream, frames_each)),
            None => PacketSearch::new(&self.data, &self.track, stream),
        };
        found.map_err(|problem| self.damaged(0, problem.text()))
    }

    const fn ends(&self) -> MediaError {
        MediaError::Truncated { bytes: self.memory_bytes, what: "its samples" }
    }

    fn damaged(&self, byte: usize, problem: &'static str) -> MediaError {
        if !self.joined.parts.is_empty() {
            let byte = self.joined.file_byte(byte);
            return MediaError::Malformed { byte: if self.is_excerpt { self.data_byte + byte } else { byte }, problem };
        }
        MediaError::Malformed { byte: self.data_byte.saturating_add(byte as u64), problem }
    }
}

/// Writes whole numbers of so many bits as numbers from -1 to 1.
#[expect(clippy::cast_precision_loss, reason = "an f32 has all whole numbers of 24 bits")]
fn scaled<'s>(block: &[i32], bits: u8, samples: impl Iterator<Item = &'s mut f32>) {
    let scale = 1.0 / (1_u32 << (bits - 1)) as f32;
    for (sample, value) in samples.zip(block) {
        *sample = *value as f32 * scale;
    }
}
