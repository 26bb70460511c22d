//! The kind `video`: chooses frames of a video file, has their packets decoded in another process, and writes each as a picture is
//! written.

use std::borrow::Cow;

use spdl_frames::{
    FrameDecodeError, FrameDecoders, FramePlanes, FrameRequest, PacketBytes, PlaneFormat, PlaneKind, RgbConversion,
};
use spdl_job::{ClipFrames, PicturePlan, ShownTimes, VideoClip, VideoColumn};
use spdl_media::{OpenVideo, Video, VideoBlocks, VideoBytes, VideoColor, VideoRotation, VideoTrack, is_reference};
use spdl_pixels::{Orientation, PictureLimits};
use spdl_shard::format::FieldValue;
use spdl_types::Draw;

use super::{
    ColumnDecoder, ColumnSample, ColumnSetup, DecodeResources, DecodeScratch, FieldTarget,
    image::{ImageColumnDecoder, RgbFrame},
    video_pictures::{self, VideoValue},
};
use crate::{
    decode::{
        SampleKey,
        cause::{BadSampleProblem, reason},
        memory::NeverFits,
        record::SampleRecord,
    },
    frames::NO_PROCESSES,
};

/// The part of a sample from which the clip is drawn; its operations draw from the first one, as those of a picture do.
pub(super) const CLIP_PART: u32 = u32::MAX;
/// The bytes that the planes of a frame take for each pixel at most: three of them with numbers of 16 bits.
const PLANE_BYTES: u64 = 6;
/// Frames have been seen to be larger than their track says by less than so many pixels a side, those of a unit of coding.
const UNIT_PIXELS: u32 = 64;
/// Videos of fewer rows have the colours of standard definition where nothing says which they have.
const HD_ROWS: u32 = 720;
/// Matrices, as ITU-T H.273 counts them.
const BT_709: u16 = 1;
const BT_601: u16 = 6;
/// What leaves a matrix open, or primaries or a transfer.
const UNSPECIFIED: u16 = 2;
/// Planes that are green, blue and red.
const IDENTITY: u16 = 0;

/// Decodes clips of videos to frames of one size.
pub(super) struct VideoDecoder {
    clip: VideoClip,
    each: ImageColumnDecoder,
}

/// A video, and which of its frames are taken.
pub(super) struct TakenVideo {
    track: VideoTrack,
    /// All packets.
    blocks: VideoBlocks,
    /// When each frame of the video is shown, in units of the track's time base.
    begins: Vec<i64>,
    clip: ClipFrames,
}

/// A packet that is needed.
struct NeededPacket<'b> {
    pts: i64,
    bytes: Cow<'b, [u8]>,
    /// Whether packets before it that others refer to are left out.
    begins_anew: bool,
}

impl NeededPacket<'_> {
    fn as_bytes(&self) -> PacketBytes<'_> {
        PacketBytes { pts: self.pts, bytes: &self.bytes, begins_anew: self.begins_anew }
    }
}

/// The frames of a sample while they are written.
struct ClipWriter<'a> {
    decoder: &'a VideoDecoder,
    field: &'a str,
    track: &'a VideoTrack,
    clip: &'a [usize],
    orientation: Orientation,
    resources: &'a DecodeResources,
    scratch: &'a mut DecodeScratch,
    /// The format and colour of the frames so far, and their conversion.
    conversion: Option<(PlaneFormat, VideoColor, RgbConversion)>,
    /// The plan for frames of this stored size.
    plan: Option<([u32; 2], PicturePlan)>,
    /// The bytes that are reserved.
    permitted_bytes: u64,
    out: &'a mut [u8],
}

impl VideoDecoder {
    pub(super) fn new(column: &VideoColumn, setup: &ColumnSetup<'_>) -> Self {
        Self { clip: column.clip, each: ImageColumnDecoder::new(&column.each, setup) }
    }

