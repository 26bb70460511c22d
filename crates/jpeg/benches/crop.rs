//! Measures random resized crops to 224 on one thread: this decoder on plain, on crop-ready and on scalable files, and other
//! decoders, in turn on the same pictures and crops. Time is the thread's CPU time, so that other load on the machine
//! matters less; the ratios are the result. "Undisturbed" adds up the fastest time of each picture, which shows small
//! differences on a noisy machine.
//!
//! Run `spdl-ctl pictures FOLDER --count 300`, then
//! `cargo bench -p spdl-jpeg --features turbo --bench crop -- FOLDER [ROUNDS [PART]]`. PART selects the decoders whose
//! names contain it. The pictures may be progressive, as `jpegtran -progressive` makes them; crop-ready ones are always
//! baseline.

use std::{
    fs,
    path::Path,
    time::{Duration, Instant},
};

use fast_image_resize::{
    FilterType, ResizeAlg, ResizeOptions, Resizer,
    images::{TypedCroppedImage, TypedImage, TypedImageRef},
    pixels::U8x3,
};
use spdl_jpeg::{
    Jpeg, Limits, LowerBound, Rgb, Scratch, lower_bound, rewrite,
    scalable::{ScalablePicture, pack},
    testing::{Rect, TARGET, XorShift, random_resized_crop, request},
};
use zune_jpeg::{
    JpegDecoder,
    zune_core::{bytestream::ZCursor, colorspace::ColorSpace, options::DecoderOptions},
};

const ROUNDS: usize = 9;
/// The numbers of MCUs between the restart markers of crop-ready files.
const INTERVALS: [u16; 3] = [2, 4, 8];
/// One way to compute a crop: gets the index of a picture, and writes the pixels.
type Way<'w> = Box<dyn FnMut(usize, &mut [u8]) + 'w>;

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let Some(folder) = arguments.first() else {
        eprintln!("which folder of JPEGs? `spdl-ctl pictures FOLDER` makes one");
        return;
    };
    let rounds = arguments.get(1).and_then(|rounds| rounds.parse().ok()).unwrap_or(ROUNDS);
    let mut files = Vec::new();
    read(Path::new(folder), &mut files);
    let mut draw = XorShift::default();
    let crops: Vec<Rect> = files.iter().map(|bytes| random_resized_crop(open(bytes).size(), &mut draw)).collect();
    let ready = INTERVALS.map(|interval| -> Vec<Vec<u8>> {
        files.iter().map(|bytes| rewrite(bytes, interval, Limits::default()).expect("a whole JPEG")).collect()
    });

    if files.iter().any(|bytes| open(bytes).is_progressive()) {
        let bytes = files.iter().map(Vec::len).sum::<usize>() / files.len();
        println!("plain: {} files of {bytes} bytes, some of which are progressive", files.len());
    } else {
        print_lower_bound("plain", &files, &crops);
    }
    for (interval, files) in INTERVALS.iter().zip(&ready) {
        print_lower_bound(&format!("crop-ready, {interval} MCUs"), files, &crops);
    }
    let start = processor_time();
    let scalable: Vec<Vec<u8>> =
        files.iter().map(|bytes| pack(bytes, Limits::default()).expect("a JPEG that can be packed")).collect();
    let packing = processor_time() - start;
    print_scalable(&files, &scalable, &crops, packing);
    let (files, crops) = (&files, &crops);
    let mut ways: Vec<(String, Way<'_>)> = Vec::new();
    #[cfg(has_turbo)]
    ways.push(("libjpeg-turbo, region, DCT scaling".to_owned(), turbo::way(files, crops)));
    ways.push(("zune-jpeg, all of the picture".to_owned(), zune(files, crops)));
    ways.push(("plain files".to_owned(), ours(files, crops, Scratch::new())));
    for (interval, files) in INTERVALS.iter().zip(&ready) {
        ways.push((format!("crop-ready, {interval} MCUs"), ours(files, crops, Scratch::new())));
    }
    ways.push(("scalable".to_owned(), from_scalable(&scalable, crops, Scratch::new())));
    ways.push(("scalable, no vector instructions".to_owned(), from_scalable(&scalable, crops, Scratch::portable())));
    ways.push(("plain files, no vector instructions".to_owned(), ours(files, crops, Scratch::portable())));
    let part = arguments.get(2).map_or("", String::as_str);
    ways.retain(|(name, _)| name.contains(part));
    race(&mut ways, files.len(), rounds);
}

