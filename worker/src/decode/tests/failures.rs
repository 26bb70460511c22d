//! Tests that every kind of bad sample has an error that names the column, the field and the cause.

use image::{DynamicImage, ImageFormat};

use super::*;

const RESIZE: &str = "{ resize = { size = [8, 8] } }";

fn picture_error(bytes: &[u8]) -> String {
    picture(RESIZE, "", bytes).unwrap_err().to_string()
}

fn column_error(column: &str, fields: &[(&str, &[u8])]) -> String {
    decode(&job(&[column]), key(0), fields).unwrap_err().to_string()
}

#[test]
fn a_jpeg_cut_anywhere_is_an_error() {
    for (name, bytes) in [("baseline", CAT), ("progressive", COFFEE_PROGRESSIVE), ("cmyk", COFFEE_CMYK)] {
        let step = (bytes.len() / 97).max(1);
        for cut in (4..bytes.len() - 2).step_by(step).chain(bytes.len() - 20..bytes.len() - 2) {
            let error = picture(RESIZE, "", &bytes[..cut]).expect_err(name);
            assert!(error.to_string().contains("column `image`: field `jpg`"), "{name} cut at {cut}: {error}");
        }
        let cut = bytes.len() - 3;
        let expected = format!("column `image`: field `jpg` is a JPEG that is cut off after {cut} bytes");
        assert_eq!(picture_error(&bytes[..cut]), expected, "{name}");
    }
}

#[test]
fn other_formats_cut_short_are_errors() {
    let cat = DynamicImage::ImageRgb8(reference(CAT).to_rgb8());
    for format in [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Bmp, ImageFormat::Tiff, ImageFormat::Gif] {
        let bytes = encoded(&cat, format);
        for part in [1, 5, 9] {
            let cut = &bytes[..bytes.len() * part / 10];
            assert!(picture(RESIZE, "", cut).is_err(), "{format:?} cut to {part} tenths");
        }
    }
}

#[test]
fn what_is_behind_the_end_of_a_jpeg_does_not_matter() {
    let trailing = [CAT, b"\0\0trailing"].concat();
    assert_eq!(picture(RESIZE, "", &trailing).unwrap(), picture(RESIZE, "", CAT).unwrap());
}

#[test]
fn bytes_that_are_no_picture_are_an_error() {
    assert_eq!(picture_error(b""), "column `image`: field `jpg` is empty");
    let error = picture_error(b"<html>404</html>");
    assert_eq!(error, "column `image`: field `jpg` does not decode: the bytes are of no format that is known");
    let mut broken = CAT.to_vec();
    broken[200..4000].fill(0x55);
    assert!(picture_error(&broken).contains("field `jpg` does not decode: "));
}

#[test]
fn bytes_changed_at_random_never_panic() {
    let cat = DynamicImage::ImageRgb8(reference(CAT).crop_imm(0, 0, 64, 64).to_rgb8());
    let formats = [ImageFormat::Png, ImageFormat::WebP, ImageFormat::Gif, ImageFormat::Tiff, ImageFormat::Pnm];
    let inputs = [CAT.to_vec(), COFFEE_PROGRESSIVE.to_vec()].into_iter();
    let inputs: Vec<Vec<u8>> = inputs.chain(formats.map(|format| encoded(&cat, format))).collect();
    for (number, input) in inputs.iter().enumerate() {
        for id in 0..40 {
            let mut draw = spdl_types::Draw::new(id, 0, number as u64);
            let mut bytes = input.clone();
            for _ in 0..=draw.below(6) {
                let at = draw.below(bytes.len() as u32) as usize;
                bytes[at] = draw.below(256) as u8;
            }
            let _ = picture(RESIZE, "", &bytes);
        }
    }
}

