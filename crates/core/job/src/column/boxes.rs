//! The kind `boxes`: the bounding boxes in an `image` column's picture, a ragged column.

use serde::{Deserialize, Serialize};

use super::{ColumnKind, Kind, kind::{keys, followed_picture}};
use spdl_types::{SampleShape, DType};
use crate::KeyProblem;

/// Upper limit of `max_rows`.
const MAX_BOXES: u32 = 1 << 20;
const DEFAULT_MIN_VISIBLE: f32 = 0.1;
const DEFAULT_MIN_SIZE: f32 = 1.0;

/// The numbers that give a box.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BoxFormat {
    /// Left, top, right and bottom.
    #[default]
    Xyxy,
    /// Left, top, width and height.
    Xywh,
    /// Middle, width and height.
    Cxcywh,
}

/// How the field stores boxes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[derive(schemars::JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum BoxStorage {
    /// A Pascal VOC annotation.
    Voc,
    /// COCO's annotations: a JSON list, or an object that has it as `annotations`, of objects with a `bbox` of left,
    /// top, width and height. Those of crowds (`iscrowd = 1`), whose boxes lie around groups, are left out, as
    /// torchvision's references do. A field has at most 16 MiB; outlines are passed over.
    Coco,
    /// An array of numbers, four for each box: left, top, right and bottom.
    Xyxy,
    /// An array of numbers, four for each box: left, top, width and height.
    Xywh,
    /// An array of numbers, four for each box: middle, width and height.
    Cxcywh,
}

keys! {
    /// The keys of a `boxes` column in a job file.
    BoxesKeys {
        /// For boxes: the name of the `image` column that they are of. Required.
        follows: Option<String>,
        /// For boxes: how the field stores them. Required.
        stored_as: Option<BoxStorage>,
        /// For boxes: the most boxes that are left in one sample, 1 to 1048576. A sample with more is a bad sample. It
        /// reserves no memory. Required.
        max_rows: Option<u32>,
        /// For boxes: the numbers that give a box in the batch. Default: `xyxy`.
        format: Option<BoxFormat>,
        /// For boxes: whether the numbers are shares of the picture's width and height, and not pixels. Default: `false`.
        normalised: Option<bool>,
        /// For boxes: the least share of a box's area that has to be left, 0 to 1. Boxes of which less is left are left
        /// out. Default: 0.1.
        min_visible: Option<f32>,
        /// For boxes: the least width and height of what is left, in pixels of the result, 0 to 16384. Default: 1.
        min_size: Option<f32>,
    }
}

/// The bounding boxes in a picture.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BoxesColumn {
    /// Name of the `image` column that they are in.
    pub follows: String,
    /// How the field stores them.
    pub stored_as: BoxStorage,
    /// The most boxes of one sample. One with more is a bad sample.
    pub max_rows: u32,
    /// The numbers that give a box in the batch.
    pub format: BoxFormat,
    /// Whether the numbers are shares of the picture's width and height, and not pixels.
    pub normalised: bool,
    /// The least share of a box that has to be left in the picture.
    pub min_visible: f32,
    /// The least width and height, in pixels of the result.
    pub min_size: f32,
}

impl Kind for BoxesColumn {
    const NAME: &'static str = "boxes";
    const EXAMPLE: &'static str = "follows = \"image\"\nstored_as = \"coco\"\nmax_rows = 20";
    type Keys = BoxesKeys;

    fn read(keys: &BoxesKeys) -> Result<Self, KeyProblem> {
        let missing = |key, what: &str| (key, format!("is missing; write {what}"));
        let follows = keys.follows.clone();
        Ok(Self {
            follows: follows.ok_or_else(|| missing("follows", "the name of the image column that the boxes are in"))?,
            stored_as: keys
                .stored_as
                .ok_or_else(|| missing("stored_as", "how the field stores boxes: voc, coco, xyxy, xywh or cxcywh"))?,
            max_rows: keys.max_rows.ok_or_else(|| missing("max_rows", "the most boxes of one sample, such as 100"))?,
            format: keys.format.unwrap_or_default(),
            normalised: keys.normalised.unwrap_or_default(),
            min_visible: keys.min_visible.unwrap_or(DEFAULT_MIN_VISIBLE),
            min_size: keys.min_size.unwrap_or(DEFAULT_MIN_SIZE),
        })
    }

    fn follows(&self) -> Option<&str> {
        Some(&self.follows)
    }

    fn follow(&mut self, followed: &ColumnKind) -> Result<(), KeyProblem> {
        followed_picture(&self.follows, followed).map(drop)
    }

