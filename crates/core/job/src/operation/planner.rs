//! The plan of a picture while operations add to it.

use std::{iter, mem};

use spdl_canvas::{Canvas, Filter, Matrix, MovedBox, PadWith, PixelBox, PixelOp, ResamplePlan};
use spdl_types::Draw;

use super::{
    Fill, ImageOp, Interpolation, PaddingMode, WarpInterpolation,
    affine::{Affine, warp},
};

/// Why operations have no plan for a picture.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
#[allow(missing_docs)]
pub enum OperationProblem {
    #[error(
        "a picture of {width}x{height} is smaller than the {columns}x{rows} of `{operation}`; resize or pad it before"
    )]
    TooSmall { width: u32, height: u32, columns: u32, rows: u32, operation: &'static str },
    #[error(
        "a picture of {width}x{height} is more than {ratio} times as long as it is wide, which `smart_resize` takes no more of"
    )]
    TooNarrow { width: u32, height: u32, ratio: u32 },
    #[error("field `{field}` has a box that leaves nothing of the picture")]
    BoxEmpty { field: String },
    #[error("there is no box in field `{field}`")]
    NoBox { field: String },
}

/// Returns the sample's bounding box in the annotation in a field, if there is one.
type BoxOf<'a> = &'a mut dyn FnMut(&str) -> Option<PixelBox>;

/// The plan of how a picture is decoded and changed.
#[derive(Clone, Debug, PartialEq)]
pub struct PicturePlan {
    /// The part that is decoded, and its size.
    pub decode: ResamplePlan,
    /// What is done with the decoded pixels.
    pub then: Vec<PixelOp>,
    /// The geometry of `decode`, and of each resampling in `then`.
    canvases: Vec<Canvas>,
}

impl PicturePlan {
    /// Plans operations for a picture that is `width` x `height` pixels when upright, both at least 1. `box_of` returns the
    /// sample's bounding box in the annotation in a field, if there is one.
    ///
    /// # Errors
    /// [`OperationProblem`] if an operation cannot be done on the picture.
    pub fn new(
        size: [u32; 2],
        ops: &[ImageOp],
        draw: &mut Draw,
        box_of: &mut dyn FnMut(&str) -> Option<PixelBox>,
    ) -> Result<Self, OperationProblem> {
        let mut planner = PicturePlanner::new(size, draw, box_of);
        planner.add(ops)?;
        Ok(planner.finish())
    }

    /// Returns the width and height of the result.
    #[must_use]
    pub fn size(&self) -> [u32; 2] {
        self.then.iter().fold(self.decode.size, |size, op| op.output_size(size))
    }

    /// Returns where a box of the picture is in the result; `None` if nothing of it is left.
    #[must_use]
    pub fn moved(&self, moved: MovedBox) -> Option<MovedBox> {
        let mut canvases = self.canvases.iter();
        let mut next = |moved: MovedBox| canvases.next().expect("a canvas for each resampling").moved(moved);
        let mut moved = next(moved)?;
        let mut size = self.decode.size;
        for op in &self.then {
            let after = op.output_size(size);
            let [width, height] = after.map(f64::from);
            let bounds = [0.0, 0.0, width, height];
            match op {
                PixelOp::Resample(_) => moved = next(moved)?,
                PixelOp::Warp(warp) => moved = moved.clipped(warp.bounds_of(moved.edges)?, bounds)?,
                PixelOp::Pad { sides: [left, top, ..], .. } => {
                    let [across, down] = [*left, *top].map(f64::from);
                    let [left, top, right, bottom] = moved.edges;
                    moved.edges = [left + across, top + down, right + across, bottom + down];
                }
                _ => {}
            }
            size = after;
        }
        Some(moved)
    }

    /// Returns the matrix from places in the result to places in the upright picture. It does not cover pixels that
    /// padding reflects.
    #[must_use]
    pub fn to_picture(&self) -> Matrix {
        let mut canvases = self.canvases.iter();
        let mut next = || canvases.next().expect("a canvas for each resampling").matrix();
        let first = next();
        let all = self.then.iter().fold(first, |before, op| match op {
            PixelOp::Resample(_) => before.after(&next()),
            PixelOp::Warp(warp) => {
                let [a, b, c, d, e, f, g, h] = warp.factors.map(f64::from);
                before.after(&Matrix([[a, b, c], [d, e, f], [g, h, 1.0]]))
            }
            PixelOp::Pad { sides: [left, top, ..], .. } => {
                before.after(&Matrix::scaled_and_moved([1.0; 2], [-f64::from(*left), -f64::from(*top)]))
            }
            _ => before,
        });
        all.normalised()
    }

    /// Returns the first size of the decoded picture that has more than `pixels` pixels.
    #[must_use]
    pub fn too_large(&self, pixels: u64) -> Option<[u32; 2]> {
        let mut size = self.decode.size;
        let sizes = self.then.iter().map(|op| {
            size = op.output_size(size);
            size
        });
        let is_too_large = |[width, height]: &[u32; 2]| u64::from(*width) * u64::from(*height) > pixels;
        iter::once(self.decode.size).chain(sizes).find(is_too_large)
    }
}

/// Collects the steps of operations.
pub struct PicturePlanner<'a> {
    pub(super) draw: &'a mut Draw,
    box_of: BoxOf<'a>,
    /// What decoding does, once a step has changed values.
    decode: Option<ResamplePlan>,
    then: Vec<PixelOp>,
    canvases: Vec<Canvas>,
    /// The geometry since the last step that changed values.
    canvas: Canvas,
}

impl<'a> PicturePlanner<'a> {
    pub(super) fn new(size: [u32; 2], draw: &'a mut Draw, box_of: BoxOf<'a>) -> Self {
        Self { draw, box_of, decode: None, then: Vec::new(), canvases: Vec::new(), canvas: Canvas::new(size) }
    }

