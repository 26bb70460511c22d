//! The kind `boxes`: the bounding boxes of a sample that are left in the picture, read from its record, moved as the picture is, clipped and
//! filtered.

use std::rc::Rc;

use spdl_canvas::MovedBox;
use spdl_job::{BoxFormat, BoxStorage, BoxesColumn, Column};
use spdl_pixels::PictureLimits;
use spdl_shard::format::{Array, Content};

use super::{ColumnDecoder, ColumnSample, ColumnSetup, FieldTarget, read_numpy};
use crate::decode::{
    SampleKey,
    cause::{BadSampleProblem, ValueResult, wrong_boxes},
    followed::FollowedPicture,
    number::float_of,
    record::{FollowedPlan, KeptBoxes, SampleRecord},
};

/// Most bytes of an array of boxes.
const MAX_ARRAY_BYTES: usize = 1 << 26;

/// Decodes to boxes of four numbers.
pub(super) struct BoxesDecoder {
    reader: BoxReader,
}

impl BoxesDecoder {
    pub(super) fn new(column: &BoxesColumn, setup: &ColumnSetup<'_>) -> Self {
        Self { reader: BoxReader::new(setup.number, column, setup.columns) }
    }
}

impl ColumnDecoder for BoxesDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let ColumnSample { seed, key, record, resources, .. } = sample;
        let boxes = self.reader.read((seed, key), resources.limits, record)?;
        let numbers = boxes.kept.iter().flat_map(|(_, numbers)| numbers);
        *target.ragged() = numbers.flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>().into();
        Ok(())
    }
}

/// Reads the boxes of a `boxes` column.
pub(super) struct BoxReader {
    /// Number of the column among those that are decoded.
    number: usize,
    from: Vec<String>,
    picture: FollowedPicture,
    column: BoxesColumn,
}

impl BoxReader {
    /// Reads the boxes of column number `number` of `columns`.
    pub(super) fn new(number: usize, column: &BoxesColumn, columns: &[Column]) -> Self {
        let picture = FollowedPicture::new(&column.follows, columns);
        Self { number, from: columns[number].from.clone(), picture, column: column.clone() }
    }

    /// Returns the boxes of the sample that are kept.
    pub(super) fn read(
        &self,
        key: (u64, SampleKey),
        limits: PictureLimits,
        record: &mut SampleRecord<'_>,
    ) -> Result<Rc<KeptBoxes>, BadSampleProblem> {
        if let Some(known) = record.boxes_of(self.number) {
            return Ok(known);
        }
        let (field, content) = record.first_of(&self.from)?;
        let followed = self.picture.plan(key, limits, record)?;
        let boxes = self.stored(field, content, record)?;
        let placed =
            boxes.iter().enumerate().filter_map(|(number, edges)| Some((number, self.place(*edges, &followed)?)));
        let kept = KeptBoxes { count: boxes.len(), kept: placed.collect() };
        let max_rows = self.column.max_rows;
        if kept.kept.len() > max_rows as usize {
            return Err(wrong_boxes(
                field,
                format_args!("has {} boxes to keep; `max_rows` is {max_rows}", kept.kept.len()),
            ));
        }
        let kept = Rc::new(kept);
        record.keep_boxes(self.number, kept.clone());
        Ok(kept)
    }

    /// Reads the boxes that the record has: left, top, right and bottom, in pixels of the upright picture.
    fn stored(
        &self,
        field: &str,
        content: Content,
        record: &mut SampleRecord<'_>,
    ) -> Result<Vec<[f64; 4]>, BadSampleProblem> {
        let boxes: Vec<[f64; 4]> = match self.column.stored_as {
            BoxStorage::Voc => {
                let objects = &record.annotation(field)?.objects;
                objects
                    .iter()
                    .map(|object| [object.xmin, object.ymin, object.xmax, object.ymax].map(f64::from))
                    .collect()
            }
            BoxStorage::Coco => {
                let annotations = record.coco(field)?;
                let boxes = annotations.iter().enumerate().map(|(number, annotation)| {
                    let bbox = annotation.bbox.ok_or_else(|| {
                        wrong_boxes(field, format_args!("annotation {number} has no `bbox` of 4 numbers"))
                    });
                    bbox.map(|[x, y, width, height]| [x, y, x + width, y + height])
                });
                boxes.collect::<Result<_, _>>()?
            }
            format => {
                let array = array(content, field)?;
                let element = array.dtype.bytes();
                if array.elements.len() % (4 * element) != 0
                    || array.shape.last().is_some_and(|last| array.shape.len() > 1 && *last != 4)
                {
                    let shape = &array.shape;
                    return Err(wrong_boxes(
                        field,
                        format_args!("holds an array of {shape:?}, and a box has 4 numbers"),
                    ));
                }
                let numbers: Vec<f64> =
                    array.elements.chunks_exact(element).map(|bytes| float_of(array.dtype, bytes)).collect();
                numbers
                    .as_chunks()
                    .0
                    .iter()
                    .map(|[a, b, c, d]| match format {
                        BoxStorage::Xywh => [*a, *b, a + c, b + d],
                        BoxStorage::Cxcywh => [a - c / 2.0, b - d / 2.0, a + c / 2.0, b + d / 2.0],
                        _ => [*a, *b, *c, *d],
                    })
                    .collect()
            }
        };
        let is_wrong = |[left, top, right, bottom]: &[f64; 4]| {
            ![left, top, right, bottom].iter().all(|edge| edge.is_finite()) || right < left || bottom < top
        };
        match boxes.iter().position(is_wrong) {
            Some(number) => {
                let [left, top, right, bottom] = boxes[number];
                Err(wrong_boxes(field, format_args!("has box {number} with x {left}..{right}, y {top}..{bottom}")))
            }
            None => Ok(boxes),
        }
    }

    /// Returns where a box is in the result, if enough of it is left.
    fn place(&self, edges: [f64; 4], followed: &FollowedPlan) -> Option<[f32; 4]> {
        let column = &self.column;
        let MovedBox { edges: [left, top, right, bottom], visible } = followed.plan.moved(MovedBox::new(edges))?;
        let (width, height) = (right - left, bottom - top);
        let least = f64::from(column.min_size);
        if visible < f64::from(column.min_visible) || width < least || height < least {
            return None;
        }
        let numbers = match column.format {
            BoxFormat::Xyxy => [left, top, right, bottom],
            BoxFormat::Xywh => [left, top, width, height],
            BoxFormat::Cxcywh => [left + width / 2.0, top + height / 2.0, width, height],
        };
        let [columns, rows] = followed.plan.size().map(f64::from);
        let by = if column.normalised { [columns, rows, columns, rows] } else { [1.0; 4] };
        Some(std::array::from_fn(|at| (numbers[at] / by[at]) as f32))
    }
}

/// Returns the array that a field has, also as a `.npy` file.
pub(super) fn array(content: Content, field: &str) -> Result<Array, BadSampleProblem> {
    match content {
        Content::Array(array) => Ok(array),
        Content::File(file) => read_numpy(&file, None, MAX_ARRAY_BYTES).map_err(|problem| wrong_boxes(field, problem)),
    }
}
