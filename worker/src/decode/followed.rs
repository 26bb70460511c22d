//! Plans the picture of an `image` column for the columns that follow it, such as its mask, which are changed as it is.

use std::rc::Rc;

use spdl_job::{Column, ColumnKind, ImageOp, PicturePlan};
use spdl_pixels::{PictureError, PictureLimits};
use spdl_types::Draw;

use super::{
    SampleKey,
    cause::BadSampleProblem,
    record::{FollowedPlan, SampleRecord},
    still::open_picture,
};

/// An `image` column that other columns follow.
pub(super) struct FollowedPicture {
    /// Number of the column among those that are decoded.
    number: usize,
    from: Vec<String>,
    ops: Vec<ImageOp>,
}

impl FollowedPicture {
    /// Finds the column of this name. A valid job has it.
    pub(super) fn new(name: &str, columns: &[Column]) -> Self {
        let found = columns.iter().enumerate().find_map(|(number, column)| match &column.kind {
            ColumnKind::Image(image) if column.name == name => Some(Self::of(number, column, &image.ops)),
            _ => None,
        });
        found.unwrap_or_else(|| panic!("a valid job has an image column `{name}` that others follow"))
    }

    /// The picture of column number `number`, with these operations.
    pub(super) fn of(number: usize, column: &Column, ops: &[ImageOp]) -> Self {
        Self { number, from: column.from.clone(), ops: ops.to_vec() }
    }

    /// Returns the fields that planning reads besides those that the column comes from.
    pub(super) fn fields(&self) -> impl Iterator<Item = &str> {
        self.ops.iter().filter_map(ImageOp::field)
    }

    /// Returns the width and height of each picture that this plan of the column gives.
    pub(super) fn size_of_result(&self, plan: &PicturePlan) -> [u32; 2] {
        // Several pictures lie one below the other.
        let [width, height] = plan.size();
        [width, height / self.ops.last().map_or(1, ImageOp::pictures)]
    }

    /// Returns the plan that the column draws for the picture of this sample. Reads the picture's header if no column
    /// has needed the plan yet.
    pub(super) fn plan(
        &self,
        (seed, key): (u64, SampleKey),
        limits: PictureLimits,
        record: &mut SampleRecord<'_>,
    ) -> Result<Rc<FollowedPlan>, BadSampleProblem> {
        if let Some(known) = record.plan_of(self.number) {
            return Ok(known);
        }
        let (field, content) = record.first_of(&self.from)?;
        let bytes = content.into_file();
        if bytes.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let problem = |error: PictureError| BadSampleProblem::of_picture(error, field, bytes.len(), limits);
        let picture = open_picture(&bytes, limits, None).map_err(problem)?;
        self.plan_of_size(picture.seen(), (seed, key), record)
    }

    /// Returns the plan that the column draws for the picture of this sample, which has this width and height.
    pub(super) fn plan_of_size(
        &self,
        size: [u32; 2],
        (seed, key): (u64, SampleKey),
        record: &mut SampleRecord<'_>,
    ) -> Result<Rc<FollowedPlan>, BadSampleProblem> {
        if let Some(known) = record.plan_of(self.number) {
            return Ok(known);
        }
        let planned = self.plan_of_part(size, (seed, key), 0, record)?;
        record.keep_plan(self.number, planned.clone());
        Ok(planned)
    }

    /// Returns the plan that the column draws for picture number `part` of the list of this sample, which has this
    /// width and height.
    pub(super) fn plan_of_part(
        &self,
        size: [u32; 2],
        (seed, key): (u64, SampleKey),
        part: u32,
        record: &mut SampleRecord<'_>,
    ) -> Result<Rc<FollowedPlan>, BadSampleProblem> {
        let mut draw = Draw::of_part(seed, key.epoch, key.id.0, part);
        let mut no_box = None;
        let mut box_of = |field: &str| record.pixel_box(field).map_err(|problem| no_box = Some(problem)).ok();
        let planned = PicturePlan::new(size, &self.ops, &mut draw, &mut box_of);
        let plan = planned.map_err(|problem| no_box.unwrap_or_else(|| problem.into()))?;
        Ok(Rc::new(FollowedPlan { size, plan }))
    }
}

/// Returns the numbers of the columns of a batch in the order in which they are decoded: each after the other that it
/// follows, so that a picture that cannot be read is the fault of its own column. `decoded` are all columns that are decoded.
pub(super) fn decoding_order(columns: &[Column], decoded: &[Column]) -> Vec<usize> {
    fn depth(column: &Column, decoded: &[Column]) -> usize {
        let followed = column.kind.follows().and_then(|name| decoded.iter().find(|other| other.name == name));
        followed.map_or(0, |followed| 1 + depth(followed, decoded))
    }
    let mut order: Vec<usize> = (0..columns.len()).collect();
    order.sort_by_key(|number| depth(&columns[*number], decoded));
    order
}
