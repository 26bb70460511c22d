//! The kind `video`: frames of a video file, each of which is changed as the picture of an `image` column is.

use serde::{Deserialize, Serialize};

use super::{ClipFile, ColumnKind, FrameDrift, ImageColumn, ImageKeys, Kind, VideoClip, kind::{keys, not_of_kind}};
use crate::{ImageOp, KeyProblem, check::MAX_SAMPLE_BYTES, operation::step};
use spdl_types::{DType, ImageColor, ImageLayout, Normalise, SampleShape};

keys! {
    /// The keys of a `video` column in a job file.
    VideoKeys {
        /// For video: which frames of each video are taken, as `{ frames = 16, stride = 4 }`. Only the packets that they need are
        /// decoded. Default: none, which is for fields that are frames of videos, as those of LeRobot's datasets: there, a sample has its
        /// own frame, or those of `deltas`. Whole videos need it.
        clip: Option<ClipFile>,
        /// For video: what becomes of a sample whose frame is shown half a frame or more before or behind its time, where fields are
        /// frames of videos: `fail` makes it a bad sample, and `nearest` takes the frame that is shown nearest to the time. Default: `fail`.
        drift: Option<FrameDrift>,
        /// For video: the operations from a frame to the array, in order. The last one has to give a fixed size. What is random is
        /// drawn once for a clip: all of its frames are changed alike. Required.
        #[serde(deserialize_with = "step::read_all")]
        #[schemars(with = "Vec<step::StepFile>")]
        ops: Vec<ImageOp>,
        /// For video: the order of the dimensions of each frame. Default: `nhwc`.
        layout: Option<ImageLayout>,
        /// For video: for a float type, `(value - mean) / std` of each channel, where values are divided by 255 first. Default: none;
        /// values are divided by 255 all the same.
        normalise: Option<Normalise<Vec<f32>>>,
        /// For video: the channels, `rgb`, `bgr` or `gray`. Default: `rgb`.
        color: Option<ImageColor>,
    }
}

/// How a video becomes frames of a fixed size, or one frame.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct VideoColumn {
    /// Which frames; `None` if fields are frames of videos, of which a sample has its own, or those of records around it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<VideoClip>,
    /// What becomes of frames that are not shown when they are due, if there is no clip.
    #[serde(default, skip_serializing_if = "FrameDrift::is_default")]
    pub drift: FrameDrift,
    /// What becomes of each.
    pub each: ImageColumn,
}

impl Kind for VideoColumn {
    const NAME: &'static str = "video";
    const EXAMPLE: &'static str = "clip = { frames = 4 }\nops = [{ random_resized_crop = 16 }]";
    const TAKES_DELTAS: bool = true;
    type Keys = VideoKeys;

    fn read(keys: &VideoKeys) -> Result<Self, KeyProblem> {
        let VideoKeys { clip, drift, ops, layout, normalise, color } = keys.clone();
        let clip = clip.map(VideoClip::read).transpose()?;
        let drift = drift.unwrap_or_default();
        let each = ImageColumn::read(&ImageKeys { ops, layout, normalise, color, ..ImageKeys::default() })?;
        Ok(Self { clip, drift, each })
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::U8, DType::F32, DType::F16, DType::Bf16]
    }

    fn shape(&self) -> SampleShape {
        let row = self.each.shape_of_one();
        match &self.clip {
            Some(clip) if clip.is_all() => SampleShape::Rows { row, max_rows: clip.frames },
            clip => SampleShape::Fixed(clip.iter().map(|clip| clip.frames).chain(row).collect()),
        }
    }

    fn check_deltas(&self) -> Result<(), KeyProblem> {
        match self.clip {
            None => Ok(()),
            Some(_) => Err(("deltas", "is for fields that are frames, and `clip` for whole videos; leave one out".to_owned())),
        }
    }

    fn check(&self, dtype: DType) -> Result<(), KeyProblem> {
        self.clip.as_ref().map_or(Ok(()), VideoClip::check)?;
        if self.clip.is_some() && !self.drift.is_default() {
            return Err(("drift", "is for fields that are frames, and `clip` for whole videos; leave one out".to_owned()));
        }
        let ImageColumn { color, background, depth, list, .. } = &self.each;
        if color.has_alpha() {
            return Err(("color", format!("is \"{}\", and videos have no opacity", color.name())));
        }
        if background.is_some() || depth.is_some() || list.is_some() {
            return Err(("decode", "is video, and the column has keys of an image".to_owned()));
        }
        if self.each.max_pixels().is_some() {
            let problem = "give frames of different sizes, and those of videos have one; end with random_resized_crop, center_crop or \
                           resize = { size = [height, width] }";
            return Err(("ops", problem.to_owned()));
        }
        self.each.check(dtype)?;
        let bytes = self.shape().max_bytes(dtype);
        if bytes > MAX_SAMPLE_BYTES.into() {
            let frames = self.clip.as_ref().map_or(1, |clip| clip.frames);
            return Err(("clip", format!("has {frames} frames, which take {bytes} bytes; the limit is {MAX_SAMPLE_BYTES}")));
        }
        Ok(())
    }
}