    /// Plans the operations for frames of this stored size, which are the same for all frames of a clip.
    fn plan(
        &self,
        stored: [u32; 2],
        orientation: Orientation,
        of: (u64, SampleKey),
        (field, limits): (&str, PictureLimits),
        record: &mut SampleRecord<'_>,
    ) -> Result<PicturePlan, BadSampleProblem> {
        let planned = self.each.picture().plan_of_part(orientation.seen(stored), of, 0, record)?;
        if let Some([width, height]) = planned.plan.too_large(limits.pixels) {
            let (field, pixels) = (field.to_owned(), limits.pixels);
            return Err(BadSampleProblem::GrowsTooLarge { field, width, height, pixels });
        }
        Ok(planned.plan.clone())
    }

    /// Returns the bytes that decoding frames of this stored size takes.
    fn memory_bytes(&self, stored: [u32; 2], orientation: Orientation, plan: &PicturePlan) -> u64 {
        let pixels = u64::from(stored[0]) * u64::from(stored[1]);
        pixels * (3 + PLANE_BYTES) + self.each.frame_memory_bytes(stored, orientation, plan)
    }
}

impl TakenVideo {
    /// Reads what a file says of a video, and chooses the frames of a clip. Also returns the bytes of its packets.
    pub(super) fn open<'b>(
        clip: &VideoClip,
        (field, file): (&str, &'b [u8]),
        of: (u64, SampleKey),
        limits: PictureLimits,
    ) -> Result<(Self, VideoBytes<'b>), BadSampleProblem> {
        if file.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let problem = |problem: String| BadSampleProblem::Video { field: field.to_owned(), problem };
        let OpenVideo { video, bytes } = OpenVideo::open(file).map_err(|error| problem(reason(error)))?;
        let [width, height] = [video.track.width, video.track.height];
        let (side_pixels, pixels) = (limits.side_pixels, limits.pixels);
        if width == 0 || height == 0 {
            return Err(problem(format!("is a video of {width}x{height}")));
        }
        if width.max(height) > side_pixels || u64::from(width) * u64::from(height) > pixels {
            return Err(problem(format!(
                "is a video of {width}x{height}; the limits are {side_pixels} a side and {pixels} in all"
            )));
        }
        Ok((Self::choose(clip, field, video, of)?, bytes))
    }

    /// Chooses the frames of a clip.
    fn choose(
        clip: &VideoClip,
        field: &str,
        Video { track, packets, .. }: Video,
        (seed, key): (u64, SampleKey),
    ) -> Result<Self, BadSampleProblem> {
        let blocks = VideoBlocks::of_all(packets);
        let begins: Vec<i64> = blocks.begins().collect();
        if begins.is_empty() {
            return Err(BadSampleProblem::Video { field: field.to_owned(), problem: "has no frames".to_owned() });
        }
        let last = blocks.packet_of(begins.len() as u64 - 1).map(|packet| &blocks.packets()[packet]);
        let end = last.map_or(0, |packet| packet.pts + i64::from(packet.duration));
        let times = ShownTimes { begins: &begins, end, time_base: track.time_base };
        let drawn = || Draw::of_part(seed, key.epoch, key.id.0, CLIP_PART).bits();
        let too_short = || BadSampleProblem::VideoTooShort { field: field.to_owned(), frames: begins.len() };
        let clip = clip.frames_of(&times, drawn).ok_or_else(too_short)?;
        Ok(Self { track, blocks, begins, clip })
    }

    /// Returns the numbers of the frames of the clip, each once.
    fn numbers(&self) -> Vec<u64> {
        let mut numbers: Vec<u64> = self.clip.numbers.iter().map(|frame| *frame as u64).collect();
        numbers.dedup();
        numbers
    }

    /// Returns when the frames of the clip are shown, in seconds.
    pub(super) fn seconds(&self) -> impl Iterator<Item = f64> {
        let [numerator, denominator] = self.track.time_base.map(f64::from);
        self.clip.numbers.iter().map(move |frame| self.begins[*frame] as f64 * numerator / denominator)
    }

