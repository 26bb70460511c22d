//! Comparing datasets with their originals, and writing them back as files.

use spdl_dataset::{Against, PictureCheck, UnpackReport, VerifyOptions, unpack};
use spdl_shard::{
    format::ShardIndex as _,
    index::{IndexBuilder, Segments},
    manifest::{BlockFacts, ManifestBuilder, ShardFacts},
};

use super::*;

/// Writes pictures of several kinds: baseline JPEGs from other programs, a progressive one, a truncated one, and a PNG.
fn photographs(root: &Path) {
    let read = |path: &str| fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").join(path)).unwrap();
    write(root.join("space/rocket.jpg"), read("assets/photos/rocket.jpg"));
    write(root.join("people/grace.hopper.jpeg"), read("assets/photos/grace_hopper.jpg"));
    write(root.join("people/astronaut.jpg"), read("assets/jpegs/astronaut_444.jpg"));
    write(root.join("things/coffee.jpg"), read("assets/jpegs/coffee_progressive.jpg"));
    write(root.join("things/cut.jpg"), &read("assets/photos/rocket.jpg")[..50_000]);
    write(root.join("things/brick.png"), read("assets/photos/brick.png"));
}

fn crop_ready(source: PackSource) -> PackOptions {
    PackOptions { jpegs: Jpegs::CropReady, ..PackOptions::new(source) }
}

fn scalable(source: PackSource) -> PackOptions {
    PackOptions { jpegs: Jpegs::Scalable, ..PackOptions::new(source) }
}

async fn compared(dataset: &Path, against: Against) -> VerifyReport {
    let options = VerifyOptions { against: Some(against), ..VerifyOptions::default() };
    verify(&at(dataset), &options, &quiet).await.unwrap()
}

fn described(report: &VerifyReport) -> Vec<String> {
    let described = |fault: &VerifyFault| format!("{}: {}", fault.record.as_deref().unwrap_or("-"), fault.problem);
    report.faults.iter().map(described).collect()
}

#[tokio::test]
async fn a_crop_ready_dataset_has_the_coefficients_of_all_kinds_of_originals() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    photographs(&path("in"));
    let source = PackSource::ImageFolder(path("in"));
    let report = packed(&crop_ready(source.clone()), &path("ready")).await.unwrap();
    assert_eq!((report.records, report.crop_ready_pictures), (6, 4));
    packed(&PackOptions { order: PackOrder::Shuffled { seed: 9 }, ..PackOptions::new(source.clone()) }, &path("plain"))
        .await
        .unwrap();

    let list = "space/rocket.jpg\tspace\npeople/grace.hopper.jpeg\tpeople\npeople/astronaut.jpg\tpeople\n\
                things/coffee.jpg\tthings\nthings/cut.jpg\tthings\nthings/brick.png\tthings\n";
    write(path("in/list.txt"), list);
    for against in [
        Against::Files(source),
        Against::Files(PackSource::FileList(path("in/list.txt"))),
        Against::Dataset(at(&path("plain"))),
    ] {
        let found = compared(&path("ready"), against.clone()).await;
        assert_eq!(described(&found), [""; 0], "{against:?}");
        let pictures = if let Against::Dataset(_) = against { 5 } else { 6 };
        assert_eq!((found.same_pictures, found.same_pictures + found.same_fields), (pictures, 12), "{against:?}");
    }
}

