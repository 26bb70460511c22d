//! Computes where every pixel of the result comes from: applies steps to a canvas that begins as the whole picture,
//! before the picture is decoded. All steps are separable, so a plan is two [`AxisSpan`] values. However many steps there
//! are, pixels are resampled once, and only from the part of the picture that is needed.

use super::{AxisSpan, Filter, Matrix, ResamplePlan};

/// A rectangle in whole pixels.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rectangle {
    /// First column.
    pub left: u32,
    /// First row.
    pub top: u32,
    /// Number of columns.
    pub width: u32,
    /// Number of rows.
    pub height: u32,
}

/// One dimension of the canvas that the steps work on, and its mapping to the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
struct ImageAxis {
    /// Size of the canvas in pixels.
    size: u32,
    /// Position in the picture where the canvas begins; negative if padding was added there.
    origin: f64,
    /// Length in the picture that the canvas covers.
    extent: f64,
    /// Range of the picture that is visible; outside it the canvas is black.
    visible: (f64, f64),
    /// Range of the picture's pixels that resampling may read. Crops before the first resize limit it, so that pixels
    /// outside a crop do not blend into its border.
    readable: (u32, u32),
}

impl ImageAxis {
    fn whole(size: u32) -> Self {
        let end = f64::from(size);
        Self { size, origin: 0.0, extent: end, visible: (0.0, end), readable: (0, size) }
    }

    fn is_unscaled(&self) -> bool {
        self.extent == f64::from(self.size)
    }

    fn step(&self) -> f64 {
        self.extent / f64::from(self.size)
    }

    fn crop(&mut self, at: u32, size: u32) {
        debug_assert!(size >= 1 && at + size <= self.size, "crop {at}+{size} of {}", self.size);
        let unscaled = self.is_unscaled();
        self.origin += f64::from(at) * self.step();
        self.extent = if unscaled { f64::from(size) } else { f64::from(size) * self.step() };
        self.size = size;
        if unscaled {
            let bound = |place: f64| place.clamp(f64::from(self.readable.0), f64::from(self.readable.1)) as u32;
            self.readable = (bound(self.origin), bound(self.origin + self.extent));
        }
    }

    const fn resize(&mut self, size: u32) {
        self.size = size;
    }

    /// Crops like torchvision's `center_crop`: padding is half the difference, rounded down; cuts are at half of it,
    /// ties to even. With `mirrored`, the canvas is read from its end.
    fn center(&mut self, size: u32, mirrored: bool) {
        if size <= self.size {
            let spare = self.size - size;
            let at = (f64::from(spare) / 2.0).round_ties_even() as u32;
            self.crop(if mirrored { spare - at } else { at }, size);
            return;
        }
        let spare = size - self.size;
        self.pad(if mirrored { spare - spare / 2 } else { spare / 2 }, size);
    }

    /// Pads to `size` pixels; `before` of the new pixels come before the canvas.
    fn pad(&mut self, before: u32, size: u32) {
        let step = self.step();
        let end = self.origin + self.extent;
        self.visible = (self.visible.0.max(self.origin), self.visible.1.min(end));
        self.origin -= f64::from(before) * step;
        self.extent = f64::from(size) * step;
        self.size = size;
    }

    /// Returns where two places of the picture are on the axis, and the range in which something is visible.
    fn moved(&self, (low, high): (f64, f64), reversed: bool) -> ((f64, f64), (f64, f64)) {
        let (step, size) = (self.step(), f64::from(self.size));
        let seen = (self.visible.0.max(self.origin), self.visible.1.min(self.origin + self.extent));
        let range = |(low, high): (f64, f64)| {
            let (low, high) = ((low - self.origin) / step, (high - self.origin) / step);
            if reversed { (size - high, size - low) } else { (low, high) }
        };
        (range((low, high)), range(seen))
    }

    /// Returns the factor and the summand that convert a place on the axis to the place in the picture.
    fn scale_and_origin(&self, reversed: bool) -> [f64; 2] {
        let step = self.step();
        if reversed { [-step, self.origin + step * f64::from(self.size)] } else { [step, self.origin] }
    }

    /// Returns the span to resample; `None` if no part of the picture is visible.
    fn span(&self) -> Option<AxisSpan> {
        let step = self.step();
        let seen = (self.visible.0.max(f64::from(self.readable.0)), self.visible.1.min(f64::from(self.readable.1)));
        let pixel = |place: f64| ((place - self.origin) / step).round().clamp(0.0, f64::from(self.size)) as u32;
        let (place, end) = (pixel(seen.0), pixel(seen.1));
        if end <= place {
            return None;
        }
        let pixels = end - place;
        let (from, extent) = if pixels == self.size {
            (self.origin, self.extent)
        } else {
            (self.origin + f64::from(place) * step, f64::from(pixels) * step)
        };
        // Rounding may have moved an end by half a pixel of the result, so it is clamped to the readable range.
        let from = from.max(f64::from(self.readable.0));
        let extent = extent.min(f64::from(self.readable.1) - from);
        (extent > 0.0).then_some(AxisSpan { readable: self.readable, from, extent, place, pixels, size: self.size })
    }
}

/// A sample's bounding box, in pixels of the upright picture: left, top, right, bottom.
pub type PixelBox = [f32; 4];

