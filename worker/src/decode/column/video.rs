//! The kind `video`: chooses frames of a video file, has their packets decoded in another process, and writes each as a picture is
//! written.

use std::borrow::Cow;

use spdl_frames::{
    FrameDecodeError, FrameDecoders, FramePlanes, FrameRequest, PacketBytes, PlaneFormat, PlaneKind, RgbConversion,
};
use spdl_job::{PicturePlan, ShownTimes, VideoClip, VideoColumn};
use spdl_media::{OpenVideo, Video, VideoBlocks, VideoBytes, VideoColor, VideoRotation, VideoTrack, is_reference};
use spdl_pixels::{Orientation, PictureLimits};
use spdl_types::Draw;

use super::{
    ColumnDecoder, ColumnSample, ColumnSetup, DecodeResources, DecodeScratch, FieldTarget,
    image::{ImageColumnDecoder, RgbFrame},
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
const CLIP_PART: u32 = u32::MAX;
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

/// A video, and what of it is decoded.
struct TakenVideo<'b> {
    track: VideoTrack,
    /// The packets that are needed, in the order in which they are decoded.
    packets: Vec<NeededPacket<'b>>,
    /// When the wanted frames are shown, ascending and without doubles.
    wanted: Vec<i64>,
    /// For each frame of the clip, its number among the wanted ones.
    clip: Vec<usize>,
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
struct FrameWriter<'a> {
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

    /// Reads the tables of the file, and chooses what is decoded of it.
    fn open<'b>(
        &self,
        (field, file): (&str, &'b [u8]),
        (seed, key): (u64, SampleKey),
        limits: PictureLimits,
    ) -> Result<TakenVideo<'b>, BadSampleProblem> {
        if file.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let problem = |problem: String| BadSampleProblem::Video { field: field.to_owned(), problem };
        let OpenVideo { video, bytes } = OpenVideo::open(file).map_err(|error| problem(reason(error)))?;
        let Video { track, packets, .. } = video;
        let [width, height] = [track.width, track.height];
        let (side_pixels, pixels) = (limits.side_pixels, limits.pixels);
        if width == 0 || height == 0 {
            return Err(problem(format!("is a video of {width}x{height}")));
        }
        if width.max(height) > side_pixels || u64::from(width) * u64::from(height) > pixels {
            return Err(problem(format!(
                "is a video of {width}x{height}; the limits are {side_pixels} a side and {pixels} in all"
            )));
        }
        let blocks = VideoBlocks::of_all(packets);
        let begins: Vec<i64> = blocks.begins().collect();
        let frames = self.choose(field, (&blocks, &begins, track.time_base), (seed, key))?;
        let mut wanted: Vec<i64> = frames.iter().map(|frame| begins[*frame]).collect();
        wanted.dedup();
        let mut clip = Vec::with_capacity(frames.len());
        for frame in &frames {
            clip.push(wanted.binary_search(&begins[*frame]).expect("the time of the frame"));
        }
        let packets = needed_packets(&blocks, &frames, &track, &bytes).map_err(problem)?;
        Ok(TakenVideo { track, packets, wanted, clip })
    }

    /// Returns the numbers of the frames of a clip, in their order, of a video whose frames begin at these times.
    fn choose(
        &self,
        field: &str,
        (blocks, begins, time_base): (&VideoBlocks, &[i64], [u32; 2]),
        (seed, key): (u64, SampleKey),
    ) -> Result<Vec<usize>, BadSampleProblem> {
        if begins.is_empty() {
            return Err(BadSampleProblem::Video { field: field.to_owned(), problem: "has no frames".to_owned() });
        }
        let end = |frame: u64| {
            let packet = &blocks.packets()[blocks.packet_of(frame)?];
            Some(packet.pts + i64::from(packet.duration))
        };
        let end = end(begins.len() as u64 - 1).unwrap_or_default();
        let drawn = || Draw::of_part(seed, key.epoch, key.id.0, CLIP_PART).bits();
        let too_short = || BadSampleProblem::VideoTooShort { field: field.to_owned(), frames: begins.len() };
        self.clip.frames_of(&ShownTimes { begins, end, time_base }, drawn).ok_or_else(too_short)
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

impl ColumnDecoder for VideoDecoder {
    fn fields(&self) -> Vec<&str> {
        self.each.fields()
    }

    fn reads_video(&self) -> bool {
        true
    }

    fn video_packets(&self, video: &Video, of: (u64, SampleKey)) -> Option<Vec<usize>> {
        let blocks = VideoBlocks::of_all(video.packets.clone());
        let begins: Vec<i64> = blocks.begins().collect();
        let frames = self.choose("", (&blocks, &begins, video.track.time_base), of).ok()?;
        blocks.needed(&numbers_once(&frames))
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let ColumnSample { field, content, seed, key, record, resources, scratch } = sample;
        let file = content.into_file();
        let limits = resources.limits;
        let taken = self.open((field, &file), (seed, key), limits)?;
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
        let mut writer = FrameWriter {
            decoder: self,
            field,
            track: &taken.track,
            clip: &taken.clip,
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
        let outcome = decode(frames, (field, &taken), max_pixels, &mut on_frame);
        let kept_bytes = resources.memory.kept_bytes();
        if writer.scratch.frame.capacity() > kept_bytes {
            writer.scratch.frame = Vec::new();
        }
        outcome
    }
}

impl FrameWriter<'_> {
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
    (field, taken): (&str, &TakenVideo<'_>),
    max_pixels: u64,
    on_frame: &mut dyn FnMut(usize, FramePlanes<'_>) -> Result<(), BadSampleProblem>,
) -> Result<(), BadSampleProblem> {
    let packets: Vec<PacketBytes<'_>> = taken.packets.iter().map(NeededPacket::as_bytes).collect();
    let VideoTrack { codec, extra_data, .. } = &taken.track;
    let request = FrameRequest { codec, extra_data, packets: &packets, wanted: &taken.wanted, max_pixels };
    let mut failed = None;
    let outcome = frames.decode(&request, &mut |number, planes| {
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

/// Returns the numbers of frames, which are in their order, each once.
fn numbers_once(frames: &[usize]) -> Vec<u64> {
    let mut numbers: Vec<u64> = frames.iter().map(|frame| *frame as u64).collect();
    numbers.dedup();
    numbers
}

/// Returns the packets that decoding some frames takes: not those that no other picture refers to.
fn needed_packets<'b>(
    blocks: &VideoBlocks,
    frames: &[usize],
    track: &VideoTrack,
    bytes: &VideoBytes<'b>,
) -> Result<Vec<NeededPacket<'b>>, String> {
    let numbers = numbers_once(frames);
    let needed = blocks.needed(&numbers).ok_or("has a frame without a key frame before it")?;
    let mut wanted: Vec<usize> = numbers.iter().filter_map(|frame| blocks.packet_of(*frame)).collect();
    wanted.sort_unstable();
    let mut packets = Vec::with_capacity(needed.len());
    let mut next = None;
    for number in needed {
        let packet = &blocks.packets()[number];
        let bytes = bytes.packet(number, packet).ok_or_else(|| format!("is cut off before packet {number}"))?;
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