#[test]
fn a_picture_that_claims_to_be_huge_is_refused_before_it_is_decoded() {
    // Width and height follow the start-of-frame marker, its length and its precision.
    let mut bytes = CAT.to_vec();
    let frame = bytes.windows(2).position(|pair| pair == [0xff, 0xc0]).unwrap();
    bytes[frame + 5..frame + 9].copy_from_slice(&[0xff; 4]);
    let error = picture_error(&bytes);
    assert!(error.contains("is a picture of 65535x65535; the limits are 16384 a side"), "{error}");

    let cat = encoded(&DynamicImage::ImageRgb8(reference(CAT).to_rgb8()), ImageFormat::Png);
    for (limits, bytes) in [
        (PictureLimits { side_pixels: 239, pixels: 1 << 27 }, CAT),
        (PictureLimits { side_pixels: 239, pixels: 1 << 27 }, &cat),
        (PictureLimits { side_pixels: 16_384, pixels: 240 * 160 - 1 }, CAT),
        (PictureLimits { side_pixels: 16_384, pixels: 240 * 160 - 1 }, &cat),
    ] {
        let decoder = Decoder::new(&job(&[&image_column(RESIZE, "")]), CLASSES).unwrap().with_limits(limits);
        let field = |_: &str| Some(Bytes::copy_from_slice(bytes).into());
        let mut out = [0; 8 * 8 * 3];
        let outcome = decoder.decode_sample(key(0), &field, &mut [FieldTarget::Fixed(&mut out)]);
        assert!(matches!(outcome.unwrap_err().problem, BadSampleProblem::TooLarge { width: 240, height: 160, .. }));
    }
}

#[test]
fn a_picture_that_takes_more_memory_than_there_is_names_its_size_what_it_takes_and_the_limit() {
    let limits = DecodeLimits { max_bytes: 300_000, own_bytes: 300_000, kept_bytes: 1000 };
    let memory = Arc::new(DecodeMemory::new(limits, Box::new(|_| ())));
    let decoder = Decoder::new(&job(&[&image_column(RESIZE, "")]), CLASSES).unwrap().with_memory(memory.clone());
    let decode = |bytes: &[u8]| {
        let field = |_: &str| Some(Bytes::copy_from_slice(bytes).into());
        decoder.decode_sample(key(0), &field, &mut [FieldTarget::Fixed(&mut [0; 8 * 8 * 3])])
    };
    // As a whole: 240x160 pixels of 3 bytes as RGB, of 16 bytes as stored, and of 4 bytes in the decoder.
    let float = DynamicImage::ImageRgba32F(reference(CAT).to_rgba32f());
    let error = decode(&encoded(&float, ImageFormat::Tiff)).unwrap_err().to_string();
    let expected = "field `jpg` is a picture of 240x160 that takes 8";
    assert!(
        error.contains(expected) && error.ends_with("300000 are for decoding (a part of the memory budget)"),
        "{error}"
    );
    let wide = encoded(&DynamicImage::ImageRgba16(reference(CAT).to_rgba16()), ImageFormat::Png);
    assert!(decode(CAT).is_ok(), "of a JPEG no more is there than the crop needs");
    assert_eq!(decode(&wide), decode(&wide), "and a refused picture gives back what it had not taken");
}

#[test]
fn a_large_png_comes_in_rows_and_takes_little_memory() {
    let limits = DecodeLimits { max_bytes: 2_000_000, own_bytes: 2_000_000, kept_bytes: 1000 };
    let memory = Arc::new(DecodeMemory::new(limits, Box::new(|_| ())));
    let large = reference(CAT).resize_exact(1800, 1300, image::imageops::FilterType::Nearest);
    let job = job(&[&image_column("{ resize = { size = [64, 80] } }", "")]);
    let decode = |decoder: Decoder, bytes: &[u8]| {
        let mut out = vec![0; 64 * 80 * 3];
        let field = |_: &str| Some(Bytes::copy_from_slice(bytes).into());
        decoder.decode_sample(key(0), &field, &mut [FieldTarget::Fixed(&mut out)]).map(|()| out)
    };
    let expected =
        picture("{ resize = { size = [64, 80] } }", "", &encoded(&large.to_rgb8().into(), ImageFormat::Bmp)).unwrap();
    for png in [DynamicImage::from(large.to_rgb8()), large.to_rgba16().into()] {
        let png = encoded(&png, ImageFormat::Png);
        let decoder = Decoder::new(&job, CLASSES).unwrap().with_memory(memory.clone());
        assert!(decode(decoder, &png).unwrap() == expected, "and gives the same pixels");
    }
    let decoder = Decoder::new(&job, CLASSES).unwrap().with_memory(memory);
    let problem = decode(decoder, &encoded(&large.to_rgb8().into(), ImageFormat::Bmp)).unwrap_err().problem;
    assert!(matches!(problem, BadSampleProblem::TooMuchMemory { width: 1800, height: 1300, .. }), "{problem}");
}

