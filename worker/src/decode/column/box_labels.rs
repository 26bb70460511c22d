//! The kind `box_labels`: a number for each box that its `boxes` column keeps.

use std::{collections::HashMap, sync::Arc};

use serde_json::Value;
use spdl_job::{BoxLabelsColumn, BoxStorage, ColumnKind};
use spdl_types::DType;

use super::{
    ColumnDecoder, ColumnSample, ColumnSetup, DecoderError, FieldTarget,
    boxes::{BoxReader, array},
    int::whole,
};
use crate::decode::{
    cause::{BadSampleProblem, ValueResult, quoted, wrong_boxes},
    coco::CocoAnnotation,
    number::{float_of, out_of_range, write_float, write_integer, write_number},
};

/// Decodes to numbers of one type.
pub(super) struct BoxLabelsDecoder {
    boxes: BoxReader,
    stored_as: BoxStorage,
    key: String,
    dtype: DType,
    numbers: Arc<HashMap<String, i64>>,
}

impl BoxLabelsDecoder {
    pub(super) fn new(column: &BoxLabelsColumn, setup: &ColumnSetup<'_>) -> Result<Self, DecoderError> {
        let followed = setup.columns.iter().enumerate().find_map(|(number, other)| match &other.kind {
            ColumnKind::Boxes(boxes) if other.name == column.follows => {
                Some((BoxReader::new(number, boxes, setup.columns), boxes.stored_as))
            }
            _ => None,
        });
        let follows = &column.follows;
        let (boxes, stored_as) = followed.unwrap_or_else(|| panic!("a valid job has a boxes column `{follows}`"));
        let numbers = match &column.names {
            Some(names) => Arc::new(names.iter().cloned().zip(0..).collect()),
            None if setup.classes.is_empty() && stored_as == BoxStorage::Voc => {
                let (job, column) = (setup.job.to_owned(), setup.column.name.clone());
                return Err(DecoderError::NoNames { job, column });
            }
            None => setup.classes.clone(),
        };
        Ok(Self { boxes, stored_as, key: column.key.clone(), dtype: setup.column.decoded_dtype(), numbers })
    }

    /// Writes the number of a name.
    fn name(&self, name: &str, field: &str, out: &mut [u8]) -> ValueResult {
        match self.numbers.get(name.trim()) {
            Some(number) => self.number(*number, field, out),
            None if self.numbers.is_empty() => {
                let name = quoted(name.trim().as_bytes());
                Err(wrong_boxes(
                    field,
                    format_args!("has the name \"{name}\"; the column has no `names`, and the dataset no classes"),
                ))
            }
            None => Err(BadSampleProblem::name_unknown(field, name.trim().as_bytes())),
        }
    }

    fn number(&self, number: i64, field: &str, out: &mut [u8]) -> ValueResult {
        if self.dtype == DType::F32 {
            return write_float(number as f64, self.dtype, field, || number.to_string(), out);
        }
        write_integer(number, self.dtype, field, || number.to_string(), out)
    }

    /// Writes the label of one of COCO's annotations.
    fn label(&self, annotation: &CocoAnnotation, number: usize, field: &str, out: &mut [u8]) -> ValueResult {
        match annotation.get(&self.key) {
            Some(Value::Number(label)) => write_number(label, self.dtype, field, out),
            Some(Value::Bool(label)) => self.number(i64::from(*label), field, out),
            Some(Value::String(name)) => self.name(name, field, out),
            _ => Err(wrong_boxes(field, format_args!("annotation {number} has no number or name as `{}`", self.key))),
        }
    }
}

impl ColumnDecoder for BoxLabelsDecoder {
    fn decode(&self, sample: ColumnSample<'_, '_>, target: &mut FieldTarget<'_>) -> ValueResult {
        let ColumnSample { field, content, seed, key, record, resources, .. } = sample;
        let boxes = self.boxes.read((seed, key), resources.limits, record)?;
        let fits = |labels: usize| {
            let count = boxes.count;
            if labels == count {
                Ok(())
            } else {
                Err(wrong_boxes(field, format_args!("has {labels} labels, and there are {count} boxes")))
            }
        };
        let mut labels = vec![0; boxes.kept.len() * self.dtype.bytes()];
        let places = labels.chunks_exact_mut(self.dtype.bytes());
        let mut kept = boxes.kept.iter().map(|(number, _)| *number).zip(places);
        match self.stored_as {
            BoxStorage::Voc => {
                let objects = &record.annotation(field)?.objects;
                fits(objects.len())?;
                kept.try_for_each(|(number, place)| self.name(&objects[number].class, field, place))?;
            }
            BoxStorage::Coco => {
                let annotations = record.coco(field)?;
                fits(annotations.len())?;
                kept.try_for_each(|(number, place)| self.label(&annotations[number], number, field, place))?;
            }
            BoxStorage::Xyxy | BoxStorage::Xywh | BoxStorage::Cxcywh => {
                let array = array(content, field)?;
                let element = array.dtype.bytes();
                fits(array.elements.len() / element)?;
                for (number, place) in kept {
                    let bytes = &array.elements[number * element..][..element];
                    match whole(array.dtype, bytes) {
                        Some(Ok(label)) => self.number(label, field, place)?,
                        Some(Err(label)) => return Err(out_of_range(field, label.to_string(), self.dtype)),
                        None if self.dtype == DType::F32 => {
                            let label = float_of(array.dtype, bytes);
                            write_float(label, self.dtype, field, || label.to_string(), place)?;
                        }
                        None => {
                            return Err(wrong_boxes(
                                field,
                                format_args!("holds {}, which are no whole numbers", array.dtype.name()),
                            ));
                        }
                    }
                }
            }
        }
        *target.ragged() = labels.into();
        Ok(())
    }
}
