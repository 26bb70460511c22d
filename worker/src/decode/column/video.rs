//! The kind `video`: chooses frames of a video file, has their packets decoded in another process, and writes each as a picture is
//! written.

use std::sync::Arc;

use spdl_frames::{FrameDecodeError, FramePlanes, PlaneFormat, PlaneKind, RgbConversion};
use spdl_job::{PicturePlan, VideoColumn};
use spdl_media::{VideoBlocks, VideoColor, VideoRotation, VideoTrack};
use spdl_pixels::{Orientation, PictureLimits};
use spdl_shard::format::FieldValue;

use super::{
    ColumnDecoder, ColumnSample, ColumnSetup, DecodeResources, DecodeScratch, FieldTarget,
    clip_times::sample_clip,
    image::{ImageColumnDecoder, RgbFrame},
    video_pictures::{self, VideoValue},
};
use crate::{
    decode::{
        SampleKey,
        cause::{BadSampleProblem, reason},
        memory::NeverFits,
        read_video::{FrameChoice, ReadVideo, SeriesFrames, WantedSeries},
        record::SampleRecord,
        sample_clip::SampleClip,
        shared_frames::{FrameDecoding, SharedVideo, VideoIdentity},
        taken_video::TakenVideo,
    },
    frames::NO_PROCESSES,
};

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

/// Decodes frames of videos to one size.
pub(super) struct VideoDecoder {
    choice: FrameChoice,
    each: ImageColumnDecoder,
}

/// The frames of a sample while they are written.
struct ClipWriter<'a> {
    decoder: &'a VideoDecoder,
    field: &'a str,
    track: &'a VideoTrack,
    /// Numbers of wanted frames, each with a place of it in the value, in order.
    places: &'a [(usize, usize)],
    orientation: Orientation,
    resources: &'a DecodeResources,
    scratch: &'a mut DecodeScratch,
    /// The format and colour of the frames so far, and their conversion.
    conversion: Option<(PlaneFormat, VideoColor, RgbConversion)>,
    /// The plan for frames of this stored size.
    plan: Option<([u32; 2], PicturePlan)>,
    /// The bytes that are reserved for a frame.
    permitted_bytes: u64,
    out: &'a mut [u8],
}

impl VideoDecoder {
    pub(super) fn new(column: &VideoColumn, setup: &ColumnSetup<'_>) -> Self {
        let choice = match &column.clip {
            Some(clip) => FrameChoice::Clip(clip.clone()),
            None => {
                let places = &setup.column.value.deltas[..];
                let deltas = if places.is_empty() { vec![0] } else { places.to_vec() };
                let (from, drift) = (setup.column.from.clone(), column.drift);
                FrameChoice::Series(Arc::new(WantedSeries { from, deltas, drift }))
            }
        };
        Self { choice, each: ImageColumnDecoder::new(&column.each, setup) }
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
        let mut fields = self.each.fields();
        if let FrameChoice::Clip(clip) = &self.choice {
            fields.extend(clip.at.as_deref());
        }
        fields
    }

    fn reads_video(&self) -> bool {
        matches!(self.choice, FrameChoice::Clip(_))
    }

    fn video_packets(
        &self,
        video: (&Arc<VideoTrack>, &Arc<VideoBlocks>),
        of: (u64, SampleKey),
        record: &SampleRecord<'_>,
    ) -> Option<Vec<usize>> {
        TakenVideo::choose(&self.clip("", record).ok()?, "", video, of).ok()?.needed()
    }

    fn frame_choice(&self) -> Option<&FrameChoice> {
        Some(&self.choice)
    }

    fn video_pictures(&self, count: usize, of: (u64, SampleKey), record: &SampleRecord<'_>) -> Option<Vec<usize>> {
        let clip = match self.clip("", record) {
            // Its field may have to be read.
            Err(BadSampleProblem::Missing { .. }) => return None,
            clip => clip,
        };
        // If nothing can be chosen, the sample is bad, and nothing is read.
        let chosen = clip.and_then(|clip| video_pictures::choose(&clip, ("", count), of));
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
                let frames = video_pictures::choose(&self.clip(sample.field, sample.record)?, of_field, of)?;
                self.write_frames(frames.numbers.len(), target, |out| {
                    video_pictures::decode(&self.each, &frames, &files, sample, out)
                })
            }
        }
    }

    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> Result<(), BadSampleProblem> {
        let (sample, content) = sample.replace(());
        let (field, file) = (sample.field, content.into_file());
        let of = (sample.seed, sample.key);
        let clip = self.clip(field, sample.record)?;
        let (taken, bytes) = TakenVideo::open(&clip, (field, &file), of, sample.resources.limits)?;
        let shared = sample.record.shared_file(field);
        self.write_frames(taken.count(), target, |out| {
            self.decode_taken(&taken, &|place| taken.packet_of_file(&bytes, place), shared, sample, out)
        })
    }

    fn decode_read(
        &self,
        sample: ColumnSample<'_, '_, &ReadVideo>,
        target: &mut FieldTarget<'_>,
    ) -> Result<(), BadSampleProblem> {
        let (sample, video) = sample.replace(());
        let (clip, of) = (self.clip(sample.field, sample.record)?, (sample.seed, sample.key));
        let taken = TakenVideo::of_read(&clip, (sample.field, video), of, sample.resources.limits)?;
        let shared = sample.record.shared_video(VideoIdentity::of_track(&video.track));
        self.write_frames(taken.count(), target, |out| {
            self.decode_taken(&taken, &|place| video.packet(place), shared, sample, out)
        })
    }

    fn decode_series(
        &self,
        sample: ColumnSample<'_, '_, &SeriesFrames>,
        target: &mut FieldTarget<'_>,
    ) -> Result<(), BadSampleProblem> {
        let (sample, frames) = sample.replace(());
        let taken = TakenVideo::of_series(sample.field, frames, sample.resources.limits)?;
        let shared = sample.record.shared_video(VideoIdentity::of_track(&frames.video.track));
        self.decode_taken(&taken, &|place| frames.video.packet(place), shared, sample, (target.fixed(), 0))
    }
}

