//! The picture of an `image` column that other columns follow, such as its mask: what becomes of it in a sample.

use std::rc::Rc;

use spdl_core::job::{Column, ColumnKind, ImageColumn, ImageOp};
use spdl_pixels::PictureLimits;

use super::{
    BadSampleProblem, SampleKey,
    draw::Draw,
    operation::{self, PicturePlan},
    record::SampleRecord,
};

/// An `image` column that another column follows.
pub(super) struct FollowedPicture {
    /// Number of the column in the job.
    column: usize,
    from: Vec<String>,
    ops: Vec<ImageOp>,
}

/// What becomes of the picture of a sample.
#[derive(Clone, Debug)]
pub(super) struct FollowedPlan {
    /// Width and height of the upright picture.
    pub(super) size: [u32; 2],
    pub(super) plan: PicturePlan,
}

impl FollowedPicture {
    /// Finds the column of this name. A valid job has it.
    pub(super) fn new(name: &str, columns: &[Column]) -> Self {
        let found = columns.iter().enumerate().find_map(|(number, column)| match &column.kind {
            ColumnKind::Image(ImageColumn { ops, .. }) if column.name == name => {
                Some(Self { column: number, from: column.from.clone(), ops: ops.clone() })
            }
            _ => None,
        });
        found.unwrap_or_else(|| panic!("a valid job has an image column `{name}` that others follow"))
    }

    /// Returns the fields that planning reads.
    pub(super) fn fields(&self) -> Vec<&str> {
        self.from.iter().map(String::as_str).chain(self.ops.iter().filter_map(ImageOp::field)).collect()
    }

    /// Returns what becomes of the picture in this sample: what the column itself draws. It is planned once for each record.
    pub(super) fn plan(
        &self,
        seed: u64,
        key: SampleKey,
        record: &mut SampleRecord<'_>,
        limits: PictureLimits,
    ) -> Result<Rc<FollowedPlan>, BadSampleProblem> {
        if let Some(plan) = record.plan_of(self.column) {
            return Ok(plan);
        }
        let (field, content) = record.first_of(&self.from)?;
        let bytes = content.into_file();
        if bytes.is_empty() {
            return Err(BadSampleProblem::Empty { field: field.to_owned() });
        }
        let picture = spdl_pixels::open(&bytes, limits)
            .map_err(|error| BadSampleProblem::of_picture(error, field, bytes.len(), limits))?;
        let size = picture.seen();
        let mut draw = Draw::new(seed, key.epoch, key.id.0);
        let plan = operation::plan(size, &self.ops, &mut draw, &mut |field| record.pixel_box(field))?;
        if let Some([width, height]) = plan.too_large(limits.pixels) {
            let (field, pixels) = (field.to_owned(), limits.pixels);
            return Err(BadSampleProblem::GrowsTooLarge { field, width, height, pixels });
        }
        let plan = Rc::new(FollowedPlan { size, plan });
        record.keep_plan(self.column, plan.clone());
        Ok(plan)
    }
}