fn race(ways: &mut [(String, Way<'_>)], count: usize, rounds: usize) {
    let mut out = vec![0; (TARGET * TARGET * 3) as usize];
    let mut times = vec![Vec::new(); ways.len()];
    let mut fastest = vec![vec![f64::MAX; count]; ways.len()];
    for _ in 0..rounds {
        for (((_, way), times), fastest) in ways.iter_mut().zip(&mut times).zip(&mut fastest) {
            let start = processor_time();
            for (at, fastest) in fastest.iter_mut().enumerate() {
                let start = Instant::now();
                way(at, &mut out);
                *fastest = fastest.min(start.elapsed().as_secs_f64());
            }
            times.push((processor_time() - start).as_secs_f64());
        }
    }
    let fastest: Vec<f64> = fastest.iter().map(|of_pictures| of_pictures.iter().sum()).collect();
    println!(
        "\n{:40} {:>10} {:>24} {:>11} {:>6}",
        "decoder", "images/s", "times the first (spread)", "undisturbed", "times"
    );
    for (at, (name, _)) in ways.iter().enumerate() {
        let mut ratios: Vec<f64> = times[0].iter().zip(&times[at]).map(|(first, this)| first / this).collect();
        let mut seconds = times[at].clone();
        ratios.sort_by(f64::total_cmp);
        seconds.sort_by(f64::total_cmp);
        let (median, middle) = (seconds[rounds / 2], ratios[rounds / 2]);
        let spread = format!("({:.2} to {:.2})", ratios[0], ratios[rounds - 1]);
        let rate = |seconds: f64| count as f64 / seconds;
        let undisturbed = rate(fastest[at]);
        println!(
            "{name:40} {:10.0} {middle:8.2} {spread:>15} {undisturbed:11.0} {:6.2}",
            rate(median),
            fastest[0] / fastest[at]
        );
    }
}

fn print_lower_bound(name: &str, files: &[Vec<u8>], crops: &[Rect]) {
    let bounds: Vec<LowerBound> = files
        .iter()
        .zip(crops)
        .map(|(bytes, rect)| lower_bound(&open(bytes), &request(*rect)).expect("a whole JPEG"))
        .collect();
    let mean = |of: &dyn Fn(&LowerBound) -> u64| {
        bounds.iter().map(|lower_bound| of(lower_bound) as f64).sum::<f64>() / bounds.len() as f64
    };
    let bytes = files.iter().map(Vec::len).sum::<usize>() as f64 / files.len() as f64;
    println!("{name}: {} files of {bytes:.0} bytes; per picture, at the mean:", files.len());
    for (at, what) in ["up to the crop's last row", "in the crop's MCUs", "in their segments"].into_iter().enumerate() {
        let (bytes, symbols) =
            (mean(&|lower_bound| lower_bound.bits[at]) / 8.0, mean(&|lower_bound| lower_bound.symbols[at]));
        println!("    {what:26} {bytes:8.0} bytes, {symbols:7.0} symbols");
    }
    let [blocks, samples, pixels] = [
        mean(&|lower_bound| lower_bound.blocks),
        mean(&|lower_bound| lower_bound.samples),
        mean(&|lower_bound| lower_bound.pixels),
    ];
    println!("    {blocks:.0} blocks transformed, {samples:.0} samples, {pixels:.0} pixels");
}

/// Prints the bytes of scalable files, those that a crop reads, and what packing takes.
fn print_scalable(files: &[Vec<u8>], scalable: &[Vec<u8>], crops: &[Rect], packing: Duration) {
    let bytes = |files: &[Vec<u8>]| files.iter().map(Vec::len).sum::<usize>() as f64;
    let shares = files.iter().zip(scalable).map(|(file, scalable)| scalable.len() as f64 / file.len() as f64);
    let read: usize = scalable
        .iter()
        .zip(crops)
        .flat_map(|(bytes, rect)| open_scalable(bytes).ranges(&request(*rect)).expect("a packed picture"))
        .map(|range| range.len())
        .sum();
    let start = processor_time();
    for bytes in files {
        std::hint::black_box(rewrite(bytes, INTERVALS[1], Limits::default()).expect("a baseline JPEG"));
    }
    let rewriting = processor_time() - start;
    println!(
        "scalable: {:.3} of the bytes, at the most {:.3}; a crop reads {:.3} of them; packing takes {:.1} times as long as crop-ready",
        bytes(scalable) / bytes(files),
        shares.fold(0.0, f64::max),
        read as f64 / bytes(scalable),
        packing.as_secs_f64() / rewriting.as_secs_f64(),
    );
}

fn open_scalable(bytes: &[u8]) -> ScalablePicture<'_> {
    ScalablePicture::open(bytes, Limits::default()).expect("a packed picture")
}

fn from_scalable<'w>(files: &'w [Vec<u8>], crops: &'w [Rect], mut scratch: Scratch) -> Way<'w> {
    Box::new(move |at, out| {
        let mut output = Rgb::new(out, TARGET as usize);
        open_scalable(&files[at]).render(&request(crops[at]), &mut scratch, &mut output).expect("a whole picture");
    })
}

fn ours<'w>(files: &'w [Vec<u8>], crops: &'w [Rect], mut scratch: Scratch) -> Way<'w> {
    Box::new(move |at, out| {
        let mut output = Rgb::new(out, TARGET as usize);
        open(&files[at]).render(&request(crops[at]), &mut scratch, &mut output).expect("a whole JPEG");
    })
}

fn zune<'w>(files: &'w [Vec<u8>], crops: &'w [Rect]) -> Way<'w> {
    let (mut pixels, mut resizer) = (Vec::new(), Resizer::new());
    Box::new(move |at, out| {
        let options = DecoderOptions::default().set_strict_mode(true).jpeg_set_out_colorspace(ColorSpace::RGB);
        let mut decoder = JpegDecoder::new_with_options(ZCursor::new(&files[at][..]), options);
        decoder.decode_headers().expect("a JPEG");
        let (width, height) = decoder.dimensions().expect("a JPEG with a size");
        pixels.resize(width * height * 3, 0);
        decoder.decode_into(&mut pixels).expect("a whole JPEG");
        resize(&pixels, [width as u32, height as u32], crops[at], &mut resizer, out);
    })
}

#[cfg(has_turbo)]
mod turbo {
    //! The fastest use of libjpeg-turbo: decodes the rows and columns of the crop, at the smallest scale that covers
    //! the result.
    #![allow(unsafe_code)]

    use super::{Rect, Resizer, TARGET, Way, resize};

    unsafe extern "C" {
        fn turbo_region(
            bytes: *const u8,
            length: usize,
            rect: *mut u32,
            target: *const u32,
            out: *mut u8,
            room: usize,
        ) -> i32;
    }

    pub(super) fn way<'w>(files: &'w [Vec<u8>], crops: &'w [Rect]) -> Way<'w> {
        let (mut pixels, mut resizer) = (vec![0; 64 << 20], Resizer::new());
        Box::new(move |at, out| {
            let (bytes, mut rect, target) = (&files[at], crops[at], [TARGET; 2]);
            // SAFETY: each pointer points to as many values as `turbo.c` accesses, and `room` limits what it writes.
            let scale = unsafe {
                let (rect, pixels, room) = (rect.as_mut_ptr(), pixels.as_mut_ptr(), pixels.len());
                turbo_region(bytes.as_ptr(), bytes.len(), rect, target.as_ptr(), pixels, room)
            };
            assert!(scale > 0, "a whole JPEG");
            let [left, row, width, height] = rect;
            let used = (row * height * 3) as usize;
            resize(&pixels[..used], [row, height], [left, 0, width, height], &mut resizer, out);
        })
    }
}

fn resize(pixels: &[u8], [width, height]: [u32; 2], rect: Rect, resizer: &mut Resizer, out: &mut [u8]) {
    const INSIDE: &str = "a crop inside of its picture";
    let picture = TypedImageRef::<U8x3>::from_buffer(width, height, pixels).expect(INSIDE);
    let crop = TypedCroppedImage::new(picture, rect[0], rect[1], rect[2], rect[3]).expect(INSIDE);
    let mut target = TypedImage::<U8x3>::from_buffer(TARGET, TARGET, out).expect(INSIDE);
    let options = ResizeOptions::new().resize_alg(ResizeAlg::Convolution(FilterType::Bilinear)).use_alpha(false);
    resizer.resize_typed(&crop, &mut target, &options).expect(INSIDE);
}

fn open(bytes: &[u8]) -> Jpeg<'_> {
    Jpeg::open(bytes, Limits::default()).expect("a baseline or progressive JPEG")
}

/// Returns the CPU time of this thread.
fn processor_time() -> Duration {
    let figures = fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Duration::from_nanos(figures.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number"))
}

/// Reads all JPEGs in a folder and its subfolders, in order of their names.
fn read(folder: &Path, files: &mut Vec<Vec<u8>>) {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let mut paths: Vec<_> = entries.map(|entry| entry.expect("a readable folder").path()).collect();
    paths.sort();
    for path in paths {
        if path.is_dir() {
            read(&path, files);
        } else if path.extension().is_some_and(|extension| extension == "jpg") {
            files.push(fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display())));
        }
    }
}
