//! Decides which part of a picture to decode for a crop, and at which scale.

use crate::{
    header::{Component, Jpeg},
    kernel::STRIP,
    taps::{Axis, Taps},
};

/// The part of a picture to decode, and the pixels to make of it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PictureRequest {
    /// The horizontal axis of the stored picture.
    pub x: Axis,
    /// The vertical axis of the stored picture.
    pub y: Axis,
    /// Whether the result's rows are the stored picture's columns.
    pub transposed: bool,
}

impl PictureRequest {
    /// Returns the number of columns and of rows of the result.
    #[must_use]
    pub fn result_size(&self) -> [u32; 2] {
        let size = [self.x.pixels, self.y.pixels];
        if self.transposed { [size[1], size[0]] } else { size }
    }
}

/// The samples of one component, stored column by column of the result.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ComponentPlane {
    /// Offset of the plane among the samples of all components.
    pub(crate) start: usize,
    /// Bytes from one column to the next.
    pub(crate) stride: usize,
    /// Samples along one side of a block: 8, 4, 2 or 1.
    pub(crate) points: u32,
    /// Blocks of an MCU, horizontally and vertically in the stored picture.
    pub(crate) blocks: [u32; 2],
    /// Whether the component has half as many samples as luma, horizontally and vertically in the stored picture.
    pub(crate) is_halved: [bool; 2],
}

/// The weights along one axis of the stored picture: for luma and planes with as many samples, and for planes with half
/// as many.
#[derive(Clone, Debug, Default)]
pub(crate) struct AxisTaps {
    pub(crate) whole: Taps,
    pub(crate) halved: Taps,
}

/// The plan of a crop.
#[derive(Clone, Debug, Default)]
pub(crate) struct CropPlan {
    /// The MCUs to decode, horizontally and vertically in the stored picture: the first, and one past the last.
    pub(crate) mcus: [(u32, u32); 2],
    pub(crate) planes: [ComponentPlane; 3],
    /// The number of bytes of all planes.
    pub(crate) bytes: usize,
    /// The weights along the horizontal and the vertical axis of the stored picture.
    pub(crate) taps: [AxisTaps; 2],
    /// The first sample to resample along the columns of the planes: for whole planes, for halved ones.
    pub(crate) tops: [u32; 2],
    /// The number of samples to resample from there, a multiple of 16.
    pub(crate) heights: [u32; 2],
}

/// Returns the smallest number of samples per block side that still covers the result.
pub(crate) fn points(request: &PictureRequest) -> u32 {
    let covers = |axis: &Axis, points: u32| axis.extent * f64::from(points) / 8.0 >= f64::from(axis.pixels);
    [1, 2, 4].into_iter().find(|points| covers(&request.x, *points) && covers(&request.y, *points)).unwrap_or(8)
}

fn plane(component: &Component, luma: &Component, luma_points: u32) -> ComponentPlane {
    let mut ratio = [0, 1].map(|axis| luma.sampling[axis] / component.sampling[axis]);
    let mut points = luma_points;
    // Reduce a component with fewer samples less, where that gives it as many samples as luma on both axes.
    while points < 8 && ratio == [2, 2] {
        (points, ratio) = (points * 2, [1, 1]);
    }
    ComponentPlane {
        points,
        blocks: component.sampling,
        is_halved: ratio.map(|ratio| ratio == 2),
        ..ComponentPlane::default()
    }
}

impl CropPlan {
    pub(crate) fn make(&mut self, jpeg: &Jpeg<'_>, request: &PictureRequest) {
        let components = jpeg.components();
        let luma_points = points(request);
        for (plane_of, component) in self.planes.iter_mut().zip(components) {
            *plane_of = plane(component, &components[0], luma_points);
        }
        let planes = &mut self.planes[..components.len()];
        for (axis, wanted) in [request.x, request.y].into_iter().enumerate() {
            let AxisTaps { whole, halved } = &mut self.taps[axis];
            let size = (jpeg.size[axis] * luma_points).div_ceil(8);
            whole.build(&wanted, luma_points, size);
            whole.measure();
            let per_mcu = |plane: &ComponentPlane| plane.points * plane.blocks[axis];
            let mcus = |range: (u32, u32), samples: u32| (range.0 / samples, range.1.div_ceil(samples));
            let mut range = mcus(whole.range, per_mcu(&planes[0]));
            if let Some(chroma) = planes.get(1).filter(|plane| plane.is_halved[axis]) {
                halved.build_halved(whole, size.div_ceil(2));
                halved.measure();
                let other = mcus(halved.range, per_mcu(chroma));
                range = (range.0.min(other.0), range.1.max(other.1));
            }
            self.mcus[axis] = range;
        }
        self.lay_out(components.len(), request);
    }

    fn lay_out(&mut self, components: usize, request: &PictureRequest) {
        let [across, down] = if request.transposed { [1, 0] } else { [0, 1] };
        let reversed = [request.x.reversed, request.y.reversed];
        for halved in [false, true] {
            let Some(plane) = self.planes[..components].iter().find(|plane| plane.is_halved[across] == halved) else {
                continue;
            };
            let origin = self.mcus[across].0 * plane.points * plane.blocks[across];
            self.taps[across].of_mut(halved).lay_out(origin, reversed[across], STRIP);
        }
        for halved in [false, true] {
            let Some(plane) = self.planes[..components].iter().find(|plane| plane.is_halved[down] == halved) else {
                continue;
            };
            let origin = self.mcus[down].0 * plane.points * plane.blocks[down];
            let taps = self.taps[down].of_mut(halved);
            let top = (taps.range.0 - origin) / STRIP as u32 * STRIP as u32;
            self.tops[usize::from(halved)] = top;
            self.heights[usize::from(halved)] = (taps.range.1 - origin - top).next_multiple_of(STRIP as u32);
            taps.lay_out(origin + top, reversed[down], 1);
        }
        self.bytes = 0;
        for plane in &mut self.planes[..components] {
            let samples = |axis: usize| (self.mcus[axis].1 - self.mcus[axis].0) * plane.points * plane.blocks[axis];
            plane.stride = samples(down).next_multiple_of(32) as usize;
            plane.start = self.bytes;
            // Taps with weight 0 may lie on columns after the last.
            let pairs = self.taps[across].of(plane.is_halved[across]).pairs_per_pixel;
            self.bytes += plane.stride * (samples(across) as usize + 2 * pairs);
        }
    }
}

impl AxisTaps {
    pub(crate) fn of(&self, halved: bool) -> &Taps {
        if halved { &self.halved } else { &self.whole }
    }

    fn of_mut(&mut self, halved: bool) -> &mut Taps {
        if halved { &mut self.halved } else { &mut self.whole }
    }
}
