//! What a table says of a sound, beside the places of its packets.

use std::ops::Range;

use crate::{
    FlacStream, MediaError, PcmSample, SoundCodec, SoundContainer, Track,
    packets::PacketFacts,
    video::{decode_number, encode_number},
};

const VERSION: u64 = 1;
/// The forms of samples, by their numbers in a table from [`FIRST_PCM`] on.
const PCM: [PcmSample; 14] = [
    PcmSample::U8,
    PcmSample::I16,
    PcmSample::I24,
    PcmSample::I32,
    PcmSample::F32,
    PcmSample::F64,
    PcmSample::ALaw,
    PcmSample::MuLaw,
    PcmSample::I8,
    PcmSample::I16Be,
    PcmSample::I24Be,
    PcmSample::I32Be,
    PcmSample::F32Be,
    PcmSample::F64Be,
];
/// The codecs of packets, by their numbers behind that of FLAC.
const CODECS: [SoundCodec; 4] = [SoundCodec::Mp3, SoundCodec::Vorbis, SoundCodec::Opus, SoundCodec::Aac];
const FLAC: u64 = 0;
const FIRST_CODEC: usize = 1;
const FIRST_PCM: usize = 16;
/// The containers, by their numbers.
const CONTAINERS: [SoundContainer; 4] =
    [SoundContainer::Plain, SoundContainer::Ogg, SoundContainer::Mp4, SoundContainer::Matroska];
/// The pairs of a codec and a container whose number is their place here.
const FIRST_FORMS: [[u64; 2]; 15] = [
    [16, 0],
    [17, 0],
    [18, 0],
    [19, 0],
    [20, 0],
    [21, 0],
    [22, 0],
    [23, 0],
    [0, 0],
    [1, 0],
    [2, 1],
    [3, 1],
    [4, 0],
    [4, 2],
    [3, 2],
];
/// The number of the first of all other pairs.
const OTHER_FORMS: u64 = 32;

/// Returns the number of a codec in a container.
fn number_of(form: [u64; 2]) -> u64 {
    let place = FIRST_FORMS.iter().position(|first| *first == form);
    place.map_or(OTHER_FORMS + CONTAINERS.len() as u64 * form[0] + form[1], |place| place as u64)
}

/// Returns the codec and the container of a number; `None` if there are none.
fn form_of(number: u64) -> Option<[u64; 2]> {
    let first = usize::try_from(number).ok().and_then(|number| FIRST_FORMS.get(number));
    let containers = CONTAINERS.len() as u64;
    first.copied().or_else(|| number.checked_sub(OTHER_FORMS).map(|other| [other / containers, other % containers]))
}

/// The most channels of a sound, and the most frames of a packet of FLAC.
const MAX_CHANNELS: u16 = 1024;
const MAX_PACKET_FRAMES: u32 = 1 << 16;

/// What a table says of a sound, beside the places of its packets.
#[derive(Clone, Debug)]
pub(crate) struct SoundFacts {
    /// What the head says, with the number of frames.
    pub(crate) track: Track,
    pub(crate) coding: SoundCoding,
}

/// What decoding takes beside the bytes.
#[derive(Clone, Debug)]
pub(crate) enum SoundCoding {
    /// Samples that lie side by side.
    Pcm(PcmSample),
    /// Packets of FLAC, of which the first one of the file has so many frames.
    Flac { frames_each: u32 },
    /// Packets of other codecs.
    Packets(PacketFacts),
}

impl SoundFacts {
    /// Returns the number of frames.
    pub(crate) fn frames(&self) -> u64 {
        match &self.coding {
            SoundCoding::Packets(PacketFacts { part, .. }) => part.end - part.start,
            _ => self.track.frames.unwrap_or_default(),
        }
    }

