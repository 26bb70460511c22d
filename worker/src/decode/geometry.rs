//! Computes where every pixel of the result comes from: plans a column's steps from the picture's size, before it is
//! decoded. All steps are separable, so a plan is two [`ImageAxis`] values. However many steps there are, pixels are
//! resampled once, and only from the part of the picture that is needed.

use spdl_core::job::{ImageOp, Size};

use super::{crop::random_resized_crop, draw::Draw};

/// One dimension of the canvas that the steps work on, and its mapping to the picture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ImageAxis {
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

/// One dimension of a resampling: `extent` from `from` on becomes `pixels` pixels at `place` of `size`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct AxisSpan {
    /// Pixels of the picture that may be read: the first one, and one past the last.
    pub(crate) readable: (u32, u32),
    /// Start in the picture.
    pub(crate) from: f64,
    /// Length in the picture; positive.
    pub(crate) extent: f64,
    /// First pixel of the result that shows the picture.
    pub(crate) place: u32,
    /// Number of pixels of the result that show the picture; at least 1.
    pub(crate) pixels: u32,
    /// Size of the result in pixels.
    pub(crate) size: u32,
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

    fn resize(&mut self, size: u32) {
        self.size = size;
    }

    /// Crops like torchvision's `center_crop`: padding is half the difference, rounded down; cuts are at half of it,
    /// ties to even. `mirrored` says that the canvas is read from its end.
    fn center(&mut self, size: u32, mirrored: bool) {
        if size <= self.size {
            let spare = self.size - size;
            let at = (f64::from(spare) / 2.0).round_ties_even() as u32;
            self.crop(if mirrored { spare - at } else { at }, size);
            return;
        }
        let spare = size - self.size;
        let before = if mirrored { spare - spare / 2 } else { spare / 2 };
        let step = self.step();
        let end = self.origin + self.extent;
        self.visible = (self.visible.0.max(self.origin), self.visible.1.min(end));
        self.origin -= f64::from(before) * step;
        self.extent = f64::from(size) * step;
        self.size = size;
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

/// The plan of a picture: where each pixel of the result comes from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct ResamplePlan {
    /// The horizontal span; `None` in either dimension means that the result is all black.
    pub(crate) x: Option<AxisSpan>,
    /// The vertical span.
    pub(crate) y: Option<AxisSpan>,
    /// Whether the result is mirrored left to right.
    pub(crate) mirrored: bool,
}

/// A sample's bounding box, in pixels of the upright picture: left, top, right, bottom.
pub(crate) type PixelBox = [f32; 4];

/// The error of a box that contains no part of the picture; holds the name of the annotation's field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct EmptyBox(pub(crate) String);

/// Plans the steps of a column for a picture that is `width` x `height` pixels when upright, both at least 1. `box_of`
/// returns the sample's bounding box for the annotation's field.
pub(crate) fn plan<E: From<EmptyBox>>(
    [width, height]: [u32; 2],
    ops: &[ImageOp],
    draw: &mut Draw,
    mut box_of: impl FnMut(&str) -> Result<PixelBox, E>,
) -> Result<ResamplePlan, E> {
    let mut canvas = Geometry { x: ImageAxis::whole(width), y: ImageAxis::whole(height), mirrored: false };
    for op in ops {
        match op {
            ImageOp::CropBox { field, margin } => {
                canvas.crop_box(box_of(field)?, *margin).ok_or_else(|| EmptyBox(field.clone()))?;
            }
            ImageOp::RandomResizedCrop { size, scale, ratio } => {
                let crop = random_resized_crop([canvas.x.size, canvas.y.size], *scale, *ratio, draw);
                let left = if canvas.mirrored { canvas.x.size - crop.left - crop.width } else { crop.left };
                canvas.x.crop(left, crop.width);
                canvas.y.crop(crop.top, crop.height);
                canvas.resize(size.height_width());
            }
            ImageOp::Resize { size: Size::Square(short) } => {
                canvas.resize(shorter_side([canvas.x.size, canvas.y.size], *short));
            }
            ImageOp::Resize { size: Size::HeightWidth(size) } => canvas.resize(*size),
            ImageOp::CenterCrop { size } => {
                let [height, width] = size.height_width();
                canvas.x.center(width, canvas.mirrored);
                canvas.y.center(height, false);
            }
            ImageOp::RandomFlip { p } => canvas.mirrored ^= draw.unit() < f64::from(*p),
        }
    }
    Ok(ResamplePlan { x: canvas.x.span(), y: canvas.y.span(), mirrored: canvas.mirrored })
}

