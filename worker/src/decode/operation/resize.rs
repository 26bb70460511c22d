//! The plan of `resize`.

use spdl_job::{Resize, Size};

use super::{PlanOperation, Planner};
use crate::decode::cause::BadSampleProblem;

impl PlanOperation for Resize {
    fn plan(&self, planner: &mut Planner<'_>) -> Result<(), BadSampleProblem> {
        let size = match self.size {
            Size::Square(short) => shorter_side(planner.size(), short),
            Size::HeightWidth(size) => size,
        };
        planner.resize(size, self.interpolation, self.antialias, self.full_decode);
        Ok(())
    }
}

/// Computes the size that torchvision's `resize` gives for one number: the longer side is rounded down.
fn shorter_side([width, height]: [u32; 2], short: u32) -> [u32; 2] {
    let long = |long: u32, side: u32| {
        let pixels = u64::from(short) * u64::from(long) / u64::from(side);
        u32::try_from(pixels).expect("both factors are bounded by the limits on pictures and sizes")
    };
    if width <= height { [long(height, width), short] } else { [short, long(width, height)] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_shorter_side_is_torchvisions() {
        assert_eq!(shorter_side([500, 375], 256), [256, 341]);
        assert_eq!(shorter_side([375, 500], 256), [341, 256]);
        assert_eq!(shorter_side([1, 16_384], 16_384), [268_435_456, 16_384]);
    }
}
