//! Compresses the columns of a batch with LZ4 and Zstandard, and measures the sizes and the CPU time.

use std::{collections::HashMap, fs, path::Path};

use spdl_types::mix::splitmix64;

use crate::floor::timed;

/// Functions that compress bytes, and decompress them to a known number of bytes.
struct Codec {
    name: &'static str,
    compress: fn(&[u8]) -> Vec<u8>,
    decompress: fn(&[u8], usize) -> Vec<u8>,
}

const CODECS: [Codec; 2] = [
    Codec {
        name: "lz4",
        compress: lz4_flex::block::compress,
        decompress: |packed, bytes| lz4_flex::block::decompress(packed, bytes).expect("as it was compressed"),
    },
    Codec {
        name: "zstd 1",
        compress: |bytes| zstd::bulk::compress(bytes, 1).expect("memory"),
        decompress: |packed, bytes| zstd::bulk::decompress(packed, bytes).expect("as it was compressed"),
    },
];

/// A column's bytes.
struct Column {
    name: &'static str,
    bytes: Vec<u8>,
}

/// Returns columns as jobs have them. Pictures are those of the batch; tokens are the words and the punctuation of the
/// documentation, numbered by how often they occur, as a tokenizer's are.
fn columns(pictures: &[u8]) -> Vec<Column> {
    let column = |name, bytes| Column { name, bytes };
    let floats = || pictures.iter().map(|&byte| (f32::from(byte) / 255.0 - 0.45) / 0.225);
    let tokens = tokens();
    vec![
        column("pictures, u8", pictures.to_vec()),
        column("pictures, normalised, f32", floats().flat_map(f32::to_le_bytes).collect()),
        column("noise, f32", noise(1 << 20).flat_map(f32::to_le_bytes).collect()),
        column("tokens of text, i32", tokens.iter().flat_map(|token| token.to_le_bytes()).collect()),
        column("tokens of text, i64", tokens.iter().flat_map(|&token| i64::from(token).to_le_bytes()).collect()),
        column("masks of 8 classes, u8", masks()),
        column("labels, i64", (0..4096_i64).flat_map(|at| (at * 7919 % 1000).to_le_bytes()).collect()),
    ]
}

fn tokens() -> Vec<i32> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("the workspace").join("docs");
    let mut text = String::new();
    for folder in ["guide", "spec"] {
        let files =
            fs::read_dir(root.join(folder)).expect("the documentation").map(|file| file.expect("a file").path());
        let mut files: Vec<_> = files.filter(|file| file.extension().is_some_and(|end| end == "md")).collect();
        files.sort();
        files.iter().for_each(|file| text += &fs::read_to_string(file).expect("a text"));
    }
    let words: Vec<&str> = text.split_inclusive(|letter: char| !letter.is_alphanumeric()).collect();
    let mut counts = HashMap::<&str, i32>::new();
    words.iter().for_each(|word| *counts.entry(word).or_default() += 1);
    let mut known: Vec<(&str, i32)> = counts.into_iter().collect();
    known.sort_by_key(|&(word, count)| (-count, word));
    let numbers: HashMap<&str, i32> = known.iter().zip(0..).map(|(&(word, _), number)| (word, number)).collect();
    words.iter().map(|word| numbers[word]).collect()
}

/// Returns random numbers between -1 and 1.
fn noise(count: u64) -> impl Iterator<Item = f32> {
    (0..count).map(|at| (splitmix64(at) >> 40) as f32 / (1 << 23) as f32 - 1.0)
}

/// Returns 16 masks of 224 x 224 with seven discs each before a background.
fn masks() -> Vec<u8> {
    let class = |mask: i64, y: i64, x: i64| {
        let disc = |class: i64| {
            let (from_x, from_y) = (x - (class * 53 + mask * 31) % 224, y - (class * 97 + mask * 71) % 224);
            from_x * from_x + from_y * from_y < (20 + class * 9) * (20 + class * 9)
        };
        (1..8).find(|&class| disc(class)).unwrap_or(0) as u8
    };
    let masks = (0..16).flat_map(|mask| (0..224).flat_map(move |y| (0..224).map(move |x| (mask, y, x))));
    masks.map(|(mask, y, x)| class(mask, y, x)).collect()
}

/// Prints for each column the fraction of its bytes that is left, and the CPU time per byte, beside that of a transfer.
pub(crate) fn report(pictures: &[u8], transfer_ns: f64) {
    println!("columns, compressed: of the bytes, and ns for a byte; QUIC takes {transfer_ns:.2} ns for a byte");
    println!(
        "{:<28} {:<6} {:>9} {:>11} {:>13} {:>8} {:>14}",
        "", "", "of bytes", "compress", "decompress", "saved", "pays below"
    );
    for Column { name, bytes } in columns(pictures) {
        for Codec { name: codec, compress, decompress } in CODECS {
            let packed = compress(&bytes);
            assert_eq!(decompress(&packed, bytes.len()), bytes, "{name}");
            let ns = |ms: f64| ms * 1e6 / bytes.len() as f64;
            let compress_ns = ns(timed(20, |_| drop(std::hint::black_box(compress(&bytes)))));
            let decompress_ns = ns(timed(20, |_| drop(std::hint::black_box(decompress(&packed, bytes.len())))));
            let left = packed.len() as f64 / bytes.len() as f64;
            let saved_ns = (1.0 - left) * transfer_ns;
            // If the link is the limit: below this rate, one core compresses faster than the saved bytes would pass the
            // link.
            let pays_below = (1.0 - left).max(0.0) * 8.0 / compress_ns.max(decompress_ns);
            println!(
                "{name:<28} {codec:<6} {left:>9.3} {compress_ns:>11.2} {decompress_ns:>13.2} {saved_ns:>8.2} {pays_below:>7.1} Gbit/s"
            );
        }
    }
}
