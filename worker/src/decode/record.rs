//! The fields of the record that holds a sample, and the sample's bounding box. What several columns need is made once for each
//! sample.

use std::rc::Rc;

use smallvec::SmallVec;
use spdl_core::job::DType;
use spdl_shard::{
    format::{Content, FieldValue},
    voc::{Annotation, VocObject},
};

use super::{
    boxes::KeptBoxes,
    cause::{BadSampleProblem, reason},
    coco::{self, CocoAnnotation},
    followed::FollowedPlan,
    geometry::PixelBox,
};

/// The fields of a record.
pub(crate) trait RecordFields {
    /// Returns the value of the field `name`, if the record has it.
    fn value(&self, name: &str) -> Option<FieldValue>;

    /// Returns the value for column number `column` of the job, if the field that it is decoded from is a number, and at
    /// hand: its type, and its bytes.
    fn number(&self, _column: usize) -> Option<(DType, &[u8])> {
        None
    }
}

impl<F: Fn(&str) -> Option<FieldValue>> RecordFields for F {
    fn value(&self, name: &str) -> Option<FieldValue> {
        self(name)
    }
}

/// One record, from the view of one of its samples.
pub(crate) struct SampleRecord<'r> {
    fields: &'r dyn RecordFields,
    sample: u32,
    annotations: SmallVec<[(String, Annotation); 1]>,
    /// COCO's annotations, by field.
    coco: SmallVec<[(String, Rc<[CocoAnnotation]>); 1]>,
    /// What becomes of the pictures of `image` columns, by the column's number among those that are decoded.
    plans: SmallVec<[(usize, Rc<FollowedPlan>); 1]>,
    /// The boxes of columns, by the column's number among those that are decoded.
    boxes: SmallVec<[(usize, Rc<KeptBoxes>); 1]>,
}

impl<'r> SampleRecord<'r> {
    pub(crate) fn new(fields: &'r dyn RecordFields, sample: u32) -> Self {
        Self {
            fields,
            sample,
            annotations: SmallVec::new(),
            coco: SmallVec::new(),
            plans: SmallVec::new(),
            boxes: SmallVec::new(),
        }
    }

    /// Returns the content of the first of these fields that the record has, with its name.
    pub(crate) fn first_of<'n>(&self, names: &'n [String]) -> Result<(&'n str, Content), BadSampleProblem> {
        let (field, value) = self.first_value_of(names)?;
        Ok((field, one_value(field, value)?))
    }

    /// Returns the value of the first of these fields that the record has, with its name.
    pub(crate) fn first_value_of<'n>(&self, names: &'n [String]) -> Result<(&'n str, FieldValue), BadSampleProblem> {
        let found = names.iter().find_map(|name| Some((name.as_str(), self.fields.value(name)?)));
        found.ok_or_else(|| {
            let fields = names.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(" or ");
            BadSampleProblem::Missing { fields }
        })
    }

    /// Returns what becomes of the picture of column number `column`, if that is kept.
    pub(crate) fn plan_of(&self, column: usize) -> Option<Rc<FollowedPlan>> {
        self.plans.iter().find(|(known, _)| *known == column).map(|(_, plan)| plan.clone())
    }

    /// Keeps what becomes of the picture of column number `column`.
    pub(crate) fn keep_plan(&mut self, column: usize, plan: Rc<FollowedPlan>) {
        self.plans.push((column, plan));
    }

    /// Returns the boxes of column number `column`, if they are kept.
    pub(crate) fn boxes_of(&self, column: usize) -> Option<Rc<KeptBoxes>> {
        self.boxes.iter().find(|(known, _)| *known == column).map(|(_, boxes)| boxes.clone())
    }

    /// Keeps the boxes of column number `column`.
    pub(crate) fn keep_boxes(&mut self, column: usize, boxes: Rc<KeptBoxes>) {
        self.boxes.push((column, boxes));
    }

    /// Returns the sample's object in the annotation in field `name`.
    pub(crate) fn object(&mut self, name: &str) -> Result<&VocObject, BadSampleProblem> {
        let sample = self.sample;
        let objects = &self.annotation(name)?.objects;
        objects.get(sample as usize).ok_or_else(|| BadSampleProblem::BoxMissing {
            field: name.to_owned(),
            index: sample,
            boxes: objects.len(),
        })
    }

    /// Returns COCO's annotations in field `name`.
    pub(crate) fn coco(&mut self, name: &str) -> Result<Rc<[CocoAnnotation]>, BadSampleProblem> {
        if let Some((_, known)) = self.coco.iter().find(|(field, _)| field == name) {
            return Ok(known.clone());
        }
        let file = self.first_of(&[name.to_owned()])?.1.into_file();
        let annotations = Rc::from(coco::read(&file, name)?);
        self.coco.push((name.to_owned(), Rc::clone(&annotations)));
        Ok(annotations)
    }

    /// Returns the annotation in field `name`.
    pub(crate) fn annotation(&mut self, name: &str) -> Result<&Annotation, BadSampleProblem> {
        let known = self.annotations.iter().position(|(field, _)| field == name);
        let at = match known {
            Some(at) => at,
            None => {
                let bytes = self.first_of(&[name.to_owned()])?.1.into_file();
                let annotation = Annotation::parse(&bytes)
                    .map_err(|error| BadSampleProblem::Annotation { field: name.to_owned(), reason: reason(error) })?;
                self.annotations.push((name.to_owned(), annotation));
                self.annotations.len() - 1
            }
        };
        Ok(&self.annotations[at].1)
    }

    /// Returns the sample's bounding box in the annotation in field `name`.
    pub(crate) fn pixel_box(&mut self, name: &str) -> Result<PixelBox, BadSampleProblem> {
        let object = self.object(name)?;
        Ok([object.xmin, object.ymin, object.xmax, object.ymax])
    }
}

/// Returns the content of a field that has one value.
pub(crate) fn one_value(field: &str, value: FieldValue) -> Result<Content, BadSampleProblem> {
    value.into_one().map_err(|problem| BadSampleProblem::NotOneValue { field: field.to_owned(), problem })
}