/// Writes JPEGs that differ in what an encoder may choose, with the stem of each. All but the last can be packed.
fn odd_jpegs(root: &Path) -> Vec<&'static str> {
    use jpeg_encoder::{ColorType, Encoder, SamplingFactor};
    let (width, height) = (150, 90);
    let pixels: Vec<u8> = (0..width as u32 * height as u32 * 3)
        .map(|at| (at.wrapping_mul(2_654_435_761) >> 27) as u8 + ((f64::from(at) / 500.0).sin() * 90.0 + 90.0) as u8)
        .collect();
    let encoded = |sampling: SamplingFactor, interval: u16, change: &dyn Fn(Vec<u8>) -> Vec<u8>| {
        let mut jpeg = Vec::new();
        let mut encoder = Encoder::new(&mut jpeg, 90);
        encoder.set_sampling_factor(sampling);
        encoder.set_restart_interval(interval);
        encoder.encode(&pixels, width, height, ColorType::Rgb).expect("a picture");
        change(jpeg)
    };
    let as_is = |jpeg: Vec<u8>| jpeg;
    let trailing = |jpeg: Vec<u8>| [&jpeg[..], b"\0\xff\xd8 behind the end"].concat();
    // The last bits of the scan are zeros instead of ones, and there is no end marker.
    let no_end = |mut jpeg: Vec<u8>| {
        jpeg.truncate(jpeg.len() - 2);
        let last = jpeg.last_mut().expect("a scan");
        assert!(*last & 1 == 1 && *last != 255);
        *last &= !1;
        jpeg
    };
    let written = [
        ("odd/420", encoded(SamplingFactor::R_4_2_0, 0, &as_is)),
        ("odd/422", encoded(SamplingFactor::R_4_2_2, 0, &as_is)),
        ("odd/440", encoded(SamplingFactor::R_4_4_0, 0, &as_is)),
        ("odd/restarts", encoded(SamplingFactor::R_4_2_0, 3, &as_is)),
        ("odd/trailing", encoded(SamplingFactor::R_4_4_4, 0, &trailing)),
        ("odd/padding", encoded(SamplingFactor::R_4_4_4, 0, &no_end)),
        ("odd/411", encoded(SamplingFactor::R_4_1_1, 0, &as_is)),
    ];
    written
        .map(|(stem, jpeg)| {
            write(root.join(format!("{stem}.jpg")), jpeg);
            stem
        })
        .to_vec()
}

#[tokio::test]
async fn a_scalable_dataset_gives_back_every_original_bit_for_bit_and_counts_those_that_stay() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let asset = |name: &str| fs::read(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../assets").join(name)).unwrap();
    photographs(&path("in"));
    let odd = odd_jpegs(&path("in"));
    write(path("in/things/grey.jpg"), asset("jpegs/astronaut_grey.jpg"));
    write(path("in/things/cmyk.jpg"), asset("jpegs/coffee_cmyk.jpg"));
    write(path("in/things/text.txt"), "SPJ\nno picture");
    write(path("in/things/text.jpg"), "no picture");
    // So few blocks that the lengths of streams outweigh what they save.
    let mut tiny = Vec::new();
    let mut encoder = jpeg_encoder::Encoder::new(&mut tiny, 90);
    encoder.set_optimized_huffman_tables(true);
    encoder.encode(&[7; 64], 8, 8, jpeg_encoder::ColorType::Luma).unwrap();
    write(path("in/things/tiny.jpg"), tiny);

    let source = PackSource::ImageFolder(path("in"));
    let report = packed(&scalable(source.clone()), &path("set")).await.unwrap();
    let expected =
        [(JpegAsItIs::Progressive, 1), (JpegAsItIs::Kind, 2), (JpegAsItIs::Larger, 1), (JpegAsItIs::Broken, 1)];
    assert_eq!(report.jpegs_as_they_are, expected.into());
    assert_eq!((report.records, report.scalable_pictures), (17, 3 + odd.len() as u64));
    assert!(report.scalable_bytes < report.scalable_source_bytes, "{report:?}");
    let again = packed(&scalable(source.clone()), &path("again")).await.unwrap();
    assert_eq!(again.fingerprint, report.fingerprint);

    let found = unpacked(&path("set"), &path("out")).await.unwrap();
    assert_eq!((found.restored_pictures, found.pictures_without_markers), (report.scalable_pictures, 0));
    let (before, after) = (files(&path("in")), files(&path("out")));
    for (name, content) in &before {
        let name = name.replace("grace.hopper.jpeg", "grace_hopper.jpg");
        assert!(after[&name] == *content, "{name}");
    }
    let plain = PackOptions { order: PackOrder::Shuffled { seed: 9 }, ..PackOptions::new(source.clone()) };
    packed(&plain, &path("plain")).await.unwrap();
    packed(&crop_ready(source.clone()), &path("ready")).await.unwrap();
    for (dataset, against) in [
        ("set", Against::Files(source)),
        ("set", Against::Dataset(at(&path("plain")))),
        ("plain", Against::Dataset(at(&path("set")))),
        ("set", Against::Dataset(at(&path("ready")))),
        ("ready", Against::Dataset(at(&path("set")))),
        ("again", Against::Dataset(at(&path("set")))),
    ] {
        let found = compared(&path(dataset), against.clone()).await;
        assert_eq!(described(&found), [""; 0], "{dataset} against {against:?}");
        assert_eq!(found.same_pictures + found.same_fields, found.fields, "{dataset} against {against:?}");
    }
    let decode = Some(PictureCheck::new(|_| Ok(())));
    let found = verify(&at(&path("set")), &VerifyOptions { decode, ..VerifyOptions::default() }, &quiet).await.unwrap();
    assert_eq!((described(&found), found.scalable_pictures), (vec![], report.scalable_pictures));
}

