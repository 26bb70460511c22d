//! Pictures of different sizes: each is what resizing it to its size gives.

use super::*;

const FORMS: [&str; 5] = [
    "",
    "layout = \"nchw\"\ndtype = \"f32\"\nnormalise = { mean = [0.5, 0.4, 0.3], std = [0.2, 0.2, 0.2] }",
    "color = \"gray\"\ndtype = \"f16\"",
    "color = \"rgba\"",
    "dtype = \"u16\"",
];

/// Decodes a picture by a ragged column of pictures, and its height and width in the batch.
fn decoded(ops: &str, more: &str, file: &[u8]) -> Result<(Vec<u8>, [u64; 2]), BadSampleCause> {
    let size = "name = \"size\"\nfrom = \"jpg|png\"\ndecode = \"image_size\"\nfollows = \"image\"\nafter_ops = true";
    let job = job(&[size, &image_column(ops, more)]);
    let decoder = Decoder::new(&job, CLASSES).unwrap();
    let (mut sides, mut pixels) = ([0xaa; 16], Bytes::new());
    let field = |name: &str| (name == "jpg").then(|| Bytes::copy_from_slice(file).into());
    decoder.decode_sample(key(3), &field, &mut [FieldTarget::Fixed(&mut sides), FieldTarget::Ragged(&mut pixels)])?;
    let side = |at: usize| u64::from_le_bytes(sides[at..at + 8].try_into().unwrap());
    Ok((pixels.to_vec(), [side(0), side(8)]))
}

#[test]
fn pictures_of_their_own_sizes_are_what_resizing_to_these_gives() {
    let mut sizes = BTreeSet::new();
    for file in [CAT, COFFEE_PROGRESSIVE, COFFEE_CMYK, ASTRONAUT, ASTRONAUT_EXIF] {
        for (more, interpolation) in FORMS.into_iter().zip(["bilinear", "bilinear", "bicubic", "nearest", "lanczos"]) {
            let keys = format!("interpolation = \"{interpolation}\"");
            for limits in ["min_pixels = 784, max_pixels = 9000", "min_pixels = 400000, max_pixels = 500000"] {
                let ops = format!("{{ smart_resize = {{ factor = 14, {limits}, {keys} }} }}, \"random_flip\"");
                let (pixels, [height, width]) = decoded(&ops, more, file).unwrap();
                assert!(height % 14 == 0 && width % 14 == 0, "{height}x{width}");
                let is_small = limits.contains("9000");
                assert!(if is_small { height * width <= 9000 } else { height * width >= 400_000 }, "{height}x{width}");
                let ops = format!("{{ resize = {{ size = [{height}, {width}], {keys} }} }}, \"random_flip\"");
                assert!(pixels == picture(&ops, more, file).unwrap(), "{more}, {height}x{width}");
                sizes.insert([height, width]);
            }
        }
    }
    assert!(sizes.len() > 4, "they have sizes of their own: {sizes:?}");
}

#[test]
fn a_picture_that_is_too_narrow_is_a_bad_sample() {
    let narrow = |width| encoded(&DynamicImage::new_rgb8(width, 4), ImageFormat::Png);
    let (pixels, size) = decoded("\"smart_resize\"", "", &narrow(800)).unwrap();
    assert_eq!((size, pixels.len()), ([28, 812], 28 * 812 * 3));
    let problem = decoded("\"smart_resize\"", "", &narrow(801)).unwrap_err().to_string();
    assert!(problem.contains("a picture of 801x4 is more than 200 times as long as it is wide"), "{problem}");
}

#[test]
fn the_size_after_the_operations_is_that_of_each_of_several_pictures() {
    let size = "name = \"size\"\nfrom = \"jpg\"\ndecode = \"image_size\"\nfollows = \"image\"\nafter_ops = true";
    let job = job(&[size, &image_column("{ resize = 40 }, { five_crop = [8, 9] }", "")]);
    let columns = decode(&job, key(3), &[("jpg", CAT)]).unwrap();
    assert_eq!(columns[0], [8_u64, 9].map(u64::to_le_bytes).concat());
}
