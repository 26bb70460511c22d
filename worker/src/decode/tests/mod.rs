//! Tests of the public API of the decoder: from a job file and fields to the bytes of columns.

mod back;
mod boxes;
mod channels;
mod colours;
mod compressed;
mod dataset_sounds;
mod defaults;
mod draws;
mod failures;
mod formats;
mod geometry;
mod golden;
mod listed;
mod lists;
mod loss_masks;
mod masks;
mod numbers;
mod odd;
mod one_hot;
mod plan_numbers;
mod scalable;
mod smart_resize;
mod sounds;
mod tokens;
mod video_pictures;
mod videos;
mod views;

use std::io::Cursor;

use image::{DynamicImage, ImageFormat};
use spdl_job::JobFile;
use spdl_order::DatasetFacts;
use spdl_types::Fingerprint;

use super::*;

const CAT: &[u8] = include_bytes!("../../../../assets/jpegs/chelsea.jpg");
const COFFEE_PROGRESSIVE: &[u8] = include_bytes!("../../../../assets/jpegs/coffee_progressive.jpg");
const COFFEE_CMYK: &[u8] = include_bytes!("../../../../assets/jpegs/coffee_cmyk.jpg");
const ASTRONAUT: &[u8] = include_bytes!("../../../../assets/jpegs/astronaut_444.jpg");
const ASTRONAUT_GREY: &[u8] = include_bytes!("../../../../assets/jpegs/astronaut_grey.jpg");
const ASTRONAUT_EXIF: &[u8] = include_bytes!("../../../../assets/jpegs/astronaut_exif6.jpg");

const CLASSES: [&str; 2] = ["dog", "cat"];

/// Returns a job with these columns, each given as the lines of a TOML table.
fn job(columns: &[&str]) -> Job {
    let mut text = "name = \"test\"\ndataset = \"here\"\nseed = 17\nglobal_batch = 8\n".to_owned();
    for column in columns {
        text += &format!("[[column]]\n{column}\n");
    }
    let facts = DatasetFacts::new(Fingerprint(7), 1000, 10);
    JobFile::parse(&text, "job.toml").unwrap().freeze(&facts).unwrap()
}

fn image_column(ops: &str, more: &str) -> String {
    format!("name = \"image\"\nfrom = \"jpg|png\"\ndecode = \"image\"\nops = [{ops}]\n{more}")
}

fn key(id: u64) -> SampleKey {
    SampleKey { epoch: 1, id: SampleId(id), sample_in_record: 0 }
}

/// Decodes a sample of a job whose columns are all fixed, and returns each column's bytes.
fn decode(job: &Job, key: SampleKey, fields: &[(&str, &[u8])]) -> Result<Vec<Vec<u8>>, BadSampleCause> {
    let decoder = Decoder::new(job, CLASSES).unwrap();
    let bytes_of = |column: &Column| {
        let shape = column.sample_shape().expect("a fixed column");
        vec![0xaa; shape.iter().map(|side| *side as usize).product::<usize>() * column.dtype.bytes()]
    };
    let mut columns: Vec<Vec<u8>> = job.columns.iter().map(bytes_of).collect();
    let mut targets: Vec<FieldTarget<'_>> = columns.iter_mut().map(|bytes| FieldTarget::Fixed(bytes)).collect();
    let field = |name: &str| {
        fields.iter().find(|(field, _)| *field == name).map(|(_, bytes)| Bytes::copy_from_slice(bytes).into())
    };
    decoder.decode_sample(key, &field, &mut targets)?;
    Ok(columns)
}

/// Decodes one picture through these steps.
fn picture(ops: &str, more: &str, bytes: &[u8]) -> Result<Vec<u8>, BadSampleCause> {
    let mut columns = decode(&job(&[&image_column(ops, more)]), key(3), &[("jpg", bytes)])?;
    Ok(columns.remove(0))
}

/// Decodes the whole picture at its own size, as RGB.
fn whole(bytes: &[u8], [height, width]: [u32; 2]) -> Vec<u8> {
    picture(&format!("{{ resize = {{ size = [{height}, {width}] }} }}"), "", bytes).unwrap()
}

/// Decodes the whole picture like [`whole`], as an image.
fn seen(bytes: &[u8], [height, width]: [u32; 2]) -> DynamicImage {
    image::RgbImage::from_raw(width, height, whole(bytes, [height, width])).expect("bytes of that size").into()
}

/// Decodes the picture with the crate `image` and turns it upright.
fn reference(bytes: &[u8]) -> DynamicImage {
    let reader = image::ImageReader::new(Cursor::new(bytes)).with_guessed_format().unwrap();
    let mut decoder = reader.into_decoder().unwrap();
    let orientation = image::ImageDecoder::orientation(&mut decoder).unwrap();
    let mut picture = DynamicImage::from_decoder(decoder).unwrap();
    picture.apply_orientation(orientation);
    picture
}

fn encoded(picture: &DynamicImage, format: ImageFormat) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    picture.write_to(&mut bytes, format).unwrap();
    bytes.into_inner()
}

/// Returns the peak signal-to-noise ratio in dB.
fn psnr(a: &[u8], b: &[u8]) -> f64 {
    assert_eq!(a.len(), b.len());
    let square = |(a, b): (&u8, &u8)| f64::from(a.abs_diff(*b)).powi(2);
    let mean = a.iter().zip(b).map(square).sum::<f64>() / a.len() as f64;
    if mean == 0.0 { f64::INFINITY } else { 10.0 * (255.0 * 255.0 / mean).log10() }
}
