use super::*;

fn column(name: &str, shape: &[usize], offsets: Option<&[usize]>, values: SheetValues) -> SheetColumn {
    SheetColumn { name: name.to_owned(), shape: shape.to_vec(), offsets: offsets.map(<[usize]>::to_vec), values }
}

fn drawn(columns: &[SheetColumn]) -> image::RgbImage {
    let png = png(columns, MAX_SAMPLES, &["ant".to_owned(), "bee".to_owned()]).unwrap();
    image::load_from_memory(&png).unwrap().into_rgb8()
}

#[test]
fn pictures_lie_side_by_side_and_masks_and_boxes_are_on_them() {
    let grey = column("image", &[2, 100, 100, 3], None, SheetValues::U8(vec![128; 2 * 100 * 100 * 3]));
    let plain = drawn(std::slice::from_ref(&grey));
    // Two pictures of 100 pixels, with room for text below, and gaps.
    assert_eq!(plain.dimensions(), (2 * 106 + 6, 6 + 130 + 6));
    assert_eq!(
        (plain.get_pixel(6, 6).0, plain.get_pixel(105, 105).0, plain.get_pixel(112, 6).0),
        ([128; 3], [128; 3], [128; 3])
    );
    assert_eq!((plain.get_pixel(5, 5).0, plain.get_pixel(108, 50).0), ([255; 3], [255; 3]));

    let mut mask = vec![0; 2 * 100 * 100];
    mask[..100].fill(1);
    let mask = column("mask", &[2, 100, 100], None, SheetValues::U8(mask));
    let boxes = column("boxes", &[1, 4], Some(&[0, 0, 1]), SheetValues::F32(vec![20.0, 30.0, 60.0, 70.0]));
    let labels = column("labels", &[1], Some(&[0, 0, 1]), SheetValues::I64(vec![1]));
    let label = column("label", &[2], None, SheetValues::I64(vec![0, 1]));
    let sheet = drawn(&[grey, mask, boxes, labels, label]);
    let covered = [128_u8.midpoint(86), 128_u8.midpoint(180), 128_u8.midpoint(233)];
    assert_eq!((sheet.get_pixel(6, 6).0, sheet.get_pixel(6, 7).0), (covered, [128; 3]));
    let edge = [86, 180, 233];
    assert_eq!([(132, 50), (172, 50), (150, 36), (150, 76)].map(|(x, y)| sheet.get_pixel(x, y).0), [edge; 4]);
    assert_eq!(sheet.get_pixel(26, 36).0, [128; 3], "the first sample has no box");
    let ink = |x: u32| {
        (0..30)
            .flat_map(|y| (0..60).map(move |dx| (x + dx, 106 + y)))
            .filter(|(x, y)| sheet.get_pixel(*x, *y).0 == [0; 3])
            .count()
    };
    assert!(ink(6) > 10 && ink(112) > 10, "labels are written below");
}

#[test]
fn floats_are_levels_or_are_stretched_and_planes_are_put_together() {
    let mut planes = vec![0.0; 3 * 96 * 96];
    planes[..96 * 96].fill(1.0);
    let red = drawn(&[column("image", &[1, 3, 96, 96], None, SheetValues::F32(planes.clone()))]);
    assert_eq!(red.get_pixel(20, 20).0, [255, 0, 0]);
    let normalised = planes.iter().map(|value| value * 4.0 - 2.0).collect();
    let stretched = drawn(&[column("image", &[1, 3, 96, 96], None, SheetValues::F32(normalised))]);
    assert_eq!(stretched.get_pixel(20, 20).0, [255, 0, 0]);
}

#[test]
fn what_is_no_batch_of_pictures_is_an_error() {
    let label = column("label", &[2], None, SheetValues::I64(vec![0, 1]));
    assert!(png(&[label], 1, &[]).unwrap_err().contains("no column has pictures"));
    let short = column("image", &[1, 8, 8, 3], None, SheetValues::U8(vec![0; 7]));
    assert!(png(&[short], 1, &[]).unwrap_err().contains("column `image` has 7 values, and its shape is [1, 8, 8, 3]"));
    let empty = column("image", &[0, 8, 8, 3], None, SheetValues::U8(Vec::new()));
    assert_eq!(png(&[empty], 1, &[]).unwrap_err(), "the batch has no samples");
}