    /// Returns for each frame of the clip whether the video has it.
    pub(super) fn mask(&self) -> impl Iterator<Item = bool> {
        (0..self.clip.numbers.len()).map(|nth| nth < self.clip.real)
    }

    /// Returns when the frames are shown that have to be decoded, ascending and without doubles; and for each frame of the clip its
    /// number among them.
    fn wanted(&self) -> (Vec<i64>, Vec<usize>) {
        let times = || self.clip.numbers.iter().map(|frame| self.begins[*frame]);
        let mut wanted: Vec<i64> = times().collect();
        wanted.dedup();
        let places = times().map(|time| wanted.binary_search(&time).expect("the time of the frame")).collect();
        (wanted, places)
    }
}

impl ColumnDecoder for VideoDecoder {
    fn fields(&self) -> Vec<&str> {
        self.each.fields()
    }

    fn reads_video(&self) -> bool {
        true
    }

    fn video_packets(&self, video: &Video, of: (u64, SampleKey)) -> Option<Vec<usize>> {
        let taken = TakenVideo::choose(&self.clip, "", video.clone(), of).ok()?;
        taken.blocks.needed(&taken.numbers())
    }

    fn video_pictures(&self, count: usize, of: (u64, SampleKey)) -> Option<Vec<usize>> {
        // If nothing can be chosen, the sample is bad, and nothing is read.
        let chosen = video_pictures::choose(&self.clip, ("", count), of);
        Some(chosen.map_or_else(|_| Vec::new(), |clip| clip.numbers))
    }

    fn decode_value(
        &self,
        sample: ColumnSample<'_, '_, FieldValue>,
        target: &mut FieldTarget<'_>,
    ) -> Result<(), BadSampleProblem> {
        let (sample, value) = sample.replace(());
        match VideoValue::of(sample.field, value, sample.resources.limits)? {
            VideoValue::File(content) => self.decode(sample.replace(content).0, target),
            VideoValue::Pictures(files) => {
                let (of_field, of) = ((sample.field, files.len()), (sample.seed, sample.key));
                let frames = video_pictures::choose(&self.clip, of_field, of)?;
                video_pictures::decode(&self.each, &frames, &files, sample, target.fixed())
            }
        }
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let ColumnSample { field, content, seed, key, record, resources, scratch } = sample;
        let file = content.into_file();
        let limits = resources.limits;
        let (taken, bytes) = TakenVideo::open(&self.clip, (field, &file), (seed, key), limits)?;
        let problem = |problem: String| BadSampleProblem::Video { field: field.to_owned(), problem };
        let packets = needed_packets(&taken, &bytes).map_err(problem)?;
        let (wanted, places) = taken.wanted();
        let frames = resources
            .frames
            .as_deref()
            .ok_or_else(|| BadSampleProblem::VideoDecoder { problem: NO_PROCESSES.to_owned() })?;
        let orientation = orientation(taken.track.rotation);
        let of_track = [taken.track.width, taken.track.height];
        let mut plan_of = |stored| self.plan(stored, orientation, (seed, key), (field, limits), record);
        let plan = plan_of(of_track)?;
        let [width, height] = of_track.map(|side| side.next_multiple_of(UNIT_PIXELS));
        let needed_bytes = self.memory_bytes([width, height], orientation, &plan);
        let _permit = resources.memory.take(needed_bytes).map_err(|NeverFits { max_bytes }| {
            let ([width, height], field) = (of_track, field.to_owned());
            BadSampleProblem::VideoMemory { field, width, height, needed_bytes, max_bytes }
        })?;
        let mut writer = ClipWriter {
            decoder: self,
            field,
            track: &taken.track,
            clip: &places,
            orientation,
            resources,
            scratch,
            conversion: None,
            plan: Some((of_track, plan)),
            permitted_bytes: needed_bytes,
            out: target.fixed(),
        };
        let max_pixels = u64::from(width) * u64::from(height);
        let mut on_frame = |number, planes: FramePlanes<'_>| writer.write(number, &planes, &mut plan_of);
        let VideoTrack { codec, extra_data, .. } = &taken.track;
        let packets: Vec<PacketBytes<'_>> = packets.iter().map(NeededPacket::as_bytes).collect();
        let request = FrameRequest { codec, extra_data, packets: &packets, wanted: &wanted, max_pixels };
        let outcome = decode(frames, &request, field, &mut on_frame);
        let kept_bytes = resources.memory.kept_bytes();
        if writer.scratch.frame.capacity() > kept_bytes {
            writer.scratch.frame = Vec::new();
        }
        outcome
    }
}