impl VideoDecoder {
    /// Returns the clip of a sample, which a video that is read whole or in part needs.
    fn clip(&self, field: &str, record: &SampleRecord<'_>) -> Result<SampleClip<'_>, BadSampleProblem> {
        let FrameChoice::Clip(clip) = &self.choice else {
            let problem = "is no frame of a video that a record of a series names: write which frames of it are taken, as clip = \
                           { frames = 16 }";
            return Err(BadSampleProblem::Frame { field: field.to_owned(), problem: problem.to_owned() });
        };
        sample_clip(clip, record)
    }

    /// Has so many frames written to their place, which is made if samples differ in length. Its bytes are then reserved with what
    /// decoding takes.
    fn write_frames(
        &self,
        count: usize,
        target: &mut FieldTarget<'_>,
        write: impl FnOnce((&mut [u8], u64)) -> Result<(), BadSampleProblem>,
    ) -> Result<(), BadSampleProblem> {
        if !matches!(&self.choice, FrameChoice::Clip(clip) if clip.is_all()) {
            return write((target.fixed(), 0));
        }
        let mut made = vec![0; count * self.each.bytes()];
        let bytes = made.len() as u64;
        write((&mut made, bytes))?;
        *target.ragged() = made.into();
        Ok(())
    }

    /// Decodes the frames of a sample into its place. `bytes_of` returns the bytes of the packet at a place, if they are there; `shared`
    /// is the video, if other samples take frames of it, too.
    fn decode_taken<'b>(
        &self,
        taken: &TakenVideo,
        bytes_of: &dyn Fn(usize) -> Option<&'b [u8]>,
        shared: Option<&SharedVideo<'_>>,
        sample: ColumnSample<'_, '_, ()>,
        (out, beside_bytes): (&mut [u8], u64),
    ) -> Result<(), BadSampleProblem> {
        let ColumnSample { field, seed, key, record, resources, scratch, .. } = sample;
        let limits = resources.limits;
        let problem = |problem: String| BadSampleProblem::Video { field: field.to_owned(), problem };
        let packets = taken.packets(bytes_of).map_err(problem)?;
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
        let frame_bytes = self.memory_bytes([width, height], orientation, &plan);
        let needed_bytes = frame_bytes + beside_bytes;
        let _permit = resources.memory.take(needed_bytes).map_err(|NeverFits { max_bytes }| {
            let ([width, height], field) = (of_track, field.to_owned());
            BadSampleProblem::VideoMemory { field, width, height, needed_bytes, max_bytes }
        })?;
        let mut writer = ClipWriter {
            decoder: self,
            field,
            track: &taken.track,
            places: &places,
            orientation,
            resources,
            scratch,
            conversion: None,
            plan: Some((of_track, plan)),
            permitted_bytes: frame_bytes,
            out,
        };
        let max_pixels = u64::from(width) * u64::from(height);
        let mut failed = None;
        let mut on_frame = |pts: i64, planes: FramePlanes<'_>| {
            if let Ok(number) = wanted.binary_search(&pts)
                && failed.is_none()
            {
                failed = writer.write(number, &planes, &mut plan_of).err();
            }
        };
        let decoding = FrameDecoding { frames, taken, bytes_of, packets: &packets, max_pixels };
        let decoded = match shared {
            Some(video) => video.decode((&self.choice, key), &decoding, &mut on_frame),
            None => decoding.decode(&mut on_frame),
        };
        let outcome = failed.map_or_else(|| decoded.map_err(|error| of_decoding(field, &error)), Err);
        let kept_bytes = resources.memory.kept_bytes();
        if writer.scratch.frame.capacity() > kept_bytes {
            writer.scratch.frame = Vec::new();
        }
        outcome
    }
}

impl<'a> ClipWriter<'a> {
    /// Returns the places of wanted frame number `number`. They are found, not looked for: clips have up to 65,536.
    fn places_of(&self, number: usize) -> impl Iterator<Item = usize> + use<'a> {
        let first = self.places.partition_point(|(other, _)| *other < number);
        self.places[first..].iter().take_while(move |(other, _)| *other == number).map(|(_, place)| *place)
    }

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
        let mut places = self.places_of(number);
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

/// Returns the problem of a video whose frames could not be decoded.
fn of_decoding(field: &str, error: &FrameDecodeError) -> BadSampleProblem {
    if error.is_of_video() {
        return BadSampleProblem::Video { field: field.to_owned(), problem: reason(error) };
    }
    BadSampleProblem::VideoDecoder { problem: error.to_string() }
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
