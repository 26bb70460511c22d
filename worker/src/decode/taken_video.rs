//! The frames of a video that a sample has, and the packets that decoding them takes.

use std::{borrow::Cow, sync::Arc};

use spdl_frames::PacketBytes;
use spdl_job::{ClipFrames, ShownTimes};
use spdl_media::{OpenVideo, VideoBlocks, VideoBytes, VideoTrack, is_reference};
use spdl_pixels::PictureLimits;

use crate::decode::{
    SampleKey,
    cause::{BadSampleProblem, reason},
    read_video::{ReadVideo, SeriesFrames},
    sample_clip::SampleClip,
};

const NANOS_PER_SECOND: i128 = 1_000_000_000;

/// A video, and which of its frames are taken.
pub(super) struct TakenVideo {
    pub(super) track: Arc<VideoTrack>,
    /// The packets: all, or those near the frames.
    blocks: Arc<VideoBlocks>,
    /// The numbers of the frames, in the order of the value.
    numbers: Vec<u64>,
    /// How many of them, from the first one on, the video has where the clip wants them.
    real: usize,
    /// When the clip begins and ends, in units of the track's time base; nothing if the frames are of no clip.
    span: [i128; 2],
}

/// A packet that is needed.
#[derive(Clone)]
pub(super) struct NeededPacket<'b> {
    /// Its number in the video.
    pub(super) number: u64,
    pub(super) pts: i64,
    pub(super) bytes: Cow<'b, [u8]>,
    /// Whether decoding begins anew at this key frame: nothing that is taken from there on refers to packets before it.
    pub(super) begins_anew: bool,
    /// Whether its frame is taken.
    pub(super) is_wanted: bool,
}

impl NeededPacket<'_> {
    pub(super) fn as_bytes(&self) -> PacketBytes<'_> {
        PacketBytes { pts: self.pts, bytes: &self.bytes, begins_anew: self.begins_anew }
    }
}

impl TakenVideo {
    /// Reads what a file says of a video, and chooses the frames of a clip. Also returns the bytes of its packets.
    pub(super) fn open<'b>(
        clip: &SampleClip<'_>,
        (field, file): (&str, &'b [u8]),
        of: (u64, SampleKey),
        limits: PictureLimits,
    ) -> Result<(Self, VideoBytes<'b>), BadSampleProblem> {
        if file.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let problem = |problem: String| BadSampleProblem::Video { field: field.to_owned(), problem };
        let OpenVideo { video, bytes } = OpenVideo::open(file).map_err(|error| problem(reason(error)))?;
        check_size(&video.track, field, limits)?;
        let blocks = Arc::new(VideoBlocks::of_all(video.packets));
        Ok((Self::choose(clip, field, (&Arc::new(video.track), &blocks), of)?, bytes))
    }

    /// Chooses the frames of a clip of a video of which parts were read.
    pub(super) fn of_read(
        clip: &SampleClip<'_>,
        (field, video): (&str, &ReadVideo),
        of: (u64, SampleKey),
        limits: PictureLimits,
    ) -> Result<Self, BadSampleProblem> {
        check_size(&video.track, field, limits)?;
        Self::choose(clip, field, (&video.track, &video.blocks), of)
    }

    /// Takes the frames of a series.
    pub(super) fn of_series(
        field: &str,
        frames: &SeriesFrames,
        limits: PictureLimits,
    ) -> Result<Self, BadSampleProblem> {
        check_size(&frames.video.track, field, limits)?;
        Ok(Self::of_frames(frames))
    }

    /// Takes the frames of a series, of whatever size they are.
    pub(super) fn of_frames(SeriesFrames { video, numbers }: &SeriesFrames) -> Self {
        let ReadVideo { track, blocks, .. } = video;
        let (numbers, real) = (numbers.clone(), numbers.len());
        Self { track: Arc::clone(track), blocks: Arc::clone(blocks), numbers, real, span: [0, 0] }
    }

    /// Chooses the frames of a clip of a video, of which the blocks are all.
    pub(super) fn choose(
        clip: &SampleClip<'_>,
        field: &str,
        (track, blocks): (&Arc<VideoTrack>, &Arc<VideoBlocks>),
        of: (u64, SampleKey),
    ) -> Result<Self, BadSampleProblem> {
        let begins: Vec<i64> = blocks.begins().collect();
        if begins.is_empty() {
            return Err(BadSampleProblem::Video { field: field.to_owned(), problem: "has no frames".to_owned() });
        }
        let last = blocks.packet_of(begins.len() as u64 - 1).map(|packet| &blocks.packets()[packet]);
        let end = last.map_or(0, |packet| packet.pts + i64::from(packet.duration));
        let is_key =
            |frame: &usize| blocks.packet_of(*frame as u64).is_some_and(|place| blocks.packets()[place].is_key);
        let keys = (!clip.clip.snap.is_exact()).then(|| (0..begins.len()).filter(is_key).collect::<Vec<usize>>());
        let shown = ShownTimes { begins: &begins, end, time_base: track.time_base, keys: keys.as_deref() };
        let frames = clip.frames(field, &shown, of)?;
        let span = clip.clip.span_of(&shown, &frames);
        let ClipFrames { numbers, real } = frames;
        let numbers = numbers.into_iter().map(|frame| frame as u64).collect();
        Ok(Self { track: Arc::clone(track), blocks: Arc::clone(blocks), numbers, real, span })
    }

    /// Chooses the frames of another clip of the same video.
    pub(super) fn choose_other(&self, clip: &SampleClip<'_>, of: (u64, SampleKey)) -> Result<Self, BadSampleProblem> {
        Self::choose(clip, "", (&self.track, &self.blocks), of)
    }

    /// Returns how many frames the sample has.
    pub(super) const fn count(&self) -> usize {
        self.numbers.len()
    }

