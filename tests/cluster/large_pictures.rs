//! A few valid pictures of hundreds of megabytes, and a worker with less memory.

use std::{fs, io::Write};

use flate2::{Compression, write::ZlibEncoder};
use spdl_testkit::processes::{Cluster, TestDataset, peak_resident_bytes};

/// Width and height of pictures that take half a megabyte as files and half a gigabyte as pixels.
const SIDE: u32 = 11_580;

/// Makes a PNG of equal RGBA pixels.
fn large_png() -> Vec<u8> {
    let mut row = vec![0; 1 + 4 * SIDE as usize];
    row[1..].fill(0x55);
    let mut deflated = ZlibEncoder::new(Vec::new(), Compression::fast());
    for _ in 0..SIDE {
        deflated.write_all(&row).unwrap();
    }
    let chunk = |kind: &[u8; 4], data: &[u8]| {
        let mut checksum = flate2::Crc::new();
        checksum.update(kind);
        checksum.update(data);
        [&(data.len() as u32).to_be_bytes()[..], kind, data, &checksum.sum().to_be_bytes()].concat()
    };
    let header = [&SIDE.to_be_bytes()[..], &SIDE.to_be_bytes(), &[8, 6, 0, 0, 0]].concat();
    let data = deflated.finish().unwrap();
    [b"\x89PNG\r\n\x1a\n".to_vec(), chunk(b"IHDR", &header), chunk(b"IDAT", &data), chunk(b"IEND", b"")].concat()
}

/// Makes a JPEG of 12 million pixels, each component in a scan of its own. A decoder keeps all its coefficients: 6
/// bytes for each pixel, besides the pixel's 3 bytes.
fn large_in_scans() -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 60);
    encoder.set_optimized_huffman_tables(true);
    encoder.set_sampling_factor(jpeg_encoder::SamplingFactor::R_4_4_4);
    encoder.encode(&vec![99; 4000 * 3000 * 3], 4000, 3000, jpeg_encoder::ColorType::Rgb).unwrap();
    bytes
}

#[test]
fn valid_pictures_of_half_a_gigabyte_pass_through_a_worker_of_a_quarter_and_one_that_cannot_is_named() {
    let (pictures, png) = (spdl_cli::pictures::Pictures::new(), large_png());
    let picture = |index| match index {
        3 | 17 => png.clone(),
        11 => large_in_scans(),
        _ => pictures.picture(3, index),
    };
    let dataset = TestDataset::of_records((0..24).map(|index| (picture(index), "1".to_owned())));
    let keys = "epochs = 1\nbad_samples = \"mask\"\nmax_bad_fraction = 0.5\nepoch_end = \"exact\"";
    let job = dataset.training_job("large", 1);
    let text = fs::read_to_string(&job)
        .unwrap()
        .replace("global_batch = 64\nepochs = 1", &format!("global_batch = 12\n{keys}"));
    fs::write(&job, text).unwrap();

    let mut cluster = Cluster::start(0);
    cluster.start_worker("node-0", &["--cores", "2", "--memory", "256MiB"]);
    cluster.submit(&job);
    let report = cluster.pull_all("large", 1, &["node-0"], &[]).remove(0);
    assert_eq!((&report["samples"], &report["masked"]), (&24.into(), &1.into()), "{report}");
    let peak = peak_resident_bytes(cluster.workers[0].process.pid());
    assert!(peak < 320 << 20, "the worker had {} MiB", peak >> 20);
    let seen = cluster.wait_for("a bad sample", |status| status["jobs"][0]["bad_sample_count"] == 1);
    let causes = seen["jobs"][0]["bad_sample_list"].to_string();
    for part in ["0011", "4000x3000", "bytes to decode", "are for decoding (a part of the memory budget)"] {
        assert!(causes.contains(part), "`{part}` is not in {causes}");
    }
}