#[test]
fn of_a_png_the_rows_below_a_crop_are_not_read() {
    let cat = reference(CAT).to_rgb8();
    let [png, bmp] = [ImageFormat::Png, ImageFormat::Bmp].map(|format| encoded(&cat.clone().into(), format));
    let job = job(&[&image_column("{ random_resized_crop = { size = [20, 28], scale = [0.05, 0.3] } }", "")]);
    let crop = |id: u64, bytes: &[u8]| decode(&job, key(id), &[("jpg", bytes)]);
    let cut = &png[..png.len() * 2 / 3];
    let of_cut = (0..60).map(|id| {
        let expected = crop(id, &bmp).unwrap();
        assert!(crop(id, &png).unwrap() == expected, "sample {id}");
        crop(id, cut).map(|found| assert!(found == expected, "sample {id} of a file that is cut off")).is_ok()
    });
    let good = of_cut.filter(|is_good| *is_good).count();
    assert!((6..54).contains(&good), "{good} of 60 crops are above the end of the file");
}

#[test]
fn a_missing_field_names_all_that_would_do() {
    let column = image_column(RESIZE, "");
    assert_eq!(column_error(&column, &[("cls", b"3")]), "column `image`: record has no field `jpg` or `png`");
    let found = decode(&job(&[&column]), key(0), &[("png", CAT)]);
    assert!(found.is_ok(), "the second name is taken where the first is not there");
}

#[test]
fn numbers_that_are_none_name_their_column() {
    let label = "name = \"label\"\nfrom = \"cls\"\ndecode = \"int\"\ndtype = \"i32\"";
    assert_eq!(
        column_error(label, &[("cls", b"ca\x00t")]),
        "column `label`: field `cls` is \"ca\\x00t\", not a whole number"
    );
    assert!(column_error(label, &[("cls", b"3000000000")]).contains("outside the range of i32"));
    let json = "name = \"score\"\nfrom = \"json\"\ndecode = \"json\"\npath = \"a.b\"";
    let error = column_error(json, &[("json", b"{\"a\": {}}")]);
    assert_eq!(error, "column `score`: field `json` has no number at `a.b`, but nothing");
}

#[test]
fn a_value_longer_than_its_column_is_refused() {
    let text = job(&["name = \"text\"\nfrom = \"txt\"\ndecode = \"bytes\"\nmax_bytes = 5"]);
    let decoder = Decoder::new(&text, CLASSES).unwrap();
    let run = |bytes: &'static [u8]| {
        let mut value = Bytes::new();
        let field = |_: &str| Some(Bytes::from_static(bytes).into());
        decoder.decode_sample(key(0), &field, &mut [FieldTarget::Ragged(&mut value)]).map(|()| value)
    };
    let whole = run(b"hello").unwrap();
    assert_eq!(&whole[..], b"hello");
    assert_eq!(run(b"").unwrap().len(), 0, "an empty text is a value");
    let error = run(b"hello!").unwrap_err().to_string();
    assert_eq!(error, "column `text`: field `txt` is 6 bytes; `max_bytes` is 5");
}

fn annotation(class: &str, [xmin, ymin, xmax, ymax]: [i32; 4]) -> Vec<u8> {
    format!(
        "<annotation><object><name>{class}</name><bndbox><xmin>{xmin}</xmin><ymin>{ymin}</ymin><xmax>{xmax}</xmax>\
         <ymax>{ymax}</ymax></bndbox></object></annotation>"
    )
    .into_bytes()
}