    /// Returns the numbers of the frames, ascending, each once.
    fn distinct(&self) -> Vec<u64> {
        let mut numbers = self.numbers.clone();
        numbers.sort_unstable();
        numbers.dedup();
        numbers
    }

    /// Returns the places of the packets that decoding the frames takes, as far as the tables say; `None` if the blocks do not have them.
    pub(super) fn needed(&self) -> Option<Vec<usize>> {
        self.blocks.needed(&self.distinct())
    }

    /// Returns when each frame is shown, in units of the track's time base.
    fn times(&self) -> impl Iterator<Item = i64> {
        let time = |frame: &u64| self.blocks.packet_of(*frame).map_or(0, |packet| self.blocks.packets()[packet].pts);
        self.numbers.iter().map(time)
    }

    /// Returns when the clip begins and ends, in nanoseconds from the beginning of the video.
    pub(super) fn span_nanos(&self) -> [i128; 2] {
        let [numerator, denominator] = self.track.time_base.map(i128::from);
        self.span.map(|time| (time * numerator * NANOS_PER_SECOND).div_euclid(denominator))
    }

    /// Returns when the frames are shown, in seconds.
    pub(super) fn seconds(&self) -> impl Iterator<Item = f64> {
        let [numerator, denominator] = self.track.time_base.map(f64::from);
        self.times().map(move |time| time as f64 * numerator / denominator)
    }

    /// Returns for each frame of the clip whether the video has it.
    pub(super) fn mask(&self) -> impl Iterator<Item = bool> {
        (0..self.numbers.len()).map(|nth| nth < self.real)
    }

    /// Returns when the frames are shown that have to be decoded, ascending and without doubles; and the number among them of each frame
    /// of the value, with its place there, ascending.
    pub(super) fn wanted(&self) -> (Vec<i64>, Vec<(usize, usize)>) {
        let mut wanted: Vec<i64> = self.times().collect();
        wanted.sort_unstable();
        wanted.dedup();
        let number = |time: i64| wanted.binary_search(&time).expect("the time of the frame");
        let mut places: Vec<_> = self.times().enumerate().map(|(place, time)| (number(time), place)).collect();
        places.sort_unstable();
        (wanted, places)
    }

    /// Returns the packets that decoding the frames takes, in the order in which they are decoded: not those that no other
    /// picture refers to. `bytes_of` returns the bytes of the packet at a place, if they are there.
    pub(super) fn packets<'b>(
        &self,
        bytes_of: &dyn Fn(usize) -> Option<&'b [u8]>,
    ) -> Result<Vec<NeededPacket<'b>>, String> {
        let Self { track, blocks, .. } = self;
        let numbers = self.distinct();
        let needed = blocks.needed(&numbers).ok_or("has a frame without a key frame before it")?;
        let mut wanted: Vec<usize> = numbers.iter().filter_map(|frame| blocks.packet_of(*frame)).collect();
        wanted.sort_unstable();
        // When the first of the frames from each one on is shown.
        let mut earliest: Vec<i64> = wanted.iter().map(|place| blocks.packets()[*place].pts).collect();
        for nth in (1..earliest.len()).rev() {
            earliest[nth - 1] = earliest[nth - 1].min(earliest[nth]);
        }
        let mut packets = Vec::with_capacity(needed.len());
        for place in needed {
            let packet = &blocks.packets()[place];
            let number = blocks.first_packet() + place as u64;
            let bytes = bytes_of(place).ok_or_else(|| {
                format!("is cut off before packet {number}, or has key frames that are not whole and was read in part")
            })?;
            let (is_wanted, next) = match wanted.binary_search(&place) {
                Ok(nth) => (true, nth),
                Err(next) => (false, next),
            };
            if !is_wanted && is_reference(&track.codec, &track.extra_data, bytes) == Some(false) {
                continue;
            }
            // So a frame does not depend on which others are taken. Pictures behind a key frame that are shown before it need earlier ones.
            let begins_anew = packet.is_key && earliest.get(next).is_none_or(|pts| *pts >= packet.pts);
            let bytes = self.with_prefix(bytes);
            packets.push(NeededPacket { number, pts: packet.pts, bytes, begins_anew, is_wanted });
        }
        Ok(packets)
    }

    /// Returns the bytes of a packet with those that come before each.
    pub(super) fn with_prefix<'b>(&self, bytes: &'b [u8]) -> Cow<'b, [u8]> {
        match &self.track.packet_prefix[..] {
            [] => Cow::Borrowed(bytes),
            prefix => Cow::Owned([prefix, bytes].concat()),
        }
    }

    /// Returns the number of the packet at the first place.
    pub(super) fn first_packet(&self) -> u64 {
        self.blocks.first_packet()
    }

    /// Returns the bytes of the packet at a place of all of the file's packets.
    pub(super) fn packet_of_file<'b>(&self, bytes: &VideoBytes<'b>, place: usize) -> Option<&'b [u8]> {
        bytes.packet(place, &self.blocks.packets()[place])
    }
}

/// Checks the size that a track has.
fn check_size(track: &VideoTrack, field: &str, limits: PictureLimits) -> Result<(), BadSampleProblem> {
    let problem = |problem: String| Err(BadSampleProblem::Video { field: field.to_owned(), problem });
    let [width, height] = [track.width, track.height];
    let (side_pixels, pixels) = (limits.side_pixels, limits.pixels);
    if width == 0 || height == 0 {
        return problem(format!("is a video of {width}x{height}"));
    }
    if width.max(height) > side_pixels || u64::from(width) * u64::from(height) > pixels {
        return problem(format!(
            "is a video of {width}x{height}; the limits are {side_pixels} a side and {pixels} in all"
        ));
    }
    Ok(())
}