impl ClipWriter<'_> {
    /// Writes wanted frame number `number` to each of its places.
    fn write(
        &mut self,
        number: usize,
        planes: &FramePlanes<'_>,
        plan_of: &mut dyn FnMut([u32; 2]) -> Result<PicturePlan, BadSampleProblem>,
    ) -> Result<(), BadSampleProblem> {
        let (stored, field) = (planes.size, self.field);
        let problem = |problem: String| BadSampleProblem::Video { field: field.to_owned(), problem };
        if stored.contains(&0) {
            return Err(problem("has a frame without pixels".to_owned()));
        }
        if self.plan.as_ref().is_none_or(|(size, _)| *size != stored) {
            // The file has another size than its frames, or this changes on the way.
            let plan = plan_of(stored)?;
            let ([width, height], max_bytes) = (stored, self.permitted_bytes);
            let needed_bytes = self.decoder.memory_bytes(stored, self.orientation, &plan);
            if needed_bytes > max_bytes {
                let ([width, height], [wide, high]) = ([width, height], [self.track.width, self.track.height]);
                return Err(problem(format!(
                    "has frames of {width}x{height}, and says that they are of {wide}x{high}"
                )));
            }
            (self.plan, self.conversion) = (Some((stored, plan)), None);
        }
        let Some((_, plan)) = &self.plan else { unreachable!("it was just made") };
        let color = decided_color(planes, &self.track.color);
        if self.conversion.as_ref().is_none_or(|known| (known.0, known.1) != (planes.format, color)) {
            let made = RgbConversion::new(planes.format, stored, &color).map_err(|error| problem(reason(error)))?;
            self.conversion = Some((planes.format, color, made));
        }
        let Some((.., conversion)) = &self.conversion else { unreachable!("it was just made") };
        let mut rgb = std::mem::take(&mut self.scratch.frame);
        rgb.resize(stored[0] as usize * stored[1] as usize * 3, 0);
        // Rows that nothing is made of stay as they are: they are not read.
        let (first, end) = read_rows(plan, self.orientation, stored);
        let row_bytes = stored[0] as usize * 3;
        let rows = &mut rgb[first as usize * row_bytes..end as usize * row_bytes];
        let converted = conversion.convert(planes, [0, first, stored[0], end - first], rows);
        converted.map_err(|error| problem(reason(error)))?;
        let frame = RgbFrame { field, rgb: &rgb, stored, orientation: self.orientation };
        let bytes = self.decoder.each.bytes();
        let mut places = (0..self.clip.len()).filter(|nth| self.clip[*nth] == number);
        let Some(place) = places.next() else { return Ok(()) };
        let place = place * bytes..(place + 1) * bytes;
        let scratch = (self.resources, &mut *self.scratch);
        self.decoder.each.write_frame(frame, plan, scratch, &mut self.out[place.clone()])?;
        for nth in places {
            self.out.copy_within(place.clone(), nth * bytes);
        }
        self.scratch.frame = rgb;
        Ok(())
    }
}

