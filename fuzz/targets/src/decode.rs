//! Records with pictures, annotations and numbers, through the decoder into the columns of a batch.

use std::io::Cursor;

use bytes::Bytes;
use image::{DynamicImage, ImageFormat, Rgb, RgbImage};
use spdl_job::{Column, ColumnKind, JobFile};
use spdl_order::DatasetFacts;
use spdl_shard::format::FieldValue;
use spdl_types::{Fingerprint, SampleId};
use spdl_worker::decode::{BadSampleCause, Decoder, FieldTarget, PictureLimits, SampleKey};

use crate::{
    input::{FuzzInput, append_piece},
    texts::ANNOTATION,
};

const LIMITS: PictureLimits = PictureLimits { side_pixels: 1024, pixels: 1 << 18 };

/// The columns that examples of kinds follow.
const FOLLOWED: &str = "[[column]]\nname = \"image\"\nfrom = \"jpg\"\ndecode = \"image\"\n\
     ops = [{ random_affine = { degrees = 30, scale = [0.5, 2.0], shear = 20 } }, { letterbox = 16 }]\n[[column]]\n\
     name = \"boxes\"\nfrom = \"xml\"\ndecode = \"boxes\"\nfollows = \"image\"\nstored_as = \"coco\"\nmax_rows = 20";

/// The column that examples of kinds for sounds follow. No field is both a sound and a picture.
const FOLLOWED_SOUND: &str = "[[column]]\nname = \"audio\"\nfrom = \"jpg\"\ndecode = \"audio\"\nmax_seconds = 1";

/// The column that examples of kinds for videos follow. Its own value is bad: nothing decodes packets here.
const FOLLOWED_VIDEO: &str = "[[column]]\nname = \"video\"\nfrom = \"jpg\"\ndecode = \"video\"\nclip = { frames = 5, rate = 12 }\n\
     ops = [{ center_crop = 16 }]";

/// The column that the example of `is_pad` follows.
const FOLLOWED_SERIES: &str =
    "[[column]]\nname = \"deltas\"\nfrom = \"jpg\"\ndecode = \"int\"\ndeltas = [-1, 0, 2]\ndefault = 3";

/// Further columns than the example of each kind.
const COLUMNS: [&str; 16] = [
    "decode = \"audio\"\nchannels = \"first\"\ndtype = \"i16\"\nmax_seconds = 1",
    "decode = \"audio\"\nrate = 8000\nsegment = { seconds = 0.1 }\nchannels = 2",
    "decode = \"video\"\nclip = { frames = 9, rate = 7.5, short = \"bad\" }\nops = [{ center_crop = 16 }]",
    "decode = \"image\"\nops = [{ resize = { size = 20 } }, { center_crop = { size = [9, 31] } }]\ndtype = \"f16\"\n\
     layout = \"nchw\"\nnormalise = { mean = [0.5, 0.4, 0.3], std = [0.2, 0.2, 0.2] }",
    "decode = \"image\"\nops = [{ crop_box = { margin = 0.3 } }, { resize = { size = [8, 8] } }]",
    "decode = \"int\"\ndtype = \"i32\"",
    "decode = \"tensor\"\nshape = [2, 3]\narray = \"second\"",
    "decode = \"tensor\"\nshape = [3]\nmax_rows = 100",
    "decode = \"image\"\nops = [{ random_perspective = 0.9 }, { pad = 3 }, { random_resized_crop = 16 }]",
    "decode = \"image\"\nops = [{ random_resized_crop = 16 }]\ncolor = \"gray\"\nbackground = [255, 128, 0]",
    "decode = \"image\"\nops = [{ random_resized_crop = 16 }, { pad = 2 }]\ncolor = \"rgba\"",
    "decode = \"image\"\nops = [{ letterbox = 16 }, \"random_flip\"]\ndtype = \"u16\"\nbackground = 9",
    "decode = \"image\"\nops = [{ resize = [9, 7] }]\ndtype = \"f32\"\ndepth = 32\ncolor = \"gray_alpha\"\nlayout = \"nchw\"",
    "decode = \"image\"\nops = [{ random_resized_crop = 16 }, \"random_flip\"]\nmax_rows = 5",
    "decode = \"image\"\nops = [{ five_crop = 16 }]\npictures = 2\ndtype = \"u16\"",
    "decode = \"boxes\"\nfollows = \"image\"\nstored_as = \"coco\"\nmax_rows = 20\n[[column]]\n\
     name = \"labels\"\nfrom = \"xml\"\ndecode = \"box_labels\"\nfollows = \"c\"",
];