#[test]
fn boxes_are_cut_and_their_classes_numbered() {
    let columns = [
        image_column("{ crop_box = {} }, { resize = { size = [30, 20] } }", ""),
        "name = \"class\"\nfrom = \"xml\"\ndecode = \"box_class\"".to_owned(),
    ];
    let job = job(&[&columns[0], &columns[1]]);
    let fields = [("jpg", CAT), ("xml", &annotation("cat", [40, 50, 60, 80])[..])];
    let decoded = decode(&job, key(0), &fields).unwrap();
    assert_eq!(decoded[0], seen(CAT, [160, 240]).crop_imm(40, 50, 20, 30).to_rgb8().into_raw());
    assert_eq!(decoded[1], 1i64.to_le_bytes());

    let error_of = |xml: &[u8], sample_in_record| {
        let key = SampleKey { sample_in_record, ..key(0) };
        decode(&job, key, &[("jpg", CAT), ("xml", xml)]).unwrap_err().to_string()
    };
    let cat = annotation("cat", [40, 50, 60, 80]);
    assert_eq!(error_of(&cat, 1), "column `image`: field `xml` has 1 boxes; the sample is number 1 from 0");
    let error = error_of(&annotation("okapi", [40, 50, 60, 80]), 0);
    assert_eq!(error, "column `class`: field `xml` has a box of class `okapi`, which the dataset does not list");
    let error = error_of(&annotation("cat", [400, 50, 460, 80]), 0);
    assert_eq!(error, "column `image`: field `xml` has a box that leaves nothing of the picture");
    assert!(error_of(b"<annotation", 0).starts_with("column `image`: field `xml` is not a VOC annotation: "));
}

#[test]
fn a_job_that_wants_classes_needs_a_dataset_with_classes() {
    let job = job(&["name = \"class\"\nfrom = \"xml\"\ndecode = \"box_class\""]);
    assert!(matches!(Decoder::new(&job, []), Err(DecoderError::NoClasses { .. })));
    assert!(matches!(Decoder::new(&job, ["a", "b", "a"]), Err(DecoderError::ClassTwice { .. })));
    assert_eq!(Decoder::new(&job, CLASSES).unwrap().field_names().collect::<Vec<_>>(), ["xml"]);
}

#[test]
fn names_are_numbered_by_the_column_or_by_the_dataset() {
    let column = |more: &str| job(&[&format!("name = \"n\"\nfrom = \"txt\"\ndecode = \"category\"\n{more}")]);
    let own = column("names = [\"rain\", \"sun\", \"ein \\u00e9clair\"]\ndtype = \"i32\"");
    let number = |job: &Job, name: &str| {
        decode(job, key(0), &[("txt", name.as_bytes())])
            .map(|columns| columns[0].clone())
            .map_err(|cause| cause.to_string())
    };
    assert_eq!(number(&own, "sun\n").unwrap(), 1i32.to_le_bytes());
    assert_eq!(number(&own, "ein \u{e9}clair").unwrap(), 2i32.to_le_bytes());
    let error = number(&own, "Sun").unwrap_err();
    assert_eq!(error, "column `n`: field `txt` is \"Sun\", which is none of the column's names");
    assert!(decode(&own, key(0), &[("txt", &[0xff])]).is_err());
    assert_eq!(number(&column(""), CLASSES[1]).unwrap(), 1i64.to_le_bytes());
    assert!(matches!(Decoder::new(&column(""), []), Err(DecoderError::NoNames { .. })));
    assert!(Decoder::new(&own, []).is_ok());
}

#[test]
fn text_has_to_be_utf_8() {
    let job = job(&["name = \"n\"\nfrom = \"txt\"\ndecode = \"text\"\nmax_bytes = 12"]);
    let decoder = Decoder::new(&job, []).unwrap();
    let text = |bytes: &[u8]| {
        let mut value = Bytes::new();
        let field = |_: &str| Some(Bytes::copy_from_slice(bytes).into());
        let decoded = decoder.decode_sample(key(0), &field, &mut [FieldTarget::Ragged(&mut value)]);
        decoded.map(|()| value).map_err(|cause| cause.to_string())
    };
    for good in ["", " a \n", "\u{1f600}\u{e9}"] {
        assert_eq!(text(good.as_bytes()).unwrap(), good.as_bytes());
    }
    assert_eq!(text(b"caf\xe9").unwrap_err(), "column `n`: field `txt` is not UTF-8 from byte 3 on");
    assert!(text(b"thirteen byte").unwrap_err().contains("is 13 bytes; `max_bytes` is 12"));
}
