//! The operations of an `image` column on pictures that are decoded already.

use spdl_canvas::PixelOp;
use spdl_job::{ImageOp, OperationProblem, PicturePlan};
use spdl_operations::{OperationScratch, RgbPicture};
use spdl_types::Draw;

use super::cause::ValueResult;
use super::{BadSampleProblem, PictureLimits};

/// The operations of an `image` column, without the column.
#[derive(Clone, Debug)]
pub struct PictureOps {
    ops: Vec<ImageOp>,
    seed: u64,
}

impl PictureOps {
    /// Creates the operations from valid ones. Random operations draw as they do in a job with this seed.
    #[must_use]
    pub const fn new(ops: Vec<ImageOp>, seed: u64) -> Self {
        Self { ops, seed }
    }

    /// Returns the number of pictures that the operations make of one.
    #[must_use]
    pub fn pictures(&self) -> u32 {
        self.ops.last().map_or(1, ImageOp::pictures)
    }

    /// Applies the operations to the picture of a sample. Several pictures that they make of one lie one below the other.
    ///
    /// # Errors
    /// [`BadSampleProblem`] if an operation needs a record, or if the picture becomes larger than the limits.
    ///
    /// # Panics
    /// If the picture has no pixels, or a number of bytes that does not fit its size.
    pub fn apply(
        &self,
        [epoch, id]: [u64; 2],
        picture: &mut RgbPicture<'_>,
        scratch: &mut OperationScratch,
        limits: PictureLimits,
    ) -> ValueResult {
        let [width, height] = picture.size;
        assert_eq!(picture.pixels.len(), width as usize * height as usize * 3, "bytes of {width}x{height} pixels");
        let mut draw = Draw::new(self.seed, epoch, id);
        let planned = PicturePlan::new(picture.size, &self.ops, &mut draw, &mut |_| None);
        let plan = planned.map_err(|problem| match problem {
            OperationProblem::NoBox { field } => {
                BadSampleProblem::Missing { fields: format!("`{field}`"), there: Vec::new() }
            }
            problem => problem.into(),
        })?;
        if let Some([width, height]) = plan.too_large(limits.pixels) {
            let (field, pixels) = ("picture".to_owned(), limits.pixels);
            return Err(BadSampleProblem::GrowsTooLarge { field, width, height, pixels });
        }
        let PicturePlan { decode, then, .. } = plan;
        if !decode.is_identity(picture.size) {
            spdl_operations::run(&[PixelOp::Resample(decode)], picture, scratch);
        }
        spdl_operations::run(&then, picture, scratch);
        Ok(())
    }
}
