//! The least work that a crop takes, with which the benchmarks compare their measurements.

use std::ops::Range;

use crate::{
    error::Error,
    header::Jpeg,
    plan::{CropPlan, PictureRequest},
    rewrite::Walk,
};

/// Amounts of work.
#[doc(hidden)]
#[derive(Clone, Copy, Debug, Default)]
pub struct LowerBound {
    /// Bits of the scan: before the end of the crop's last row of MCUs, in the crop's MCUs, and in the restart segments
    /// that contain some of them.
    pub bits: [u64; 3],
    /// Symbols, in the same three parts.
    pub symbols: [u64; 3],
    /// Blocks to transform.
    pub blocks: u64,
    /// Samples to resample.
    pub samples: u64,
    /// Pixels of the result.
    pub pixels: u64,
}

/// Measures the work for a request.
///
/// # Errors
/// Returns an error when the picture is broken.
///
/// # Panics
/// Panics when the picture is progressive.
#[doc(hidden)]
pub fn lower_bound(jpeg: &Jpeg<'_>, request: &PictureRequest) -> Result<LowerBound, Error> {
    let mut plan = CropPlan::default();
    plan.make(jpeg, request);
    let [(left, right), (top, bottom)] = plan.mcus;
    let [columns, rows] = jpeg.mcus();
    let mut walk = Walk::new(jpeg)?;
    let mut lower_bound =
        LowerBound { pixels: u64::from(request.x.pixels) * u64::from(request.y.pixels), ..LowerBound::default() };
    // The work in the current segment since the last MCU of the crop. What follows the crop's last MCU is not read.
    let mut segment = [0; 2];
    for mcu in 0..columns * rows {
        let (x, y) = (mcu % columns, mcu / columns);
        if jpeg.restart_interval > 0 && mcu % jpeg.restart_interval == 0 {
            segment = [0; 2];
        }
        walk.begin_mcu()?;
        let mut counts = [0; 2];
        let is_inside = (left..right).contains(&x) && (top..bottom).contains(&y);
        for (at, component) in jpeg.components().iter().enumerate() {
            for _ in 0..component.sampling[0] * component.sampling[1] {
                let block = walk.measure_block(at)?;
                counts = [counts[0] + block[0], counts[1] + block[1]];
                lower_bound.blocks += u64::from(is_inside);
                lower_bound.samples += u64::from(is_inside) * u64::from(plan.planes[at].points).pow(2);
            }
        }
        segment = [segment[0] + counts[0], segment[1] + counts[1]];
        let until_end = if y < bottom { counts } else { [0; 2] };
        let inside = if is_inside { counts } else { [0; 2] };
        let mut in_segments = [0; 2];
        if is_inside {
            (in_segments, segment) = (segment, [0; 2]);
        }
        for (at, counts) in [until_end, inside, in_segments].into_iter().enumerate() {
            lower_bound.symbols[at] += counts[0];
            lower_bound.bits[at] += counts[1];
        }
    }
    Ok(lower_bound)
}

/// Returns the ranges of a picture's bytes that a request needs, when the start of each `step`th segment is known: the
/// header and runs of segments, merged where they touch.
///
/// # Errors
/// Returns an error when a restart marker of the picture is missing or wrong.
#[doc(hidden)]
pub fn ranges(jpeg: &Jpeg<'_>, request: &PictureRequest, step: u32) -> Result<Vec<Range<usize>>, Error> {
    let mut plan = CropPlan::default();
    plan.make(jpeg, request);
    let [(left, right), (top, bottom)] = plan.mcus;
    let columns = jpeg.mcus()[0];
    let known: Vec<usize> = jpeg.segment_starts()?.into_iter().step_by(step as usize).collect();
    let run_of = |mcu: u32| mcu.checked_div(jpeg.restart_interval).map_or(0, |segment| (segment / step) as usize);
    let mut ranges: Vec<Range<usize>> = std::iter::once(0..jpeg.scan_at).collect();
    for row in top..bottom {
        let (first, last) = (run_of(row * columns + left), run_of(row * columns + right - 1));
        let (start, end) = (known[first], known.get(last + 1).copied().unwrap_or(jpeg.bytes.len()));
        match ranges.last_mut() {
            Some(range) if start <= range.end => range.end = end,
            _ => ranges.push(start..end),
        }
    }
    Ok(ranges)
}
