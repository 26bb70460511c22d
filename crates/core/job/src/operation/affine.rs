//! The matrices of affine changes, as torchvision defines them.

use spdl_canvas::{PixelOp, Sampling, Warp};
use spdl_types::elementary::sin_cos;

use super::WarpInterpolation;

/// A change round the middle of the picture: a rotation, clockwise, of a picture that is sheared and scaled; then a move.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Affine {
    /// In degrees.
    pub(super) angle: f64,
    /// To the right and down, in pixels.
    pub(super) translate: [f64; 2],
    pub(super) scale: f64,
    /// Along the rows and along the columns, in degrees.
    pub(super) shear: [f64; 2],
    /// The point that stays where it is, from the middle of the picture.
    pub(super) center: [f64; 2],
}

impl Default for Affine {
    fn default() -> Self {
        Self { angle: 0.0, translate: [0.0; 2], scale: 1.0, shear: [0.0; 2], center: [0.0; 2] }
    }
}

impl Affine {
    /// Returns the matrix that gives for a place in the result the place in the picture; both from their middles.
    pub(super) fn inverse(&self) -> [f64; 6] {
        let Self { angle, translate, scale, shear: [shear_x, shear_y], center } = *self;
        let ((sin, cos), (sin_x, cos_x), (_, cos_y)) = (sin_cos(angle - shear_y), sin_cos(shear_x), sin_cos(shear_y));
        let (rotate_sin, rotate_cos) = sin_cos(angle);
        let tan_x = sin_x / cos_x;
        // The matrix from the picture to the result, without the scale; its determinant is 1.
        let (a, b) = (cos / cos_y, -cos * tan_x / cos_y - rotate_sin);
        let (c, d) = (sin / cos_y, -sin * tan_x / cos_y + rotate_cos);
        let [a, b, c, d] = [d / scale, -b / scale, -c / scale, a / scale];
        let [x, y] = [-center[0] - translate[0], -center[1] - translate[1]];
        [a, b, a * x + b * y + center[0], c, d, c * x + d * y + center[1]]
    }
}

/// Returns the change of a picture of `size` to one of `result`, both width and height, by a matrix from the middle of the
/// result to the middle of the picture.
pub(super) fn warp(
    [a, b, c, d, e, f]: [f64; 6],
    size: [u32; 2],
    result: [u32; 2],
    interpolation: WarpInterpolation,
    fill: Option<[u8; 3]>,
) -> PixelOp {
    let [x, y] = result.map(|side| f64::from(side) / 2.0);
    let [width, height] = size.map(|side| f64::from(side) / 2.0);
    let factors = [a, b, c - a * x - b * y + width, d, e, f - d * x - e * y + height, 0.0, 0.0];
    of_factors(factors, result, interpolation, fill)
}

/// Returns the change of places by these factors.
pub(super) fn of_factors(
    factors: [f64; 8],
    size: [u32; 2],
    interpolation: WarpInterpolation,
    fill: Option<[u8; 3]>,
) -> PixelOp {
    let sampling = match interpolation {
        WarpInterpolation::Nearest => Sampling::Nearest,
        WarpInterpolation::Bilinear => Sampling::Bilinear,
    };
    PixelOp::Warp(Warp { factors: factors.map(|factor| factor as f32), sampling, fill, size })
}
