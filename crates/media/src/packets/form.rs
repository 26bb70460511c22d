//! What tracks of MP4 and Matroska say of their packets.

use super::{
    AAC_PLAN, CodecSetup, OPUS_PLAN, PacketPlan,
    aac::AacForm,
    mp3::plan_of,
    mpeg::Mp3Header,
    opus::{OpusForm, RATE},
    placed::{PacketContent, PlacedPackets},
    vorbis::{VorbisBlocks, rate_and_channels},
};
use crate::{MediaError, PcmSample, SoundCodec, SoundContainer, Track, flac::stream_info};

/// What the packets of a track are.
#[derive(Clone, Debug)]
pub(crate) enum PlacedForm<'b> {
    Aac(AacForm),
    Opus(OpusForm),
    Mp3 {
        rate: u32,
        channels: u16,
    },
    /// The three packets before those of sound.
    Vorbis([&'b [u8]; 3]),
    /// The marker and the metadata.
    Flac(Vec<u8>),
    Pcm {
        sample: PcmSample,
        rate: u32,
        channels: u16,
    },
}

/// How the packets of a track are decoded.
pub(super) struct PlacedSetup<'b> {
    pub(super) packets: PlacedPackets<'b>,
    pub(super) plan: PacketPlan,
    pub(super) setup: CodecSetup,
}

impl<'b> PlacedForm<'b> {
    /// Returns the track of a container; `byte` is where what it says of the sound begins.
    ///
    /// # Errors
    /// If that is not valid.
    pub(crate) fn track(
        &self,
        container: SoundContainer,
        data: std::ops::Range<u64>,
        byte: u64,
    ) -> Result<Track, MediaError> {
        let damaged = |problem| MediaError::Malformed { byte, problem };
        let (codec, rate, channels, frames) = match self {
            Self::Aac(AacForm { rate, channels }) => (SoundCodec::Aac, *rate, *channels, None),
            Self::Opus(form) => (SoundCodec::Opus, RATE, form.channels.into(), None),
            Self::Mp3 { rate, channels } => (SoundCodec::Mp3, *rate, *channels, None),
            Self::Vorbis([first, ..]) => {
                let (rate, channels) = rate_and_channels(first).map_err(damaged)?;
                (SoundCodec::Vorbis, rate, channels, None)
            }
            Self::Flac(head) => {
                let Track { codec, rate, channels, frames, .. } = stream_info(head, byte)?;
                (codec, rate, channels, frames)
            }
            Self::Pcm { sample, rate, channels } => (SoundCodec::Pcm(*sample), *rate, *channels, None),
        };
        if rate == 0 || channels == 0 {
            return Err(damaged("the sound has no sample rate or no channels"));
        }
        Ok(Track { codec, container, rate, channels, frames, data })
    }

    /// Returns the rate of the frames.
    pub(crate) fn rate(&self) -> u32 {
        match self {
            Self::Aac(form) => form.rate,
            Self::Opus(_) => RATE,
            Self::Mp3 { rate, .. } | Self::Pcm { rate, .. } => *rate,
            Self::Vorbis([first, ..]) => rate_and_channels(first).map_or(0, |(rate, _)| rate),
            Self::Flac(head) => stream_info(head, 0).map_or(0, |track| track.rate),
        }
    }

    /// Returns what the packets are.
    ///
    /// # Errors
    /// If the setup of Vorbis is not valid.
    pub(crate) fn content(&self) -> Result<PacketContent, &'static str> {
        Ok(match self {
            Self::Aac(_) => PacketContent::Aac,
            Self::Opus(_) => PacketContent::Opus,
            Self::Mp3 { .. } => PacketContent::Mp3,
            Self::Vorbis([first, _, third]) => PacketContent::Vorbis(VorbisBlocks::read(first, &mut third.to_vec())?),
            Self::Flac(_) | Self::Pcm { .. } => PacketContent::Joined,
        })
    }

    /// Returns how the packets are decoded; `None` of those that are not by others' code.
    pub(super) fn setup(&self, packets: PlacedPackets<'b>) -> Result<Option<PlacedSetup<'b>>, MediaError> {
        let damaged = |problem| MediaError::Malformed { byte: 0, problem };
        let (plan, setup) = match self {
            Self::Aac(form) => (AAC_PLAN, CodecSetup::Aac(*form)),
            Self::Opus(form) => (OPUS_PLAN, CodecSetup::Opus(*form)),
            Self::Mp3 { rate, .. } => {
                let (mut read, mut buffer) = (packets.clone(), Vec::new());
                let (mut first, mut smallest) = (None, None::<Mp3Header>);
                while let Some(packet) = read.next(&mut buffer)? {
                    let header = Mp3Header::read(packet.bytes).expect("its frames have been counted");
                    if header.form != *first.get_or_insert(header.form) || header.form.rate != *rate {
                        let problem = "packets of MP3 have another rate or other channels than those before";
                        return Err(damaged(problem));
                    }
                    smallest = smallest.filter(|smallest| smallest.bytes <= header.bytes).or(Some(header));
                }
                (smallest.map_or(PacketPlan { roll: 0, restart: None }, plan_of), CodecSetup::Mp3)
            }
            Self::Vorbis([first, _, third]) => {
                let mut third = third.to_vec();
                let blocks = VorbisBlocks::read_whole(first, &mut third)?;
                (blocks.plan(), CodecSetup::Vorbis([first, &third[..]].concat()))
            }
            Self::Flac(_) | Self::Pcm { .. } => return Ok(None),
        };
        Ok(Some(PlacedSetup { packets, plan, setup }))
    }
}
