//! Measures the conversion of planes to RGB on one thread, beside a copy of as many bytes as it writes. Time is the thread's CPU
//! time, the least of several rounds.
//!
//! Run `cargo bench -p spdl-frames --bench convert`.

use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};
use spdl_frames::{FramePlanes, Plane, PlaneFormat, PlaneKind, RgbConversion};
use spdl_media::VideoColor;

const ROUNDS: u32 = 200;
const SIZE: [u32; 2] = [640, 480];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let pixels = SIZE[0] * SIZE[1];
    let numbers: Vec<u8> = (0..pixels as usize * 2).map(|at| (at * 31 % 251) as u8).collect();
    let mut rgb = vec![0; pixels as usize * 3];
    let source = vec![1; rgb.len()];
    let copy = least(|| rgb.copy_from_slice(std::hint::black_box(&source)));
    println!("a copy of RGB: {:.3} ns a pixel", nanos(copy) / f64::from(pixels));
    let color = VideoColor { matrix: 1, ..VideoColor::default() };
    for bits in [8, 10] {
        let yuv = |x, y| PlaneKind::Yuv { shift: [x, y] };
        for (name, kind) in [
            ("grey", PlaneKind::Grey),
            ("RGB", PlaneKind::Rgb),
            ("4:4:4", yuv(0, 0)),
            ("4:2:2", yuv(1, 0)),
            ("4:2:0", yuv(1, 1)),
        ] {
            let format = PlaneFormat { kind, bits };
            let conversion = RgbConversion::new(format, SIZE, &color)?;
            let width = SIZE[0] as usize * if bits == 8 { 1 } else { 2 };
            let strides = if matches!(kind, PlaneKind::Yuv { shift: [1, _] }) {
                [width, width / 2, width / 2]
            } else {
                [width; 3]
            };
            let planes = strides.map(|stride| Plane { bytes: &numbers, stride });
            let frame = FramePlanes { size: SIZE, format, color, planes };
            for region in [[0, 0, 640, 480], [0, 0, 224, 224], [1, 1, 224, 224]] {
                let rgb = &mut rgb[..region[2] as usize * region[3] as usize * 3];
                let time =
                    least(|| conversion.convert(std::hint::black_box(&frame), region, rgb).expect("a known frame"));
                let per_pixel = nanos(time) / f64::from(region[2] * region[3]);
                println!("{name} of {bits} bits, {region:?}: {per_pixel:.3} ns a pixel");
            }
        }
    }
    Ok(())
}

fn least(mut work: impl FnMut()) -> Duration {
    let mut least = Duration::MAX;
    for _ in 0..ROUNDS {
        let start = cpu_time();
        work();
        least = least.min(cpu_time() - start);
    }
    least
}

/// Returns the CPU time of this thread so far.
fn cpu_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).expect("less than a second"))
}

fn nanos(time: Duration) -> f64 {
    1e9 * time.as_secs_f64()
}