/// Returns the columns that the first byte of an input chooses from: a picture first.
fn columns() -> Vec<String> {
    let example = |(name, keys): &(&str, &str)| format!("decode = \"{name}\"\n{keys}");
    // No worker decodes sequences from a record.
    let kinds = ColumnKind::CATALOG.iter().filter(|(_, keys)| !keys.contains("follows = \"tokens\""));
    let columns = kinds.map(example).chain(COLUMNS.map(str::to_owned));
    let followed = |column: &str| match column {
        column if column.starts_with("decode = \"audio") => FOLLOWED_SOUND,
        column if column.starts_with("decode = \"video") => FOLLOWED_VIDEO,
        series if series.starts_with("decode = \"is_pad") => FOLLOWED_SERIES,
        _ => FOLLOWED,
    };
    columns.map(|column| format!("{column}\n{}", followed(&column))).collect()
}

/// Decodes a record in which every field has the input's bytes, except the annotation, which has its own. Checks that a
/// sample either decodes, and then every byte of it is written, or has a cause; and that it decodes the same way twice.
pub(crate) fn read(data: &[u8]) {
    let mut input = FuzzInput(data);
    input.byte();
    input.piece();
    if !is_tiff(input.0) {
        decode(data);
    }
}

/// Like `read`, for TIFF only.
pub(crate) fn tiff(data: &[u8]) {
    if is_tiff(data) {
        decode(&[&[0, 0, 0], data].concat());
    }
}

fn is_tiff(field: &[u8]) -> bool {
    field.starts_with(b"II") || field.starts_with(b"MM")
}

fn decode(data: &[u8]) {
    let mut input = FuzzInput(data);
    let columns = columns();
    let column = &columns[usize::from(input.byte()) % columns.len()];
    let annotation = Bytes::copy_from_slice(input.piece());
    let field = Bytes::copy_from_slice(input.0);
    let is_annotation = |kind: &&str| column.starts_with(&format!("decode = \"{kind}\""));
    let from = if ["box_class", "boxes", "box_labels"].iter().any(is_annotation) { "xml" } else { "jpg" };
    let text = format!(
        "name = \"a\"\ndataset = \"b\"\nseed = 17\nglobal_batch = 1\n[[column]]\nname = \"c\"\nfrom = \"{from}\"\n{column}"
    );
    let facts = DatasetFacts::new(Fingerprint(7), 1, 1);
    let job = JobFile::parse(&text, "job.toml").and_then(|file| file.freeze(&facts)).expect("a valid job");
    let decoder = Decoder::new(&job, ["cat", "dog"]).expect("a valid job").with_limits(LIMITS);
    let bytes_of = |column: &Column| usize::try_from(column.max_bytes()).expect("a small sample");
    let decode = |before: u8| {
        let mut samples: Vec<(Vec<u8>, Bytes)> =
            job.columns.iter().map(|column| (vec![before; bytes_of(column)], Bytes::new())).collect();
        let is_list = column.contains("max_rows = 5") || column.contains("pictures");
        let fields = |name: &str| match name {
            "xml" => Some(annotation.clone().into()),
            _ if is_list => Some(list(&field)),
            _ => Some(field.clone().into()),
        };
        let key = SampleKey { epoch: 1, id: SampleId(3), sample_in_record: 0 };
        let is_fixed = |column: &Column| column.sample_shape().is_some();
        let mut targets = Vec::new();
        for ((sample, value), column) in samples.iter_mut().zip(&job.columns) {
            targets.push(if is_fixed(column) { FieldTarget::Fixed(sample) } else { FieldTarget::Ragged(value) });
        }
        decoder.decode_sample(key, &fields, &mut targets)?;
        let value = |((sample, value), column): ((Vec<u8>, Bytes), &Column)| {
            assert!(value.len() <= sample.len(), "{} bytes where {} fit", value.len(), sample.len());
            if is_fixed(column) { sample } else { value.into() }
        };
        Ok::<Vec<Vec<u8>>, BadSampleCause>(samples.into_iter().zip(&job.columns).map(value).collect())
    };
    match (decode(0), decode(0xff)) {
        (Ok(first), Ok(second)) => assert!(first == second, "it decodes differently, or not all of it is written"),
        (Err(first), Err(second)) => assert_eq!(first.to_string(), second.to_string()),
        (first, second) => panic!("once {first:?}, once {second:?}"),
    }
}

/// Returns the pieces of a field as a list. Empty pieces become null, and the rest of the field is the last piece.
fn list(field: &Bytes) -> FieldValue {
    let mut input = FuzzInput(field);
    let mut files: Vec<Option<Bytes>> = (0..input.byte() % 8)
        .map(|_| Some(Bytes::copy_from_slice(input.piece())).filter(|piece| !piece.is_empty()))
        .collect();
    files.push(Some(Bytes::copy_from_slice(input.0)));
    FieldValue::List(files)
}