/// Returns the frames of a clip of the `video` column `name`, which a column follows, and whether they are the most of it.
///
/// # Errors
/// The problem of a column that follows another kind.
pub(super) fn followed_video(name: &str, followed: &ColumnKind) -> Result<(u32, bool), KeyProblem> {
    let ColumnKind::Video(video) = followed else {
        return Err(not_of_kind(name, followed, "video"));
    };
    match &video.clip {
        Some(clip) => Ok((clip.frames, clip.is_all())),
        None => {
            let problem = "which has no `clip`; `is_pad` and `timestamp` say the same of frames of records";
            Err(("follows", format!("is `{name}`, {problem}")))
        }
    }
}

/// Returns the shape of a number for each frame of a clip, or of a clip of at most so many frames.
pub(super) fn numbers_of_frames(frames: u32, is_all: bool) -> SampleShape {
    match is_all {
        true => SampleShape::Rows { row: Vec::new(), max_rows: frames },
        false => SampleShape::Fixed(vec![frames]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::column::testing::{job_of, job_with};

    const CROP: &str = "ops = [{ center_crop = [8, 9] }]";

    #[test]
    fn the_frames_are_the_first_dimension() {
        let column = |keys: &str| {
            job_of("video", &format!("{CROP}\n{keys}")).unwrap_or_else(|error| panic!("{keys}: {error}")).columns.remove(0)
        };
        assert_eq!(column("clip = { frames = 16 }").sample_shape(), Some(vec![16, 8, 9, 3]));
        assert_eq!(column("clip = { frames = 16 }").dtype, DType::U8);
        let planes = column("clip = { frames = 2, rate = 12.5 }\nlayout = \"nchw\"\ndtype = \"f16\"");
        assert_eq!(planes.sample_shape(), Some(vec![2, 3, 8, 9]));
        assert_eq!(column("clip = { frames = 3, pick = \"uniform\" }\ncolor = \"gray\"").sample_shape(), Some(vec![3, 8, 9, 1]));
        let views = job_of("video", "clip = { frames = 3 }\nops = [{ five_crop = 8 }]").unwrap();
        assert_eq!(views.columns[0].sample_shape(), Some(vec![3, 5, 8, 8, 3]));
        let all = column("clip = { frames = 300, rate = 2, pick = \"all\" }");
        assert_eq!(all.shape(), SampleShape::Rows { row: vec![8, 9, 3], max_rows: 300 });
        // Fields that are frames.
        assert_eq!(column("").sample_shape(), Some(vec![8, 9, 3]));
        assert_eq!(column("deltas = [-1, 0]\ndrift = \"nearest\"").sample_shape(), Some(vec![2, 8, 9, 3]));
        assert_eq!(column("deltas = [-2, -1, 0]\nlayout = \"nchw\"").sample_shape(), Some(vec![3, 3, 8, 9]));
    }

    #[test]
    fn a_column_of_videos_survives_storage_and_every_key_changes_the_fingerprint() {
        let mut known = Vec::new();
        for keys in [
            "clip = { frames = 16 }",
            "clip = { frames = 16, stride = 4 }",
            "clip = { frames = 16, rate = 8 }",
            "clip = { frames = 16, rate = 8, source_rate = 24 }",
            "clip = { frames = 16, pick = \"uniform\" }",
            "clip = { frames = 16, short = \"bad\" }",
            "clip = { frames = 16, pick = \"all\" }",
            "clip = { frames = 16, snap = \"key_frame\" }",
            "clip = { frames = 16, at = \"times\" }",
            "clip = { frames = 16 }\ndtype = \"f32\"\nnormalise = { mean = [0.5, 0.5, 0.5], std = [1, 1, 1] }",
            "clip = { frames = 16 }\ncolor = \"bgr\"",
            "",
            "drift = \"nearest\"",
            "deltas = [0, 1]",
        ] {
            let job = job_of("video", &format!("{CROP}\n{keys}")).unwrap();
            let back: crate::Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
            assert_eq!(back, job, "{keys}");
            assert!(!known.contains(&job.fingerprint()), "{keys}");
            known.push(job.fingerprint());
        }
    }

    #[test]
    fn times_and_the_mask_have_a_number_for_each_frame() {
        for (kind, dtype) in [("video_times", DType::F64), ("video_mask", DType::Bool)] {
            let more = format!(
                "name = \"c\"\nfrom = \"mp4\"\ndecode = \"video\"\nclip = {{ frames = 7 }}\n{CROP}\n[[column]]\nname = \"d\"\n\
                 from = \"mp4\"\ndecode = \"{kind}\"\nfollows = \"c\""
            );
            let job = job_with(&more).unwrap();
            assert_eq!((job.columns[1].sample_shape(), job.columns[1].dtype), (Some(vec![7]), dtype));
            let error = job_with(&more.replace("decode = \"video\"\nclip = { frames = 7 }", "decode = \"image\"")).unwrap_err();
            assert!(error.to_string().contains("it has to be of decode = \"video\""), "{error}");
            let all = job_with(&more.replace("frames = 7", "frames = 7, pick = \"all\"")).unwrap();
            assert_eq!(all.columns[1].shape(), SampleShape::Rows { row: Vec::new(), max_rows: 7 });
            let back: crate::Job = serde_json::from_slice(&serde_json::to_vec(&all).unwrap()).unwrap();
            assert!(back == all && all.fingerprint() != job.fingerprint(), "{kind}");
            let error = job_with(&more.replace("clip = { frames = 7 }\n", "")).unwrap_err();
            assert!(error.to_string().contains("`follows` is `c`, which has no `clip`"), "{error}");
        }
    }

    #[test]
    fn keys_that_do_not_fit_are_named() {
        for (keys, expected) in [
            ("clip = { frames = 2 }\ndeltas = [0, 1]", "`deltas` is for fields that are frames, and `clip` for whole videos"),
            ("clip = { frames = 2 }\ndrift = \"nearest\"", "`drift` is for fields that are frames"),
            ("drift = \"far\"", "drift cannot be `far`"),
            ("clip = { stride = 2 }", "frames"),
            ("clip = { frames = 0 }", "`clip` has frames = 0, not in 1..=65536"),
            ("clip = { frames = 2, stride = 0 }", "`clip` has stride = 0"),
            ("clip = { frames = 2, stride = 1, rate = 2 }", "`clip` has `stride` and `rate`; leave one out"),
            ("clip = { frames = 2, rate = 0 }", "`clip` has rate = 0, not in 0.001..=1000"),
            ("clip = { frames = 2, rate = nan }", "`clip` has rate = NaN"),
            ("clip = { frames = 2, stride = 2, pick = \"uniform\" }", "`clip` has `stride`, and frames of the whole video"),
            ("clip = { frames = 2, pick = \"end\" }", "pick cannot be `end`; it can be random, start, middle, uniform, all"),
            ("clip = { frames = 2, pick = \"all\", short = \"bad\" }", "`clip` has `short`, and with pick = \"all\""),
            ("clip = { frames = 2, pick = \"all\", snap = \"key_frame\" }", "`clip` has `snap`, and with pick = \"all\""),
            ("clip = { frames = 2, at = \"t\", rate = 2 }", "`clip` has `rate`, and with `at` a field says which frames"),
            ("clip = { frames = 2, at = \"t\", pick = \"start\" }", "`clip` has `pick`, and with `at`"),
            ("clip = { frames = 2, at = \"\" }", "`clip` has at = \"\", which cannot be a field"),
            ("clip = { frames = 2, snap = \"yes\" }", "snap cannot be `yes`; it can be exact, key_frame"),
            ("clip = { frames = 2 }\ndtype = \"u16\"", "`dtype` cannot be u16 for decode = \"video\""),
            ("clip = { frames = 2 }\ncolor = \"rgba\"", "`color` is \"rgba\", and videos have no opacity"),
            ("clip = { frames = 2 }\nmax_rows = 3", "max_rows"),
            (
                "clip = { frames = 2 }\nnormalise = { mean = [0, 0, 0], std = [1, 1, 1] }",
                "`normalise` needs a float type",
            ),
            ("clip = { frames = 65536 }\ndtype = \"f32\"\nops = [{ center_crop = 64 }]", "the limit is 1073741824"),
            ("clip = { frames = 2 }\nops = [{ resize = 64 }]", "`ops` leave pictures of different sizes"),
            ("clip = { frames = 2 }\nops = [\"smart_resize\"]", "`ops` give frames of different sizes, and those of videos have one"),
        ] {
            let ops = if keys.contains("ops") { "" } else { CROP };
            let error = job_of("video", &format!("{ops}\n{keys}")).unwrap_err().to_string();
            assert!(error.contains(expected), "{keys}: {error}");
        }
    }
}