    /// Adds the steps of operations.
    pub(super) fn add(&mut self, ops: &[ImageOp]) -> Result<(), OperationProblem> {
        ops.iter().try_for_each(|op| op.plan(self))
    }

    /// Returns the width and height of the picture after the steps so far, both at least 1.
    pub(super) const fn size(&self) -> [u32; 2] {
        self.canvas.size()
    }

    /// Returns the canvas, for a step that only moves pixels.
    pub(super) const fn canvas(&mut self) -> &mut Canvas {
        &mut self.canvas
    }

    /// Cuts out the sample's bounding box, widened on each side by `margin` of its size.
    pub(super) fn crop_box(&mut self, field: &str, margin: f32) -> Result<(), OperationProblem> {
        let edges = (self.box_of)(field).ok_or_else(|| OperationProblem::NoBox { field: field.to_owned() })?;
        let cut = self.canvas.crop_box(edges, margin);
        cut.ok_or_else(|| OperationProblem::BoxEmpty { field: field.to_owned() })
    }

    /// Resizes to this height and width: while decoding if the weights are those of decoding, and otherwise, or if
    /// `full_decode`, on the decoded picture.
    pub(super) fn resize(
        &mut self,
        [height, width]: [u32; 2],
        interpolation: Interpolation,
        antialias: bool,
        full_decode: bool,
    ) {
        let filter = match interpolation {
            Interpolation::Bilinear if antialias => Filter::Bilinear,
            Interpolation::Bilinear => Filter::PlainBilinear,
            Interpolation::Nearest => Filter::Nearest,
            Interpolation::Bicubic => Filter::CatmullRom,
            Interpolation::Lanczos => Filter::Lanczos3,
            Interpolation::Box => Filter::Box,
            Interpolation::Hamming => Filter::Hamming,
        };
        if filter == Filter::default() && !full_decode {
            return self.canvas.resize([height, width]);
        }
        if self.size() == [width, height] {
            return;
        }
        self.end_geometry();
        self.canvas.resize([height, width]);
        self.resample(filter);
    }

    /// Pads by this many pixels on the left, top, right and bottom.
    pub(super) fn pad(&mut self, sides: [u32; 4], fill: Fill, mode: PaddingMode) {
        let with = match mode {
            _ if sides == [0; 4] => return,
            PaddingMode::Constant if fill == Fill::default() => return self.canvas.pad(sides),
            PaddingMode::Constant => PadWith::Constant(fill.0),
            PaddingMode::Edge => PadWith::Edge,
            PaddingMode::Reflect => PadWith::Reflect,
            PaddingMode::Symmetric => PadWith::Symmetric,
        };
        self.change(PixelOp::Pad { sides, with });
    }

    /// Rotates counter-clockwise by an angle in degrees. If `expands`, the result is as large as the rotated picture.
    pub(super) fn rotate(
        &mut self,
        angle: f64,
        expands: bool,
        interpolation: WarpInterpolation,
        fill: Option<[u8; 3]>,
    ) {
        let size = self.size();
        let matrix = Affine { angle: -angle, ..Affine::default() }.inverse();
        let result = if expands { rotated_size(matrix, size) } else { size };
        self.change(warp(matrix, size, result, interpolation, fill));
    }

    /// Draws whether something of this probability happens.
    pub(super) fn happens(&mut self, p: f32) -> bool {
        self.draw.unit() < f64::from(p)
    }

    /// Adds a step that changes values.
    pub(super) fn change(&mut self, op: PixelOp) {
        self.end_geometry();
        let size = op.output_size(self.size());
        self.then.push(op);
        self.canvas = Canvas::new(size);
    }

    /// Returns the steps that `add` makes, instead of adding them to the plan. They must keep the size and change
    /// values.
    pub(super) fn aside(&mut self, add: impl FnOnce(&mut Self)) -> Vec<PixelOp> {
        self.end_geometry();
        let before = mem::take(&mut self.then);
        add(self);
        mem::replace(&mut self.then, before)
    }

    fn end_geometry(&mut self) {
        let size = self.size();
        if self.decode.is_none() {
            self.decode = Some(self.canvas.plan());
            self.canvases.push(self.canvas);
            self.canvas = Canvas::new(size);
        } else if self.canvas != Canvas::new(size) {
            self.resample(Filter::default());
        }
    }

    /// Adds the geometry since the last step that changed values as a step on the decoded picture.
    fn resample(&mut self, filter: Filter) {
        self.then.push(PixelOp::Resample(ResamplePlan { filter, ..self.canvas.plan() }));
        self.canvases.push(self.canvas);
        self.canvas = Canvas::new(self.size());
    }

    pub(super) fn finish(mut self) -> PicturePlan {
        self.end_geometry();
        let decode = self.decode.expect("the geometry has ended");
        PicturePlan { decode, then: self.then, canvases: self.canvases }
    }
}

/// Returns the width and height of the box round a rotated picture.
fn rotated_size([a, b, _, d, e, _]: [f64; 6], size: [u32; 2]) -> [u32; 2] {
    let [width, height] = size.map(f64::from);
    // The box is symmetric round the middle of the picture. A rounding error must not become a pixel.
    let side = |across: f64, down: f64, own: f64| {
        let reach = (across.abs() * width + down.abs() * height) / 2.0;
        let end = ((reach + own / 2.0) * 1e4).trunc() / 1e4;
        let start = ((own / 2.0 - reach) * 1e4).trunc() / 1e4;
        (end.ceil() - start.floor()).max(1.0) as u32
    };
    [side(a, b, width), side(d, e, height)]
}
