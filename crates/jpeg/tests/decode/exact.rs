//! At scale 1, all bytes equal those of the plain decoder, whichever part of the picture is requested.

use super::{plain::PlainPicture, *};

fn whole(size: [u32; 2]) -> PictureRequest {
    PictureRequest { x: unscaled(0, size[0]), y: unscaled(0, size[1]), transposed: false }
}

fn part(picture: &PlainPicture, [left, top, width, height]: [u32; 4]) -> Vec<u8> {
    let rows = picture.rgb.chunks(picture.width).skip(top as usize).take(height as usize);
    rows.flat_map(|row| row[left as usize..(left + width) as usize].as_flattened().to_vec()).collect()
}

pub(crate) fn styles() -> impl Iterator<Item = Style> {
    use SamplingFactor::{R_4_2_0, R_4_2_2, R_4_4_0, R_4_4_4};
    let plain = [R_4_2_0, R_4_2_2, R_4_4_0, R_4_4_4].map(|sampling| Style { sampling, ..STYLE });
    let coarse = plain.map(|style| Style { quality: 40, interval: 3, ..style });
    let fine = plain.map(|style| Style { quality: 100, interval: 1, ..style });
    let grey = [0, 5].map(|interval| Style { grey: true, interval, ..STYLE });
    plain.into_iter().chain(coarse).chain(fine).chain(grey)
}

#[test]
fn whole_pictures_are_the_plain_decoders() {
    for style in styles() {
        for size in [[97, 61], [64, 48], [16, 16], [1, 1], [7, 130], [130, 7]] {
            let bytes = encoded(&cut("chelsea", size), style);
            let expected = plain::decode(&bytes);
            assert!(rendered(&bytes, &whole(size)).unwrap() == expected.rgb.as_flattened(), "{style:?} {size:?}");
        }
    }
}

#[test]
fn any_rectangle_is_cut_from_the_whole_picture() {
    let size = [150, 131];
    for style in styles() {
        let bytes = encoded(&cut("astronaut", size), style);
        let expected = plain::decode(&bytes);
        let mut draw = XorShift::new(1 + u64::from(style.interval));
        for _ in 0..40 {
            let [width, height] = size.map(|side| 1 + draw.below(side as usize) as u32);
            let left = draw.below((size[0] - width + 1) as usize) as u32;
            let top = draw.below((size[1] - height + 1) as usize) as u32;
            let request = PictureRequest { x: unscaled(left, width), y: unscaled(top, height), transposed: false };
            let rect = [left, top, width, height];
            assert!(rendered(&bytes, &request).unwrap() == part(&expected, rect), "{style:?} {rect:?}");
        }
    }
}

#[test]
fn pictures_larger_than_the_window_are_read_in_pieces() {
    let picture = photograph("astronaut");
    let size = [picture.width(), picture.height()];
    for interval in [0, 7, 300] {
        let bytes = encoded(&picture, Style { quality: 98, interval, ..STYLE });
        assert!(bytes.len() > 100_000, "{} bytes", bytes.len());
        let expected = plain::decode(&bytes);
        assert!(rendered(&bytes, &whole(size)).unwrap() == expected.rgb.as_flattened());
        let corner = PictureRequest { x: unscaled(400, 100), y: unscaled(450, 60), transposed: false };
        assert!(rendered(&bytes, &corner).unwrap() == part(&expected, [400, 450, 100, 60]));
    }
}

#[test]
fn mirrored_and_turned_pictures_are_the_same_pictures() {
    let (size, [left, top, width, height]) = ([150, 131], [31, 17, 67, 90]);
    for style in styles() {
        let bytes = encoded(&cut("chelsea", size), style);
        let straight = PictureRequest { x: unscaled(left, width), y: unscaled(top, height), transposed: false };
        let expected = rendered(&bytes, &straight).unwrap();
        for turn in 1..8 {
            let (columns, rows, transposed) = (turn & 1 == 1, turn & 2 == 2, turn & 4 == 4);
            let x = Axis { reversed: columns, ..straight.x };
            let y = Axis { reversed: rows, ..straight.y };
            let turned = rendered(&bytes, &PictureRequest { x, y, transposed }).unwrap();
            let worst = (0..width * height).map(|at| {
                let (x, y) = (at % width, at / width);
                let (seen_x, seen_y) = (if columns { width - 1 - x } else { x }, if rows { height - 1 - y } else { y });
                let seen = if transposed { seen_x * height + seen_y } else { seen_y * width + seen_x };
                let [a, b] = [(&expected, at), (&turned, seen)].map(|(of, at)| &of[at as usize * 3..][..3]);
                a.iter().zip(b).map(|(a, b)| a.abs_diff(*b)).max().unwrap()
            });
            // When transposed, the transform's two passes swap their order, and so does the rounding.
            let allowed = if transposed { 6 } else { 0 };
            assert!(worst.max().unwrap() <= allowed, "{style:?} turn {turn}");
        }
    }
}

#[test]
fn memory_of_the_last_picture_leaves_no_trace() {
    let mut scratch = Scratch::new();
    let big = encoded(&photograph("astronaut"), Style { ..STYLE });
    let small = encoded(&cut("chelsea", [90, 50]), Style { sampling: SamplingFactor::R_4_2_2, ..STYLE });
    let request = PictureRequest { x: scaled(3, 80, 40), y: scaled(5, 45, 50), transposed: false };
    let fresh = rendered_with(&mut scratch, &small, &request).unwrap();
    rendered_with(&mut scratch, &big, &whole([512, 512])).unwrap();
    assert!(rendered_with(&mut scratch, &big[..big.len() / 2], &whole([512, 512])).is_err());
    assert!(rendered_with(&mut scratch, &small, &request).unwrap() == fresh);
}