    fn dtypes(&self) -> &'static [DType] {
        &[DType::F32]
    }

    fn shape(&self) -> SampleShape {
        SampleShape::Rows { row: vec![4], max_rows: self.max_rows }
    }

    fn check(&self, _: DType) -> Result<(), KeyProblem> {
        if !(1..=MAX_BOXES).contains(&self.max_rows) {
            return Err(("max_rows", format!("is {}, not in 1..={MAX_BOXES}", self.max_rows)));
        }
        if !(0.0..=1.0).contains(&self.min_visible) {
            return Err(("min_visible", format!("is {}, not in 0..1", self.min_visible)));
        }
        if !(0.0..=16_384.0).contains(&self.min_size) {
            return Err(("min_size", format!("is {}, not in 0..16384", self.min_size)));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use spdl_types::{Fingerprint, SampleShape};
    use spdl_order::DatasetFacts;
    use crate::{Job, JobError, JobFile};

    const BOXES: &str = "follows = \"image\"\nstored_as = \"coco\"\nmax_rows = 9\n";

    const FACTS: DatasetFacts =
        DatasetFacts::new(Fingerprint(7), 100, 10);

    fn job(boxes: &str, labels: &str) -> Result<Job, JobError> {
        job_on(&FACTS, boxes, labels)
    }

    fn job_on(facts: &DatasetFacts, boxes: &str, labels: &str) -> Result<Job, JobError> {
        let text = format!(
            "name = \"a\"\ndataset = \"b\"\nglobal_batch = 8\n[[column]]\nname = \"image\"\nfrom = \"jpg\"\n\
             decode = \"image\"\nops = [{{ resize = [32, 48] }}]\n\
             [[column]]\nname = \"boxes\"\nfrom = \"json\"\ndecode = \"boxes\"\n{boxes}\
             [[column]]\nname = \"labels\"\nfrom = \"json\"\ndecode = \"box_labels\"\n{labels}"
        );
        JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(facts))
    }

    #[test]
    fn boxes_and_their_labels_are_ragged_alike_and_survive_storage() {
        let job = job(BOXES, "follows = \"boxes\"\nkey = \"iscrowd\"").unwrap();
        assert_eq!(job.columns[1].shape(), SampleShape::Rows { row: vec![4], max_rows: 9 });
        assert_eq!(job.columns[2].shape(), SampleShape::Rows { row: vec![], max_rows: 9 });
        let back: Job = serde_json::from_slice(&serde_json::to_vec(&job).unwrap()).unwrap();
        assert_eq!(back, job);
    }

    #[test]
    fn labels_that_are_names_need_names() {
        let facts = DatasetFacts { has_classes: false, ..FACTS };
        let (voc, labels) = (BOXES.replace("coco", "voc"), "follows = \"boxes\"\n");
        let error = job_on(&facts, &voc, labels).unwrap_err().to_string();
        assert!(error.contains("column `labels`: `names` is missing, and the dataset lists no classes"), "{error}");
        assert!(job_on(&facts, &voc, &format!("{labels}names = [\"cat\"]\n")).is_ok());
        assert!(job_on(&facts, BOXES, labels).is_ok(), "they can be numbers");
        assert!(job(&voc, labels).is_ok());
    }

    #[test]
    fn what_is_wrong_with_boxes_or_their_labels_is_named() {
        let labels = "follows = \"boxes\"\n";
        for (boxes, labels, expected) in [
            ("", labels, "column `boxes`: `follows` is missing"),
            (&BOXES.replace("stored_as = \"coco\"", ""), labels, "`stored_as` is missing; write how the field stores boxes"),
            (&BOXES.replace("coco", "darknet"), labels, "stored_as cannot be `darknet`; it can be voc, coco, xyxy, xywh, cxcywh"),
            (&BOXES.replace("max_rows = 9", ""), labels, "`max_rows` is missing; write the most boxes of one sample"),
            (&BOXES.replace("max_rows = 9", "max_rows = 0"), labels, "`max_rows` is 0"),
            (&format!("{BOXES}min_visible = 1.5\n"), labels, "`min_visible` is 1.5, not in 0..1"),
            (&format!("{BOXES}min_size = -1\n"), labels, "`min_size` is -1"),
            (&BOXES.replace("image", "labels"), labels, "column `boxes`: `follows` is `labels`, a column of decode = \"box_labels\""),
            (BOXES, "", "column `labels`: `follows` is missing; write the name of the boxes column"),
            (BOXES, "follows = \"image\"\n", "column `labels`: `follows` is `image`, a column of decode = \"image\"; it has to be of decode = \"boxes\""),
            (BOXES, "follows = \"boxes\"\nnames = [\"a\", \"a\"]\n", "column `labels`: `names` has `a` twice"),
            (BOXES, "follows = \"boxes\"\nkey = \"\"\n", "column `labels`: `key` is empty"),
        ] {
            let error = job(boxes, labels).unwrap_err().to_string();
            assert!(error.contains(expected), "{expected}: {error}");
        }
    }
}