/// Returns a picture of a few pixels in each format that is read.
fn pictures() -> Vec<Vec<u8>> {
    let picture = RgbImage::from_fn(24, 16, |x, y| Rgb([x as u8 * 10, y as u8 * 15, (x * y) as u8]));
    let formats =
        [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Gif, ImageFormat::Tiff, ImageFormat::Pnm];
    let mut pictures: Vec<Vec<u8>> = formats
        .into_iter()
        .map(|format| {
            let mut bytes = Cursor::new(Vec::new());
            picture.write_to(&mut bytes, format).expect("a picture can be written");
            bytes.into_inner()
        })
        .collect();
    let mut wide = Cursor::new(Vec::new());
    let grey = DynamicImage::from(picture.clone()).into_luma16();
    grey.write_to(&mut wide, ImageFormat::Png).expect("a picture can be written");
    pictures.push(wide.into_inner());
    for is_progressive in [false, true] {
        let mut bytes = Vec::new();
        let mut encoder = jpeg_encoder::Encoder::new(&mut bytes, 80);
        encoder.set_progressive(is_progressive);
        encoder.encode(&picture, 24, 16, jpeg_encoder::ColorType::Rgb).expect("a picture can be written");
        pictures.push(bytes);
    }
    let packed = spdl_jpeg::scalable::pack(&pictures[pictures.len() - 2], spdl_jpeg::Limits::default());
    pictures.push(packed.expect("a baseline picture can be packed"));
    pictures
}

pub(crate) fn tiff_seeds() -> Vec<Vec<u8>> {
    pictures().into_iter().filter(|picture| is_tiff(picture)).collect()
}

pub(crate) fn seeds() -> Vec<Vec<u8>> {
    let columns = columns();
    // The first column with these keys.
    let seed = |keys: &str, annotation: &str, field: &[u8]| {
        let column = columns.iter().position(|column| column.contains(keys)).expect("a column that is there");
        let mut bytes = vec![u8::try_from(column).expect("few columns")];
        append_piece(&mut bytes, annotation.as_bytes());
        bytes.extend(field);
        bytes
    };
    let pictures = pictures();
    let mut seeds = vec![
        seed("crop_box", ANNOTATION, &pictures[0]),
        seed("\"int\"", "", b" -17\n"),
        seed("\"json\"", "", b"{\"a\": [1.5, 2]}"),
        seed("\"box_class\"", ANNOTATION, b""),
        seed("\"tensor\"", "", include_bytes!("../../../worker/tests/data/tensor/fortran.npy")),
        seed("second", "", include_bytes!("../../../worker/tests/data/tensor/stored.npz")),
        seed("second", "", include_bytes!("../../../worker/tests/data/tensor/deflated.npz")),
        seed("max_rows = 100", "", include_bytes!("../../../worker/tests/data/tensor/fortran.npy")),
        seed("max_rows = 100", "", include_bytes!("../../../worker/tests/data/tensor/single.npz")),
        seed("\"bool\"", "", b"true"),
        seed(
            "\"tokens\"",
            "",
            b"\x93NUMPY\x01\x00\x37\x00{'descr': '<u2', 'fortran_order': False, 'shape': (3,)}\x01\x00\xe7\x03\x00\x00",
        ),
    ];
    let videos: [&[u8]; 3] = [
        include_bytes!("../../../crates/media/tests/videos/open-gop.mp4"),
        include_bytes!("../../../crates/media/tests/videos/fragments.mp4"),
        include_bytes!("../../../crates/media/tests/videos/vp9.webm"),
    ];
    for keys in ["\"video\"", "video_times", "video_mask", "7.5"] {
        seeds.extend(videos.map(|video| seed(keys, "", video)));
    }
    let boxes = r#"[{"bbox": [3, 2, 9, 7.5], "category_id": 4}, {"bbox": [0, 0, 24, 16], "category_id": "dog"}]"#;
    seeds.push(seed("follows = \"c\"", boxes, &pictures[0]));
    for keys in ["\"image\"", "\"f16\"", "gray\"", "rgba", "background = 9", "gray_alpha"] {
        seeds.extend(pictures.iter().map(|picture| seed(keys, "", picture)));
    }
    for keys in ["max_rows = 5", "pictures = 2"] {
        let mut list = vec![1];
        append_piece(&mut list, &pictures[0]);
        seeds.extend(pictures.iter().map(|last| seed(keys, "", &[&list[..], last].concat())));
    }
    seeds.extend(
        pictures.iter().filter(|picture| picture.starts_with(b"\x89PNG")).map(|mask| seed("\"mask\"", "", mask)),
    );
    seeds
}
