//! Lists of pictures: each picture is decoded as a single one is, with draws of its own.

use proptest::prelude::*;
use spdl_shard::format::FieldValue;

use super::*;

/// Operations that draw, or that make several pictures of one.
const OPS: [&str; 5] = [
    "{ random_resized_crop = 24 }, \"random_flip\"",
    "{ resize = 40 }, { random_crop = [24, 30] }, { color_jitter = { brightness = 0.4, hue = 0.1 } }",
    "{ random_affine = { degrees = 30, scale = [0.5, 2.0] } }, { resize = [20, 21] }, { random_erasing = { p = 0.5 } }",
    "{ random_apply = [{ gaussian_blur = 3 }] }, { resize = [64, 64] }, { five_crop = 16 }",
    "{ letterbox = 25 }, { random_invert = 0.5 }",
];
const FORMS: [&str; 4] = [
    "",
    "layout = \"nchw\"\ndtype = \"f32\"\nnormalise = { mean = [0.5, 0.4, 0.3], std = [0.2, 0.2, 0.2] }",
    "color = \"gray\"\ndtype = \"f16\"",
    "background = [255, 128, 0]\ncolor = \"bgr\"",
];

fn list_of(files: &[Option<&[u8]>]) -> FieldValue {
    FieldValue::List(files.iter().map(|file| file.map(Bytes::copy_from_slice)).collect())
}

/// Decodes a sample whose field has this value, to the bytes of the one column of a job.
fn decoded(decoder: &Decoder, column: &Column, key: SampleKey, value: &FieldValue) -> Result<Vec<u8>, BadSampleCause> {
    let mut ragged = Bytes::new();
    let mut fixed = column.sample_shape().map(|_| vec![0xaa; column.max_bytes() as usize]);
    let target = match &mut fixed {
        Some(place) => FieldTarget::Fixed(place),
        None => FieldTarget::Ragged(&mut ragged),
    };
    decoder.decode_sample(key, &|_: &str| Some(value.clone()), &mut [target])?;
    Ok(fixed.unwrap_or_else(|| ragged.to_vec()))
}

/// Decodes lists of pictures by a column with these keys.
fn pictures(ops: &str, more: &str, key: SampleKey, files: &[Option<&[u8]>]) -> Result<Vec<u8>, BadSampleCause> {
    let job = job(&[&image_column(ops, more)]);
    decoded(&Decoder::new(&job, CLASSES).unwrap(), &job.columns[0], key, &list_of(files))
}

fn problem(more: &str, files: &[Option<&[u8]>]) -> String {
    pictures("{ center_crop = 8 }", more, key(3), files).unwrap_err().to_string()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_list_of_one_picture_is_what_the_picture_is_alone(
        ops in 0..OPS.len(), form in 0..FORMS.len(), picture in 0..4_usize, id in any::<u64>(), is_exact in any::<bool>(),
    ) {
        let (ops, form, key) = (OPS[ops], FORMS[form], key(id));
        let file = [CAT, COFFEE_CMYK, ASTRONAUT_EXIF, ASTRONAUT_GREY][picture];
        let alone = job(&[&image_column(ops, form)]);
        let expected = decode(&alone, key, &[("jpg", file)]).unwrap().remove(0);
        let more = format!("{form}\n{}", if is_exact { "pictures = 1" } else { "max_rows = 3" });
        let list = pictures(ops, &more, key, &[Some(file)]).unwrap();
        prop_assert!(list == expected);
        // A field that is no list has one picture.
        let job = job(&[&image_column(ops, &more)]);
        let decoder = Decoder::new(&job, CLASSES).unwrap();
        let one = decoded(&decoder, &job.columns[0], key, &Bytes::copy_from_slice(file).into()).unwrap();
        prop_assert!(one == expected);
    }
}

#[test]
fn each_picture_of_a_list_draws_by_its_place_alone() {
    let crop = "{ random_resized_crop = 24 }";
    let each = 24 * 24 * 3;
    let list = |id, files: &[Option<&[u8]>]| pictures(crop, "max_rows = 4", key(id), files).unwrap();
    let same = list(3, &[Some(CAT); 4]);
    assert_eq!(same.len(), 4 * each);
    let parts: std::collections::BTreeSet<&[u8]> = same.chunks_exact(each).collect();
    assert_eq!(parts.len(), 4, "the same picture is cut in four ways");
    let mixed = list(3, &[Some(ASTRONAUT), Some(COFFEE_PROGRESSIVE), Some(CAT)]);
    assert!(mixed[2 * each..] == same[2 * each..3 * each], "whatever the others are");
    assert!(list(4, &[Some(CAT); 4]) != same);
    let other_epoch = SampleKey { epoch: 2, ..key(3) };
    assert!(pictures(crop, "max_rows = 4", other_epoch, &[Some(CAT); 4]).unwrap() != same);
    let exact = pictures(crop, "pictures = 4", key(3), &[Some(CAT); 4]).unwrap();
    assert!(exact == same);
}