/// Has the wanted frames decoded, and calls `on_frame` with each and its number.
fn decode(
    frames: &FrameDecoders,
    request: &FrameRequest<'_>,
    field: &str,
    on_frame: &mut dyn FnMut(usize, FramePlanes<'_>) -> Result<(), BadSampleProblem>,
) -> Result<(), BadSampleProblem> {
    let mut failed = None;
    let outcome = frames.decode(request, &mut |number, planes| {
        if failed.is_none() {
            failed = on_frame(number, planes).err();
        }
    });
    match (failed, outcome) {
        (Some(problem), _) => Err(problem),
        (None, Ok(())) => Ok(()),
        (None, Err(error)) => Err(of_decoding(field, &error)),
    }
}

/// Returns the problem of a video whose frames could not be decoded.
fn of_decoding(field: &str, error: &FrameDecodeError) -> BadSampleProblem {
    if error.is_of_video() {
        return BadSampleProblem::Video { field: field.to_owned(), problem: reason(error) };
    }
    BadSampleProblem::VideoDecoder { problem: error.to_string() }
}

/// Returns the packets that decoding the frames of a clip takes, in the order in which they are decoded: not those that no other
/// picture refers to.
fn needed_packets<'b>(taken: &TakenVideo, bytes: &VideoBytes<'b>) -> Result<Vec<NeededPacket<'b>>, String> {
    let (TakenVideo { track, blocks, .. }, numbers) = (taken, taken.numbers());
    let needed = blocks.needed(&numbers).ok_or("has a frame without a key frame before it")?;
    let mut wanted: Vec<usize> = numbers.iter().filter_map(|frame| blocks.packet_of(*frame)).collect();
    wanted.sort_unstable();
    let mut packets = Vec::with_capacity(needed.len());
    let mut next = None;
    for number in needed {
        let packet = &blocks.packets()[number];
        let bytes = bytes.packet(number, packet).ok_or_else(|| {
            format!("is cut off before packet {number}, or has key frames that are not whole and was read in part")
        })?;
        let skipped = next.map_or(number..number, |next| next..number);
        next = Some(number + 1);
        let is_wanted = wanted.binary_search(&number).is_ok();
        if !is_wanted && is_reference(&track.codec, &track.extra_data, bytes) == Some(false) {
            continue;
        }
        let begins_anew = packet.is_key && blocks.packets()[skipped].iter().any(|packet| !packet.is_droppable);
        let bytes = match &track.packet_prefix[..] {
            [] => Cow::Borrowed(bytes),
            prefix => Cow::Owned([prefix, bytes].concat()),
        };
        packets.push(NeededPacket { pts: packet.pts, bytes, begins_anew });
    }
    Ok(packets)
}

/// Returns the colour of a frame: what its decoder says of it, and for what that leaves open what the file says; and for what both
/// leave open what most players take.
fn decided_color(planes: &FramePlanes<'_>, of_track: &VideoColor) -> VideoColor {
    let said = |of_frame: u16, of_track: u16| if of_frame == UNSPECIFIED { of_track } else { of_frame };
    let of_frame = &planes.color;
    let usual = if planes.size[1] < HD_ROWS { BT_601 } else { BT_709 };
    let matrix = match said(of_frame.matrix, of_track.matrix) {
        UNSPECIFIED => usual,
        IDENTITY if planes.format.kind != (PlaneKind::Yuv { shift: [0, 0] }) => usual,
        matrix => matrix,
    };
    VideoColor {
        primaries: said(of_frame.primaries, of_track.primaries),
        transfer: said(of_frame.transfer, of_track.transfer),
        matrix,
        is_full_range: of_frame.is_full_range.or(of_track.is_full_range),
    }
}

/// Returns the first row of a stored frame that a plan reads, and the end of its rows.
fn read_rows(plan: &PicturePlan, orientation: Orientation, stored: [u32; 2]) -> (u32, u32) {
    orientation.frame(&plan.decode, stored).map_or((0, 0), |([_, y], _)| y.readable)
}

/// Returns how a frame is turned to be upright.
fn orientation(rotation: VideoRotation) -> Orientation {
    let (transposed, columns_reversed, rows_reversed) = match rotation {
        VideoRotation::None => (false, false, false),
        VideoRotation::Quarter => (true, false, true),
        VideoRotation::Half => (false, true, true),
        VideoRotation::ThreeQuarters => (true, true, false),
    };
    Orientation { transposed, columns_reversed, rows_reversed }
}