struct Geometry {
    x: ImageAxis,
    y: ImageAxis,
    mirrored: bool,
}

impl Geometry {
    fn resize(&mut self, [height, width]: [u32; 2]) {
        self.x.resize(width);
        self.y.resize(height);
    }

    /// Crops to a box that is widened on each side by `margin` of its size, rounded outwards and clipped to the canvas.
    /// Returns `None` if nothing is left.
    fn crop_box(&mut self, [left, top, right, bottom]: PixelBox, margin: f32) -> Option<()> {
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

    fn planned(size: [u32; 2], ops: &[ImageOp]) -> ResamplePlan {
        plan(size, ops, &mut Draw::new(1, 2, 3), |_| Ok::<_, EmptyBox>([10.0, 20.0, 30.0, 60.0])).unwrap()
    }

    fn crop_box(margin: f32) -> ImageOp {
        ImageOp::CropBox { field: "xml".to_owned(), margin }
    }

    #[test]
    fn resize_and_center_crop_read_a_fraction_of_the_picture_once() {
        let ops =
            [ImageOp::Resize { size: Size::Square(256) }, ImageOp::CenterCrop { size: Size::HeightWidth([224, 224]) }];
        let plan = planned([500, 375], &ops);
        // 500x375 -> 341x256 -> 224x224: 58 and 16 pixels of the resized picture are cut off.
        let (x, y) = (plan.x.unwrap(), plan.y.unwrap());
        assert!((x.from - 58.0 * 500.0 / 341.0).abs() < 1e-9 && (x.extent - 224.0 * 500.0 / 341.0).abs() < 1e-9);
        assert!((y.from - 16.0 * 375.0 / 256.0).abs() < 1e-9 && (y.extent - 224.0 * 375.0 / 256.0).abs() < 1e-9);
        assert_eq!((x.readable, y.readable), ((0, 500), (0, 375)), "the border sees its neighbours");
        assert_eq!((x.place, x.pixels, y.place, y.pixels), (0, 224, 0, 224));
    }

    #[test]
    fn a_crop_before_the_resize_hides_its_surroundings() {
        let plan = planned([100, 100], &[crop_box(0.0), ImageOp::Resize { size: Size::HeightWidth([8, 8]) }]);
        let (x, y) = (plan.x.unwrap(), plan.y.unwrap());
        assert_eq!((x.readable, x.from, x.extent), ((10, 30), 10.0, 20.0));
        assert_eq!((y.readable, y.from, y.extent), ((20, 60), 20.0, 40.0));
    }

    #[test]
    fn a_box_is_widened_and_clipped() {
        let plan = planned([40, 100], &[crop_box(0.5), ImageOp::Resize { size: Size::HeightWidth([8, 8]) }]);
        assert_eq!(plan.x.unwrap().readable, (0, 40));
        assert_eq!(plan.y.unwrap().readable, (0, 80));
    }

    #[test]
    fn a_box_that_leaves_nothing_is_an_error() {
        for edges in [[50.0, 0.0, 60.0, 10.0], [5.0, 5.0, 5.0, 9.0], [9.0, 5.0, 5.0, 9.0], [f32::NAN, 0.0, 9.0, 9.0]] {
            let result = plan([40, 100], &[crop_box(0.0)], &mut Draw::new(1, 2, 3), |_| Ok::<_, EmptyBox>(edges));
            assert_eq!(result.unwrap_err(), EmptyBox("xml".to_owned()), "{edges:?}");
        }
    }

    #[test]
    fn a_small_picture_is_padded_round_its_middle() {
        let plan = planned([5, 9], &[ImageOp::CenterCrop { size: Size::Square(8) }]);
        let (x, y) = (plan.x.unwrap(), plan.y.unwrap());
        assert_eq!((x.place, x.pixels, x.size, x.from, x.extent), (1, 5, 8, 0.0, 5.0));
        assert_eq!((y.place, y.pixels, y.size), (0, 8, 8));
        assert_eq!((y.from, y.extent), (0.0, 8.0), "half a pixel of spare rounds to even");
    }

    #[test]
    fn what_a_crop_cut_off_does_not_come_back_in_the_padding() {
        let ops = [
            ImageOp::Resize { size: Size::HeightWidth([64, 64]) },
            ImageOp::CenterCrop { size: Size::Square(16) },
            ImageOp::CenterCrop { size: Size::Square(32) },
        ];
        let x = planned([128, 128], &ops).x.unwrap();
        assert_eq!((x.place, x.pixels, x.size, x.from, x.extent), (8, 16, 32, 48.0, 32.0));
    }

    #[test]
    fn cutting_a_mirrored_canvas_is_cutting_its_other_side() {
        let flip = ImageOp::RandomFlip { p: 1.0 };
        let resize = ImageOp::Resize { size: Size::HeightWidth([7, 7]) };
        let center = ImageOp::CenterCrop { size: Size::Square(4) };
        let plain = planned([7, 7], std::slice::from_ref(&center));
        let mirrored = planned([7, 7], &[flip.clone(), center.clone()]);
        assert_eq!(plain.x.unwrap().from, 2.0);
        assert_eq!(mirrored.x.unwrap().from, 1.0);
        assert!(mirrored.mirrored && !plain.mirrored);
        assert!(!planned([9, 9], &[flip.clone(), resize, flip]).mirrored);
    }

    #[test]
    fn the_shorter_side_is_torchvisions() {
        assert_eq!(shorter_side([500, 375], 256), [256, 341]);
        assert_eq!(shorter_side([375, 500], 256), [341, 256]);
        assert_eq!(shorter_side([1, 16_384], 16_384), [268_435_456, 16_384]);
    }

    proptest::proptest! {
        #[test]
        fn any_steps_read_inside_the_picture_and_fill_inside_the_result(
            width in 1u32..600, height in 1u32..600, id in 0u64..1000,
            steps in proptest::collection::vec(
                (0usize..6, 1u32..400, 1u32..400, 0.0f32..1.0), 1..6),
        ) {
            let ops: Vec<ImageOp> = steps.into_iter().map(|(kind, a, b, p)| match kind {
                0 => ImageOp::RandomResizedCrop {
                    size: Size::HeightWidth([a, b]), scale: [0.08, 1.0], ratio: [0.75, 1.333],
                },
                1 => ImageOp::Resize { size: Size::Square(a) },
                2 => ImageOp::Resize { size: Size::HeightWidth([a, b]) },
                3 => ImageOp::CenterCrop { size: Size::HeightWidth([a, b]) },
                4 => crop_box(p),
                _ => ImageOp::RandomFlip { p },
            }).collect();
            let mut size = Some([height, width]);
            for op in &ops {
                size = op.output_size(size);
            }
            let mut draw = Draw::new(0, 0, id);
            let outcome = plan([width, height], &ops, &mut draw, |_| Ok::<_, EmptyBox>([0.0, 0.0, 1000.0, 1000.0]));
            if let Ok(plan) = outcome {
                for (span, picture) in [(plan.x, width), (plan.y, height)] {
                    let Some(span) = span else { continue };
                    proptest::prop_assert!(span.readable.0 < span.readable.1 && span.readable.1 <= picture);
                    proptest::prop_assert!(span.from >= f64::from(span.readable.0) && span.extent > 0.0);
                    proptest::prop_assert!(span.from + span.extent <= f64::from(span.readable.1) + 1e-9);
                    proptest::prop_assert!(span.pixels >= 1 && span.place + span.pixels <= span.size);
                }
                if let (Some([height, width]), Some(x), Some(y)) = (size, plan.x, plan.y) {
                    proptest::prop_assert_eq!([y.size, x.size], [height, width]);
                }
            }
        }
    }
}