#[test]
fn pictures_with_alpha_and_of_16_bits_lie_one_after_the_other() {
    let picture = DynamicImage::from(image::RgbaImage::from_fn(9, 7, |x, y| image::Rgba([x as u8, y as u8, 7, 200])));
    let png = encoded(&picture, ImageFormat::Png);
    let files = [Some(&png[..]), Some(CAT), Some(&png[..])];
    for more in ["color = \"rgba\"", "dtype = \"u16\"", "dtype = \"f32\"\ndepth = 32\nlayout = \"nchw\""] {
        let ops = "{ resize = [7, 9] }";
        let list = pictures(ops, &format!("max_rows = 3\n{more}"), key(1), &files).unwrap();
        let alone =
            files.map(|file| decode(&job(&[&image_column(ops, more)]), key(1), &[("jpg", file.unwrap())]).unwrap());
        assert!(list == alone.concat().concat(), "{more}");
    }
}

#[test]
fn a_list_may_be_empty_and_has_no_more_pictures_than_the_column() {
    assert!(pictures("{ center_crop = 8 }", "max_rows = 2", key(3), &[]).unwrap().is_empty());
    let cat = Some(CAT);
    let expected = "column `image`: field `jpg` has 3 pictures; `max_rows` is 2";
    assert_eq!(problem("max_rows = 2", &[cat; 3]), expected);
    for files in [&[][..], &[cat], &[cat; 3]] {
        let expected = format!("column `image`: field `jpg` has {} pictures; `pictures` is 2", files.len());
        assert_eq!(problem("pictures = 2", files), expected);
    }
}

#[test]
fn what_is_wrong_with_a_picture_is_named_with_its_place() {
    let cat = Some(CAT);
    for list in ["max_rows = 4", "pictures = 3"] {
        for (files, expected) in [
            ([cat, None, cat], "picture 1 of the list, from 0: field `jpg` is null"),
            ([None, cat, cat], "picture 0 of the list, from 0: field `jpg` is null"),
            ([cat, cat, Some(&b""[..])], "picture 2 of the list, from 0: field `jpg` is empty"),
            (
                [cat, cat, Some(&CAT[..900])],
                "picture 2 of the list, from 0: field `jpg` is a JPEG that is cut off after 900",
            ),
            ([cat, Some(&b"text"[..]), None], "picture 1 of the list, from 0: field `jpg` does not decode"),
        ] {
            let problem = problem(list, &files);
            assert!(problem.starts_with(&format!("column `image`: {expected}")), "{problem}");
        }
    }
    let kind = |files: &[Option<&[u8]>]| {
        pictures("{ center_crop = 8 }", "max_rows = 4", key(3), files).unwrap_err().kind(true)
    };
    assert_eq!(kind(&[None]), kind(&[cat, None]));
    assert_eq!(kind(&[Some(&CAT[..900])]), kind(&[cat, cat, Some(&CAT[..700])]));
    assert_ne!(kind(&[None]), kind(&[Some(&CAT[..900])]));
}

#[test]
fn a_column_of_one_value_takes_a_list_of_one_and_no_other() {
    let ops = "{ center_crop = 8 }";
    let alone = picture(ops, "", CAT).unwrap();
    assert!(pictures(ops, "", key(3), &[Some(CAT)]).unwrap() == alone);
    let expected = "column `image`: field `jpg` is a list of 2 values, and one is wanted; decode = \"image\" takes lists of \
                    pictures with `max_rows`, the most of a sample, or `pictures`, the number that all samples have";
    assert_eq!(problem("", &[Some(CAT); 2]), expected);
    assert!(problem("", &[None]).contains("field `jpg` is a list of one null, which is no value"));
    assert_eq!(problem("", &[]), "column `image`: field `jpg` is empty");
    let text = |files: &[Option<&[u8]>]| {
        let job = job(&["name = \"text\"\nfrom = \"txt\"\ndecode = \"text\"\nmax_bytes = 9"]);
        decoded(&Decoder::new(&job, CLASSES).unwrap(), &job.columns[0], key(1), &list_of(files))
    };
    assert_eq!(text(&[Some(b"abc")]).unwrap(), b"abc");
    assert_eq!(text(&[]).unwrap(), b"");
    assert!(text(&[Some(b"a"), Some(b"b")]).unwrap_err().to_string().contains("field `txt` is a list of 2 values"));
}

#[test]
fn the_pictures_of_a_list_count_as_memory_of_each() {
    let job = job(&[&image_column("{ resize = [256, 256] }", "max_rows = 100")]);
    let decoder = Decoder::new(&job, CLASSES).unwrap().with_memory_bytes(4 << 20);
    let list = |count| decoded(&decoder, &job.columns[0], key(1), &list_of(&vec![Some(CAT); count]));
    assert_eq!(list(3).unwrap().len(), 3 * 256 * 256 * 3);
    let problem = list(30).unwrap_err().to_string();
    assert!(
        problem.contains("picture 0 of the list") && problem.contains("bytes to decode; 4194304 are for decoding"),
        "{problem}"
    );
}