#[tokio::test]
async fn a_scalable_picture_that_is_not_its_original_or_does_not_come_back_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    photographs(&path("in"));
    let limits = spdl_jpeg::Limits::default();
    let rocket = fs::read(path("in/space/rocket.jpg")).unwrap();
    let pack = |jpeg: &[u8]| spdl_jpeg::scalable::pack(jpeg, limits).unwrap();
    // Packed before it is packed: another picture, and one with a byte of its streams changed.
    write(path("in/things/other.jpg"), pack(&rocket));
    let mut broken = pack(&rocket);
    let middle = broken.len() / 2;
    broken.truncate(middle);
    write(path("in/things/broken.jpg"), &broken);
    let source = PackSource::ImageFolder(path("in"));
    assert_eq!(packed(&scalable(source.clone()), &path("set")).await.unwrap().scalable_pictures, 3);
    write(path("in/things/other.jpg"), fs::read(path("in/people/grace.hopper.jpeg")).unwrap());
    write(path("in/things/broken.jpg"), &rocket);
    fs::copy(path("in/people/astronaut.jpg"), path("in/space/rocket.jpg")).unwrap();
    let found = compared(&path("set"), Against::Files(source)).await;
    let mut described = described(&found);
    described.sort();
    let expected = [
        "space/rocket: field `jpg` has other coefficients than its original",
        "things/broken: field `jpg` has other bytes than its original",
        "things/other: field `jpg` has other coefficients than its original",
    ];
    let is_expected = described.iter().zip(expected).all(|(found, expected)| found.starts_with(expected));
    assert!(is_expected && described.len() == 3 && described[1].contains("cannot be compared"), "{described:#?}");
    let error = unpacked(&path("set"), &path("out")).await.unwrap_err().to_string();
    assert!(
        error.contains("record `things/broken`: field `jpg` is a scalable picture that is not restored"),
        "{error}"
    );
    let decode = Some(PictureCheck::new(|_| Ok(())));
    let found = verify(&at(&path("set")), &VerifyOptions { decode, ..VerifyOptions::default() }, &quiet).await.unwrap();
    assert!(found.faults.len() == 1 && found.faults[0].problem.contains("is not restored"), "{:?}", found.faults);
}

#[tokio::test]
async fn what_differs_from_its_original_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    photographs(&path("in"));
    packed(&crop_ready(PackSource::ImageFolder(path("in"))), &path("ready")).await.unwrap();
    let file = |name: &str| path("in").join(name);
    // Other coefficients under a known name, a class that takes the number of another, one picture more, one picture
    // less.
    fs::copy(file("people/grace.hopper.jpeg"), file("space/rocket.jpg")).unwrap();
    fs::rename(file("people/astronaut.jpg"), file("things/astronaut.jpg")).unwrap();
    fs::copy(file("things/brick.png"), file("things/another.png")).unwrap();
    fs::remove_file(file("things/coffee.jpg")).unwrap();
    write(file("things/brick.png"), "another one");
    let found = compared(&path("ready"), Against::Files(PackSource::ImageFolder(path("in")))).await;
    let mut described = described(&found);
    described.sort();
    let expected = [
        "people/astronaut: has no original",
        "space/rocket: field `jpg` has other coefficients than its original",
        "things/another: is not there",
        "things/astronaut: is not there",
        "things/brick: field `png` has other bytes than its original",
        "things/coffee: has no original",
    ];
    assert_eq!(described.len(), expected.len(), "{described:#?}");
    assert!(
        described.iter().zip(expected).all(|(described, expected)| described.starts_with(expected)),
        "{described:#?}"
    );

    let other = PackOptions {
        classes: ClassOrder::Given(vec!["things".into(), "space".into(), "people".into()]),
        ..{
            photographs(&path("again"));
            PackOptions::new(PackSource::ImageFolder(path("again")))
        }
    };
    packed(&other, &path("other")).await.unwrap();
    let found = compared(&path("other"), Against::Files(other.source)).await;
    assert_eq!(found.faults, [], "classes are recognised by their names");
    let found = compared(&path("ready"), Against::Dataset(at(&path("other")))).await;
    let labels = found.faults.iter().filter(|fault| fault.problem.starts_with("field `cls`")).count();
    assert_eq!((labels, found.faults.len()), (5, 5), "{found:?}");
}

