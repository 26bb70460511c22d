//! From decoded coefficients to samples: the inverse transform of the blocks that a plan needs.

use super::{Group, ScalableMemory};
use crate::{
    header::Jpeg,
    idct::{self, CoefficientPlace},
    kernel::{RowWork, SimdKernel},
    plan::{ComponentPlane, CropPlan},
    scalable::streams::COEFFICIENTS,
};

impl ScalableMemory {
    /// Transforms the blocks of a group that the plan needs.
    #[allow(clippy::too_many_arguments)]
    #[inline(always)]
    pub(super) fn transform<K: SimdKernel>(
        &self,
        kernel: K,
        jpeg: &Jpeg<'_>,
        plan: &CropPlan,
        quants: &Quants,
        group: &Group,
        transposed: bool,
        samples: &mut [u8],
    ) {
        let components = if group.class == 0 { 0..1 } else { 1..jpeg.components().len() };
        for (at, component) in components.enumerate() {
            let work = TransformGroup {
                coefficients: &self.coefficients,
                group,
                skipped: at as u32 * group.shape.across,
                plane: &plan.planes[component],
                mcus: plan.mcus,
                quants,
                component,
                transposed,
                samples,
            };
            kernel.run(work);
        }
    }
}

/// The quantisation of each component, in the order of the coefficients.
pub(super) struct Quants {
    eight: [[i16; 64]; 3],
    four: [[i16; 16]; 3],
    two: [[i16; 4]; 3],
}

impl Quants {
    pub(super) fn new(jpeg: &Jpeg<'_>, transposed: bool) -> Self {
        let mut quants = Self { eight: [[0; 64]; 3], four: [[0; 16]; 3], two: [[0; 4]; 3] };
        for (at, component) in jpeg.components().iter().enumerate() {
            let written = jpeg.quant(component);
            quants.eight[at] =
                std::array::from_fn(|at| written[if transposed { at >> 3 | (at & 7) << 3 } else { at }] as i16);
            quants.four[at] = std::array::from_fn(|place| quants.eight[at][place / 4 * 8 + place % 4]);
            quants.two[at] = std::array::from_fn(|place| quants.eight[at][place / 2 * 8 + place % 2]);
        }
        quants
    }
}

/// Transforms the blocks of one component of a group.
struct TransformGroup<'t> {
    coefficients: &'t [i16; COEFFICIENTS],
    group: &'t Group,
    /// The blocks before the component's in each row.
    skipped: u32,
    plane: &'t ComponentPlane,
    mcus: [(u32, u32); 2],
    quants: &'t Quants,
    component: usize,
    transposed: bool,
    samples: &'t mut [u8],
}

impl RowWork for TransformGroup<'_> {
    type Outcome = ();

    #[inline(always)]
    fn run<K: SimdKernel>(self, kernel: K) {
        let Self { coefficients, group, plane, samples, .. } = self;
        // In blocks: the tile's first, and those that the plan needs.
        let origin = [0, 1].map(|axis| group.mcu[axis] * plane.blocks[axis]);
        let needed = [0, 1].map(|axis| {
            let blocks = plane.blocks[axis];
            (self.mcus[axis].0 * blocks, self.mcus[axis].1 * blocks)
        });
        let columns =
            needed[0].0.max(origin[0]) - origin[0]..needed[0].1.min(origin[0] + group.shape.across) - origin[0];
        let rows = needed[1].0.max(origin[1]) - origin[1]..needed[1].1.min(origin[1] + group.shape.rows) - origin[1];
        let points = plane.points;
        let per_block = points as usize * if self.transposed { 1 } else { plane.stride };
        for row in rows {
            let [x, y] = [(origin[0] + columns.start - needed[0].0) * points, (origin[1] + row - needed[1].0) * points];
            let [p, q] = if self.transposed { [y, x] } else { [x, y] };
            let mut start = plane.start + p as usize * plane.stride + q as usize;
            let first = row * group.shape.row() + self.skipped + columns.start;
            let at = usize::from(group.offset) + first as usize * usize::from(group.step);
            let length = columns.len() * usize::from(group.step);
            let blocks = &coefficients[at..at + length];
            let mut next = || {
                let place = CoefficientPlace { start, stride: plane.stride };
                start += per_block;
                place
            };
            match points {
                8 => {
                    let quant = &self.quants.eight[self.component];
                    let (pairs, last) = blocks.as_chunks::<64>().0.as_chunks::<2>();
                    for [one, other] in pairs {
                        kernel.full_pair([one, other], [quant; 2], samples, [next(), next()]);
                    }
                    for block in last {
                        kernel.full_pair([block; 2], [quant; 2], samples, [next(); 2]);
                    }
                }
                4 => {
                    let quant = &self.quants.four[self.component];
                    let (fours, last) = blocks.as_chunks::<64>();
                    for four in fours {
                        kernel.half_four(four, quant, samples, [next(), next(), next(), next()]);
                    }
                    for block in last.as_chunks::<16>().0 {
                        idct::half_of_four(block, quant, samples, next());
                    }
                }
                2 => {
                    let quant = &self.quants.two[self.component];
                    let (fours, last) = blocks.as_chunks::<16>();
                    for four in fours {
                        kernel.quarter_four(four, quant, samples, [next(), next(), next(), next()]);
                    }
                    for block in last.as_chunks::<4>().0 {
                        idct::quarter_of_two(block, quant, samples, next());
                    }
                }
                _ => {
                    let quant = self.quants.two[self.component][0];
                    let samples = samples[start..].iter_mut().step_by(per_block);
                    samples
                        .zip(blocks)
                        .for_each(|(sample, coefficient)| *sample = idct::eighth_of(*coefficient, quant));
                }
            }
        }
    }
}
