//! Which part of a picture may be read, along one axis.

use spdl_canvas::AxisSpan;

/// Returns start and length relative to the readable range; rounding never exceeds that range.
pub(crate) fn within(span: AxisSpan, readable: u32) -> (f64, f64) {
    let limit = f64::from(readable);
    let from = (span.from - f64::from(span.readable.0)).clamp(0.0, limit);
    let mut extent = span.extent.min(limit - from);
    // The difference can be rounded up so that the sum exceeds the limit by one unit in the last place.
    while from + extent > limit {
        extent = extent.next_down();
    }
    (from, extent)
}