/// A box on its way to its place in the result.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MovedBox {
    /// Left, top, right and bottom.
    pub edges: [f64; 4],
    /// The share of its area that is left.
    pub visible: f64,
}

impl MovedBox {
    /// A box that is all visible.
    #[must_use]
    pub const fn new(edges: [f64; 4]) -> Self {
        Self { edges, visible: 1.0 }
    }

    /// Clips the box to a rectangle, after it was moved to `edges`; `None` if nothing is left.
    #[must_use]
    pub fn clipped(self, edges: [f64; 4], bounds: [f64; 4]) -> Option<Self> {
        let [left, top] = [0, 1].map(|at| edges[at].max(bounds[at]));
        let [right, bottom] = [2, 3].map(|at| edges[at].min(bounds[at]));
        let area = (edges[2] - edges[0]) * (edges[3] - edges[1]);
        // Also leaves out what is not finite.
        let is_left = left < right && top < bottom && area.is_finite();
        let visible = self.visible * ((right - left) * (bottom - top) / area);
        is_left.then_some(Self { edges: [left, top, right, bottom], visible })
    }
}

/// The canvas that steps work on.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Canvas {
    x: ImageAxis,
    y: ImageAxis,
    mirrored: bool,
    flipped: bool,
}

impl Canvas {
    /// Makes a canvas that shows a whole picture of this width and height.
    #[must_use]
    pub fn new([width, height]: [u32; 2]) -> Self {
        Self { x: ImageAxis::whole(width), y: ImageAxis::whole(height), mirrored: false, flipped: false }
    }

    /// Returns its width and height.
    #[must_use]
    pub const fn size(&self) -> [u32; 2] {
        [self.x.size, self.y.size]
    }

    /// Returns where a box of the picture is on the canvas as it is seen; `None` if nothing of it is visible.
    #[must_use]
    pub fn moved(&self, moved: MovedBox) -> Option<MovedBox> {
        let [left, top, right, bottom] = moved.edges;
        let ((left, right), across) = self.x.moved((left, right), self.mirrored);
        let ((top, bottom), down) = self.y.moved((top, bottom), self.flipped);
        moved.clipped([left, top, right, bottom], [across.0, down.0, across.1, down.1])
    }

    /// Returns the matrix from places on the canvas as it is seen to places in the picture.
    #[must_use]
    pub fn matrix(&self) -> Matrix {
        let ([across, left], [down, top]) =
            (self.x.scale_and_origin(self.mirrored), self.y.scale_and_origin(self.flipped));
        Matrix::scaled_and_moved([across, down], [left, top])
    }

    /// Returns where the pixels of the canvas come from.
    #[must_use]
    pub fn plan(&self) -> ResamplePlan {
        let Self { x, y, mirrored, flipped } = self;
        ResamplePlan {
            x: x.span(),
            y: y.span(),
            mirrored: *mirrored,
            flipped: *flipped,
            size: self.size(),
            filter: Filter::default(),
        }
    }

    /// Cuts a rectangle out of the canvas as it is seen.
    pub fn crop(&mut self, crop: Rectangle) {
        let place = |at: u32, size: u32, of: u32, reversed: bool| if reversed { of - at - size } else { at };
        self.x.crop(place(crop.left, crop.width, self.x.size, self.mirrored), crop.width);
        self.y.crop(place(crop.top, crop.height, self.y.size, self.flipped), crop.height);
    }

    /// Cuts the middle out, of this height and width; what the canvas lacks is padding.
    pub fn center(&mut self, [height, width]: [u32; 2]) {
        self.x.center(width, self.mirrored);
        self.y.center(height, self.flipped);
    }

    /// Pads by this many pixels on the left, top, right and bottom of the canvas as it is seen.
    pub fn pad(&mut self, [left, top, right, bottom]: [u32; 4]) {
        self.x.pad(if self.mirrored { right } else { left }, self.x.size + left + right);
        self.y.pad(if self.flipped { bottom } else { top }, self.y.size + top + bottom);
    }

    /// Mirrors top to bottom.
    pub const fn flip(&mut self) {
        self.flipped = !self.flipped;
    }

    /// Mirrors left to right.
    pub const fn mirror(&mut self) {
        self.mirrored = !self.mirrored;
    }

    /// Resizes to this height and width.
    pub const fn resize(&mut self, [height, width]: [u32; 2]) {
        self.x.resize(width);
        self.y.resize(height);
    }

    /// Crops to a box that is widened on each side by `margin` of its size, rounded outwards and clipped to the canvas.
    /// Returns `None` if nothing is left.
    pub fn crop_box(&mut self, [left, top, right, bottom]: PixelBox, margin: f32) -> Option<()> {
        for (axis, low, high) in [(&mut self.x, left, right), (&mut self.y, top, bottom)] {
            let (low, high) = (f64::from(low), f64::from(high));
            let wider = (high - low) * f64::from(margin);
            let step = axis.step();
            let pixel = |place: f64| ((place - axis.origin) / step).clamp(0.0, f64::from(axis.size));
            let (start, end) = (pixel(low - wider).floor(), pixel(high + wider).ceil());
            // Also refuses a box with NaN coordinates.
            if !(low < high && start < end) {
                return None;
            }
            axis.crop(start as u32, (end - start) as u32);
        }
        Some(())
    }
}
