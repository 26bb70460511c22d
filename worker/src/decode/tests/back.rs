//! The matrix from places in the result to places in the picture.

use image::{ImageFormat, Rgb, RgbImage};

use super::*;

const WIDTH: u32 = 240;
const HEIGHT: u32 = 160;

/// Returns a picture that has in its pixels where they are; blue marks that a pixel is of the picture.
fn places() -> Vec<u8> {
    encoded(&RgbImage::from_fn(WIDTH, HEIGHT, |x, y| Rgb([x as u8, y as u8, 200])).into(), ImageFormat::Png)
}

fn geometry(ops: &str, dtype: &str) -> Job {
    let columns = ["geometry", "image_size"]
        .map(|decode| format!("name = \"{decode}\"\nfrom = \"jpg|png\"\ndecode = \"{decode}\"\nfollows = \"image\""));
    job(&[&format!("{}\ndtype = \"{dtype}\"", columns[0]), &columns[1], &image_column(ops, "")])
}

fn numbers(bytes: &[u8]) -> Vec<f64> {
    bytes.as_chunks().0.iter().map(|number| f64::from_le_bytes(*number)).collect()
}

#[test]
fn the_matrix_leads_from_each_pixel_to_the_one_that_it_shows() {
    let picture = places();
    for ops in [
        "{ resize = [160, 240] }",
        "{ random_resized_crop = { size = [90, 70], scale = [0.3, 1.0] } }, { random_flip = 0.5 }, { random_vertical_flip = 0.5 }",
        "{ random_crop = { size = [120, 130], padding = [30, 40], fill = 9 } }, { random_flip = 0.5 }",
        "{ letterbox = { size = [100, 100], fill = 114 } }, { random_flip = 0.5 }",
        "{ random_flip = 0.5 }, { letterbox = [300, 400] }, { center_crop = [310, 330] }",
        "{ random_rotation = { degrees = 40, expand = true } }, { random_vertical_flip = 0.5 }, { resize = [100, 110] }",
        "{ random_affine = { degrees = 30, translate = [0.2, 0.2], scale = [0.7, 1.3], shear = 15 } }, { random_crop = [140, 200] }",
        "{ random_flip = 0.5 }, { random_perspective = { p = 1.0 } }, { pad = { padding = [3, 5, 7, 9], fill = 1 } }, { center_crop = [170, 230] }",
    ] {
        let job = geometry(ops, "f64");
        let [height, width, _] = job.columns[2].sample_shape().unwrap()[..] else { panic!("a picture") };
        for id in 0..20 {
            let [matrix, size, image] = &decode(&job, key(id), &[("png", &picture)]).unwrap()[..] else {
                panic!("three")
            };
            assert_eq!(size, &[u64::from(HEIGHT), u64::from(WIDTH)].map(u64::to_le_bytes).concat());
            let matrix = numbers(matrix);
            let (mut seen, mut farthest) = (0, 0.0_f64);
            for (at, [red, green, blue]) in (0..).zip(image.as_chunks().0) {
                // What is blended with what lies beyond the picture shows no place.
                if *blue != 200 {
                    continue;
                }
                let (x, y) = (f64::from(at % width) + 0.5, f64::from(at / width) + 0.5);
                let [u, v, w] = [0, 3, 6].map(|row| matrix[row] * x + matrix[row + 1] * y + matrix[row + 2]);
                let off = [u / w - 0.5 - f64::from(*red), v / w - 0.5 - f64::from(*green)];
                farthest = off.iter().fold(farthest, |farthest, off| farthest.max(off.abs()));
                seen += 1;
            }
            // Where a picture becomes smaller, pixels at its border are the mean of those that are there.
            let step = matrix[0].hypot(matrix[3]).max(matrix[1].hypot(matrix[4]));
            assert!(farthest < 0.8 + step / 2.0, "{ops}, sample {id}: {farthest} pixels, {matrix:?}");
            assert!(seen > width * height / 20, "{ops}, sample {id}: {seen} of {width}x{height}");
        }
    }
}

#[test]
fn an_upright_picture_and_its_turned_file_have_one_geometry() {
    let job = geometry("{ resize = [400, 300] }", "f32");
    let columns = decode(&job, key(0), &[("jpg", ASTRONAUT_EXIF)]).unwrap();
    let size: Vec<u64> = columns[1].as_chunks().0.iter().map(|side| u64::from_le_bytes(*side)).collect();
    let stored = image::load_from_memory(ASTRONAUT_EXIF).unwrap();
    assert_eq!(size, [u64::from(stored.width()), u64::from(stored.height())], "height is the file's width");
    let matrix: Vec<f32> = columns[0].as_chunks().0.iter().map(|factor| f32::from_le_bytes(*factor)).collect();
    let expected = [size[1] as f32 / 300.0, 0.0, 0.0, 0.0, size[0] as f32 / 400.0, 0.0, 0.0, 0.0, 1.0];
    assert_eq!(matrix, expected);
}