    /// Returns where frames of the sound are among all that are decoded.
    pub(crate) fn decoded(&self, frames: &Range<u64>) -> Range<u64> {
        match &self.coding {
            SoundCoding::Packets(PacketFacts { part, .. }) => part.start + frames.start..part.start + frames.end,
            _ => frames.clone(),
        }
    }

    /// Returns the decoded frame from which on bytes are needed for the samples from a decoded frame on, or one before it.
    pub(crate) fn needed_from(&self, frame: u64) -> u64 {
        match &self.coding {
            SoundCoding::Packets(packets) => packets.needed_from(frame),
            _ => frame,
        }
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let Track { codec, container, rate, channels, frames, data } = &self.track;
        let number = match codec {
            SoundCodec::Pcm(sample) => PCM.iter().position(|known| known == sample).map(|nth| (FIRST_PCM + nth) as u64),
            SoundCodec::Flac(_) => Some(FLAC),
            codec => CODECS.iter().position(|known| known == codec).map(|nth| (FIRST_CODEC + nth) as u64),
        };
        let number = number.expect("each form of samples and each codec is in a table");
        let container = CONTAINERS.iter().position(|known| known == container).expect("all are there") as u64;
        let [frames, rate, channels] = [frames.unwrap_or_default(), (*rate).into(), (*channels).into()];
        let of_track = [VERSION, number_of([number, container]), rate, channels, frames, data.start, data.end];
        let mut bytes = Vec::new();
        let mut append = |numbers: &[u64]| numbers.iter().for_each(|number| encode_number(*number, &mut bytes));
        append(&of_track);
        match (&self.coding, codec) {
            (SoundCoding::Flac { frames_each }, SoundCodec::Flac(FlacStream { bits, max_packet_frames })) => {
                append(&[(*bits).into(), (*max_packet_frames).into(), (*frames_each).into()]);
            }
            (SoundCoding::Packets(packets), _) => packets.encode(&mut bytes),
            _ => {}
        }
        bytes
    }

    /// Reads the facts at the beginning of `bytes`.
    ///
    /// # Errors
    /// If there are none.
    pub(crate) fn read(bytes: &mut &[u8]) -> Result<Self, MediaError> {
        Self::read_valid(bytes).ok_or(MediaError::Malformed { byte: 0, problem: "the table of a sound is not valid" })
    }

    fn read_valid(bytes: &mut &[u8]) -> Option<Self> {
        let mut number = || decode_number(bytes);
        let (version, [codec, container]) = (number()?, form_of(number()?)?);
        let (rate, channels, frames) = (number()?, number()?, number()?);
        let data = number()?..number()?;
        let (rate, channels) = (u32::try_from(rate).ok()?, u16::try_from(channels).ok()?);
        if version != VERSION || rate == 0 || !(1..=MAX_CHANNELS).contains(&channels) || data.start > data.end {
            return None;
        }
        let container = *CONTAINERS.get(usize::try_from(container).ok()?)?;
        let mut track = Track { codec: SoundCodec::Mp3, container, rate, channels, frames: Some(frames), data };
        let coding = match usize::try_from(codec).ok()? {
            nth if nth >= FIRST_PCM => {
                let sample = *PCM.get(nth - FIRST_PCM)?;
                track.codec = SoundCodec::Pcm(sample);
                SoundCoding::Pcm(sample)
            }
            _ if codec == FLAC => {
                let bits = u8::try_from(number()?).ok().filter(|bits| (4..=24).contains(bits))?;
                let max_packet_frames = u16::try_from(number()?).ok()?;
                track.codec = SoundCodec::Flac(FlacStream { bits, max_packet_frames });
                let frames_each = u32::try_from(number()?).ok().filter(|frames| *frames <= MAX_PACKET_FRAMES)?;
                SoundCoding::Flac { frames_each }
            }
            nth => {
                track.codec = *CODECS.get(nth - FIRST_CODEC)?;
                SoundCoding::Packets(PacketFacts::read(&track, bytes)?)
            }
        };
        Some(Self { track, coding })
    }
}