/// A check that decodes at a small scale does not read all scans of a progressive picture.
#[tokio::test]
async fn all_scans_of_a_progressive_picture_are_checked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    let whole = include_bytes!("../../../../../assets/jpegs/coffee_progressive.jpg");
    let last_scan = (0..whole.len() - 1).rev().find(|at| whole[*at..*at + 2] == [0xff, 0xda]).unwrap();
    write(path("in/a/whole.jpg"), whole);
    write(path("in/a/cut.jpg"), [&whole[..last_scan + 100], &[0xff, 0xd9]].concat());
    packed(&PackOptions::new(PackSource::ImageFolder(path("in"))), &path("out")).await.unwrap();
    let options = VerifyOptions { decode: Some(PictureCheck::new(|_| Ok(()))), ..VerifyOptions::default() };
    let found = verify(&at(&path("out")), &options, &quiet).await.unwrap();
    assert_eq!(described(&found), ["a/cut: field `jpg` does not decode: the JPEG is cut off"]);
    assert_eq!(found.decoded_pictures, Some(1));
}

async fn unpacked(dataset: &Path, to: &Path) -> Result<UnpackReport, DatasetError> {
    unpack(&at(dataset), to, &quiet).await
}

#[tokio::test]
async fn records_come_back_as_files_with_the_same_pixels() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    photographs(&path("in"));
    for (name, jpegs) in [("plain", Jpegs::AsTheyAre), ("ready", Jpegs::CropReady)] {
        let options =
            PackOptions { jpegs, shard_bytes: 300_000, ..PackOptions::new(PackSource::ImageFolder(path("in"))) };
        assert!(packed(&options, &path(name)).await.unwrap().shards > 1);
        let out = path(&format!("{name}-out"));
        let report = unpacked(&path(name), &out).await.unwrap();
        assert_eq!((report.records, report.files), (6, 12));
        assert_eq!(report.pictures_without_markers, if jpegs == Jpegs::CropReady { 4 } else { 0 });
        let (before, after) = (files(&path("in")), files(&out));
        assert_eq!(report.bytes, after.values().map(|content| content.len() as u64).sum::<u64>());
        for (name, content) in &before {
            let (stem, extension) = name.rsplit_once('.').unwrap();
            let stem = stem.replace("grace.hopper", "grace_hopper");
            let again = &after[&format!("{stem}.{}", extension.replace("jpeg", "jpg"))];
            let limits = spdl_jpeg::Limits::default();
            let is_same = again == content || spdl_jpeg::has_same_coefficients(content, again, limits) == Ok(true);
            assert!(is_same && (jpegs == Jpegs::CropReady || again == content), "{name}");
            let class = ["people", "space", "things"].iter().position(|class| stem.starts_with(class)).unwrap();
            assert_eq!(after[&format!("{stem}.cls")], class.to_string().as_bytes());
        }
    }
}

#[tokio::test]
async fn nothing_is_overwritten_and_nothing_is_written_outside_of_the_target() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    image_folder(&path("in"), 2);
    packed(&PackOptions::new(PackSource::ImageFolder(path("in"))), &path("dataset")).await.unwrap();
    write(path("out/mine.txt"), "mine");
    let error = unpacked(&path("dataset"), &path("out")).await.unwrap_err();
    assert!(error.to_string().ends_with("out` is not empty") && error.hint().is_some(), "{error}");
    let error = unpacked(&path("dataset"), &path("out/mine.txt")).await.unwrap_err();
    assert!(error.to_string().ends_with("mine.txt` is not a folder"), "{error}");
    assert_eq!(files(&path("out")).len(), 1);

    for (name, members, problem) in [
        ("outside", &["../evil.txt"][..], "record `../evil`: `../evil.txt` is not the name of a file inside a folder"),
        ("absolute", &["/evil.txt"], "`/evil.txt` is not the name of a file"),
        ("twice", &["a.txt", "b.txt", "a.txt"], "exists already: record `a` has the name of another one"),
        ("under", &["a.txt", "a.txt/b.jpg"], "exists already: record `a.txt/b` has the name of another one"),
    ] {
        let members: Vec<(&str, &[u8])> = members.iter().map(|member| (*member, &b"evil"[..])).collect();
        write(path(name).join("a.tar"), tar(&members));
        index(&at(&path(name)), &at(&path(name)), &IndexOptions::default(), &quiet).await.unwrap();
        let error = unpacked(&path(name), &path("out/new")).await.unwrap_err().to_string();
        assert!(error.contains(problem), "{error}");
        assert!(!path("out/new").exists());
    }
    assert_eq!(files(&path("out")).len(), 1);
    assert!(!folder.path().join("evil.txt").exists() && !folder.path().join("out/evil.txt").exists());
}

