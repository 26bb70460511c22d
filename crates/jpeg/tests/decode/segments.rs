//! Tests of tables of restart segments: the right table changes no pixel, and a wrong one only causes errors.

use spdl_jpeg::{SegmentTable, rewrite};

use super::*;

fn with_table(bytes: &[u8], table: SegmentTable<'_>, request: &PictureRequest) -> Result<Vec<u8>, Error> {
    let jpeg = Jpeg::open(bytes, Limits::default())?.with_segments(table);
    let [columns, rows] = request.result_size().map(|side| side as usize);
    let mut out = vec![0; columns * rows * 3];
    jpeg.render(request, &mut Scratch::new(), &mut Rgb::new(&mut out, columns))?;
    Ok(out)
}

#[test]
fn a_table_of_any_step_leads_to_the_same_pixels() {
    let photograph = photograph("coffee");
    let plain = encoded(&photograph, STYLE);
    let mut draw = XorShift::new(3);
    for interval in [1, 4, 7, 40] {
        let bytes = rewrite(&plain, interval, Limits::default()).unwrap();
        let starts = Jpeg::open(&bytes, Limits::default()).unwrap().segment_starts().unwrap();
        let mcus: u32 = Jpeg::open(&bytes, Limits::default()).unwrap().mcus().iter().product();
        assert_eq!(starts.len() as u32, mcus.div_ceil(u32::from(interval)));
        for step in [1, 2, 8, 1000] {
            let lengths = SegmentTable::lengths(step, &starts).unwrap();
            for _ in 0..4 {
                let [left, top] = [draw.below(300) as u32, draw.below(200) as u32];
                let (x, y) = (scaled(left, 250, 100), scaled(top, 180, 90));
                let request = PictureRequest { x, y, transposed: draw.below(2) == 1 };
                let found = with_table(&bytes, SegmentTable::new(step, &lengths), &request);
                assert!(found == rendered(&bytes, &request), "{interval} {step} {request:?}");
            }
        }
    }
}

#[test]
fn a_table_of_another_picture_is_an_error_where_it_is_used() {
    let bytes = rewrite(&encoded(&photograph("coffee"), STYLE), 4, Limits::default()).unwrap();
    let starts = Jpeg::open(&bytes, Limits::default()).unwrap().segment_starts().unwrap();
    let request = PictureRequest { x: scaled(100, 200, 100), y: scaled(200, 150, 100), transposed: false };
    let lengths = SegmentTable::lengths(8, &starts).unwrap();
    for (first, what) in
        [([0, 0], "too low"), ([255, 255], "too high"), ([lengths[0][0] ^ 1, lengths[0][1]], "one off")]
    {
        let mut lengths = lengths.clone();
        lengths[0] = first;
        let found = with_table(&bytes, SegmentTable::new(8, &lengths), &request);
        assert_eq!(found, Err(Error::Corrupt("a restart marker out of turn")), "{what}");
    }
    let beyond = vec![[255; 2]; 1000];
    assert!(with_table(&bytes, SegmentTable::new(1, &beyond), &request).is_err());
    // The decoder finds segments that the table lacks by their markers.
    assert!(with_table(&bytes, SegmentTable::new(8, &lengths[..2]), &request) == rendered(&bytes, &request));
}

#[test]
fn segments_of_64_kib_have_no_table() {
    assert_eq!(SegmentTable::lengths(1, &[10, 65_545]), Some(vec![[255, 255]]));
    assert_eq!(SegmentTable::lengths(1, &[10, 65_546]), None);
    assert_eq!(SegmentTable::lengths(8, &[10]), Some(vec![]));
}

#[test]
fn every_coefficient_is_checked() {
    let bytes = rewrite(&encoded(&cut("chelsea", [120, 90]), STYLE), 2, Limits::default()).unwrap();
    let check = |bytes: &[u8]| Jpeg::open(bytes, Limits::default()).and_then(|jpeg| jpeg.check_all());
    assert_eq!(check(&bytes), Ok(()));
    let starts = Jpeg::open(&bytes, Limits::default()).unwrap().segment_starts().unwrap();
    // Remove one segment in the middle, and one at the end.
    let middle = [&bytes[..starts[3]], &bytes[starts[4]..]].concat();
    let last = *starts.last().unwrap();
    let end = [&bytes[..last - 2], &[0xff, 0xd9]].concat();
    for (broken, what) in [(middle, "the middle"), (end, "the end")] {
        assert!(check(&broken).is_err(), "{what}");
    }
}
