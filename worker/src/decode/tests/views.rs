//! Samples of several pictures: what `five_crop` and `ten_crop` make of one.

use super::*;

/// The height and width of the cat, and of the views.
const WHOLE: [usize; 2] = [160, 240];
const EACH: [usize; 2] = [64, 45];

/// Cuts a part out of the RGB pixels of the whole cat.
fn cut(whole: &[u8], [top, left]: [usize; 2], mirrored: bool) -> Vec<u8> {
    let row = |y: usize| &whole[((top + y) * WHOLE[1] + left) * 3..][..EACH[1] * 3];
    let pixels = |y: usize| -> Vec<[u8; 3]> {
        let mut pixels = row(y).as_chunks::<3>().0.to_vec();
        if mirrored {
            pixels.reverse();
        }
        pixels
    };
    (0..EACH[0]).flat_map(|y| pixels(y).into_iter().flatten()).collect()
}

#[test]
fn a_sample_holds_the_views_one_after_the_other_in_every_layout_and_type() {
    let whole = whole(CAT, WHOLE.map(|side| side as u32));
    let [below, across] = [WHOLE[0] - EACH[0], WHOLE[1] - EACH[1]];
    // 195 / 2 rounds to the even 98.
    let places = [[0, 0], [0, across], [below, 0], [below, across], [below / 2, 98]];
    let five: Vec<u8> = places.iter().flat_map(|place| cut(&whole, *place, false)).collect();
    assert!(picture("{ five_crop = [64, 45] }", "", CAT).unwrap() == five);

    let mirrored = places.iter().flat_map(|[top, left]| {
        // The middle of the mirrored picture is half a pixel off that of the picture.
        let left = across - left;
        cut(&whole, [*top, left], true)
    });
    let ten: Vec<u8> = five.iter().copied().chain(mirrored).collect();
    assert!(picture("{ ten_crop = [64, 45] }", "", CAT).unwrap() == ten);

    let planes = picture("{ five_crop = [64, 45] }", "layout = \"nchw\"\ndtype = \"f32\"", CAT).unwrap();
    let values: Vec<f32> = planes.as_chunks::<4>().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect();
    let pixels = EACH[0] * EACH[1];
    for (at, byte) in five.iter().enumerate() {
        let (view, pixel, channel) = (at / (3 * pixels), at / 3 % pixels, at % 3);
        assert_eq!(values[(view * 3 + channel) * pixels + pixel], f32::from(*byte) / 255.0, "byte {at}");
    }
}

#[test]
fn views_are_cut_after_all_other_operations_and_only_from_pictures_that_are_large_enough() {
    let shrunk = picture("{ resize = [70, 50] }, { random_invert = 1 }, { ten_crop = [64, 45] }", "", CAT).unwrap();
    let one_by_one = picture("{ resize = [70, 50] }, { random_invert = 1 }", "", CAT).unwrap();
    assert!(shrunk[..45 * 3] == one_by_one[..45 * 3], "the first row of the view at the top left");
    assert_eq!(shrunk.len(), 10 * 64 * 45 * 3);
    let cause = picture("{ five_crop = 400 }", "", CAT).unwrap_err();
    assert_eq!(
        cause.problem.to_string(),
        "a picture of 240x160 is smaller than the 400x400 of `five_crop`; resize or pad it before"
    );
}