#[tokio::test]
async fn a_damaged_record_is_not_written() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    image_folder(&path("in"), 2);
    packed(&PackOptions::new(PackSource::ImageFolder(path("in"))), &path("dataset")).await.unwrap();
    let (shard, key) = (path("dataset/shard-000000.tar"), records(&path("dataset")).await[1].1.clone());
    let mut bytes = fs::read(&shard).unwrap();
    let manifest = at(&path("dataset")).manifest().await.unwrap();
    let index = at(&path("dataset")).index(&manifest.shard(0)).await.unwrap();
    bytes[index.record(1).field("jpg").unwrap().offset as usize + 3] ^= 1;
    fs::write(&shard, &bytes).unwrap();
    let error = unpacked(&path("dataset"), &path("out")).await.unwrap_err().to_string();
    let expected = format!("shard-000000.tar`, record `{key}`: field `jpg` at byte");
    assert!(error.contains(&expected) && error.contains("has other bytes than were indexed"), "{error}");
    fs::write(&shard, &bytes[..2000]).unwrap();
    let error = unpacked(&path("dataset"), &path("cut")).await.unwrap_err().to_string();
    assert!(error.contains("is cut off: the shard ends at 2000"), "{error}");
}

#[tokio::test]
async fn a_table_that_is_not_its_pictures_is_a_fault() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    photographs(&path("in"));
    packed(&crop_ready(PackSource::ImageFolder(path("in"))), &path("ready")).await.unwrap();
    let store = at(&path("ready"));
    let manifest = store.manifest().await.unwrap();
    let shard = manifest.shard(0);
    let index = store.index(&shard).await.unwrap();

    // The same index except for one length of one table.
    let mut builder = IndexBuilder::new();
    for record in index.records() {
        let fields = record.fields().map(|field| (field.name, field.offset, field.bytes, field.crc32c.unwrap()));
        builder.record(&record.key.text(), record.samples, fields).unwrap();
        if let Some(Segments { step, lengths }) = record.segments("jpg") {
            let mut lengths = lengths.to_vec();
            if record.key == "space/rocket" {
                lengths[1][0] ^= 1;
            }
            builder.segments(0, Segments { step, lengths: &lengths }).unwrap();
        }
    }
    let (changed, index_hash) = builder.finish(index.shard_bytes()).unwrap();
    fs::write(path("ready/.spdl").join(format!("{}.idx", shard.url)), changed.bytes()).unwrap();
    let facts = ShardFacts {
        url: shard.url.to_owned(),
        bytes: shard.bytes,
        etag: None,
        records: shard.records,
        index_bytes: changed.bytes().len() as u64,
        index_hash,
    };
    let blocks = manifest.shard_blocks(0).map(|number| {
        let block = manifest.block(number);
        let bytes = u32::try_from(block.bytes).unwrap();
        let (first_record, records, samples) = (block.first_record, block.records, block.samples);
        BlockFacts { offset: block.offset, bytes, first_record, records, samples }
    });
    let mut builder = ManifestBuilder::new("ready").classes(manifest.classes());
    builder.shard(&facts, &blocks.collect::<Vec<_>>()).unwrap();
    fs::write(path("ready/.spdl/manifest.spdl"), builder.finish().unwrap().bytes()).unwrap();

    let found = verified(&path("ready")).await;
    let expected = "space/rocket: field `jpg` has restart segments that are not where its table has them";
    assert_eq!((described(&found), found.crop_ready_pictures), (vec![expected.to_owned()], 3));
}
