//! The entry point of the fuzzer.

use std::cell::RefCell;

use crate::{
    Axis, Error, Jpeg, Limits, PictureRequest, Rgb, Scratch, has_same_coefficients, rewrite,
    scalable::{PictureHead, ScalablePicture, pack, restore},
};

const LIMITS: Limits = Limits { side_pixels: 4096, pixels: 1 << 18 };

thread_local! {
    static SCRATCHES: RefCell<[Scratch; 2]> = RefCell::new([Scratch::new(), Scratch::portable()]);
}

/// Decodes any bytes in several ways. Checks that nothing panics and that vector instructions do not change the result.
///
/// # Panics
/// Panics when one of these checks fails.
#[doc(hidden)]
pub fn fuzz(bytes: &[u8]) {
    let Ok(jpeg) = Jpeg::open(bytes, LIMITS) else { return };
    let seed = seed_of(bytes);
    let again = rewrite(bytes, 1 + (seed >> 9 & 7) as u16, LIMITS).ok();
    let same = again.as_ref().map(|again| has_same_coefficients(bytes, again, LIMITS));
    // Between two scans there may be other quantisation tables, which rewriting leaves out.
    let is_same = same.as_ref().is_none_or(|same| *same == Ok(true));
    let is_other = jpeg.is_progressive() && same == Some(Ok(false));
    assert!(is_same || is_other, "rewriting keeps the coefficients: {same:?}");
    let again = again.filter(|_| is_same);
    for request in requests(jpeg.size(), seed) {
        let [columns, rows] = request.result_size().map(|side| side as usize);
        let render = |jpeg: &Jpeg<'_>, scratch: &mut Scratch| -> Result<Vec<u8>, Error> {
            let mut out = vec![0; columns * rows * 3];
            jpeg.render(&request, scratch, &mut Rgb::new(&mut out, columns))?;
            Ok(out)
        };
        SCRATCHES.with_borrow_mut(|[vector, portable]| {
            let found = render(&jpeg, vector);
            assert!(found == render(&jpeg, portable), "vector instructions change {request:?}");
            if let Some(again) = &again {
                let again = Jpeg::open(again, LIMITS).expect("a picture with the same coefficients");
                assert!(render(&again, vector) == found, "rewriting changes {request:?}");
            }
        });
    }
}

/// Decodes any bytes as a packed picture, or packs them when they are a JPEG. Checks that nothing panics, that vector
/// instructions do not change the result, that a request reads nothing outside its ranges, that the parts cut out for
/// it give the same pixels, and that a packed JPEG is restored bit for bit and renders to the same pixels.
///
/// # Panics
/// Panics when one of these checks fails.
#[doc(hidden)]
pub fn fuzz_scalable(bytes: &[u8]) {
    let seed = seed_of(bytes);
    if ScalablePicture::is_packed(bytes) {
        fuzz_packed(bytes, seed);
    } else if let Ok(packed) = pack(bytes, LIMITS) {
        assert!(restore(&packed, LIMITS).is_ok_and(|restored| restored == bytes), "another file came back");
        let jpeg = Jpeg::open(bytes, LIMITS).expect("it was packed");
        let picture = ScalablePicture::open(&packed, LIMITS).expect("as packed");
        SCRATCHES.with_borrow_mut(|[scratch, _]| {
            for request in requests(jpeg.size(), seed) {
                let [columns, rows] = request.result_size().map(|side| side as usize);
                let (mut one, mut other) = (vec![0; columns * rows * 3], vec![0; columns * rows * 3]);
                let plain = jpeg.render(&request, scratch, &mut Rgb::new(&mut one, columns));
                let packed = picture.render(&request, scratch, &mut Rgb::new(&mut other, columns));
                assert!(plain.is_ok() && packed.is_ok() && one == other, "other pixels for {request:?}");
            }
        });
        fuzz_packed(&packed, seed);
    }
}

fn fuzz_packed(bytes: &[u8], seed: u32) {
    let Ok(picture) = ScalablePicture::open(bytes, LIMITS) else { return };
    let _ = restore(bytes, LIMITS);
    for request in requests(picture.size(), seed) {
        let [columns, rows] = request.result_size().map(|side| side as usize);
        let render = |bytes: &[u8], scratch: &mut Scratch| -> Result<Vec<u8>, Error> {
            let mut out = vec![0; columns * rows * 3];
            ScalablePicture::open(bytes, LIMITS)?.render(&request, scratch, &mut Rgb::new(&mut out, columns))?;
            Ok(out)
        };
        SCRATCHES.with_borrow_mut(|[vector, portable]| {
            let found = render(bytes, vector);
            assert!(found == render(bytes, portable), "vector instructions change {request:?}");
            if let (Ok(ranges), Ok(found)) = (picture.ranges(&request), found) {
                let mut needed = vec![0; bytes.len()];
                for range in ranges {
                    needed[range.clone()].copy_from_slice(&bytes[range]);
                }
                assert!(render(&needed, vector).as_ref() == Ok(&found), "{request:?} needs more than its ranges");
                if let Ok(Some(head)) = PictureHead::read(bytes, bytes.len(), LIMITS)
                    && let Ok(part) = head.cut(&head.parts(&request), |range| bytes.get(range))
                {
                    assert!(render(&part, vector) == Ok(found), "{request:?} needs more than its parts");
                }
            }
        });
    }
}

/// Derives the crops from the bytes of the picture, so that the fuzzer reaches all places.
fn seed_of(bytes: &[u8]) -> u32 {
    bytes.iter().fold(0u32, |seed, byte| seed.wrapping_mul(31).wrapping_add(u32::from(*byte)))
}

fn requests([width, height]: [u32; 2], seed: u32) -> [PictureRequest; 3] {
    let cut = |size: u32, seed: u32, pixels: u32| {
        let from = seed % size;
        let length = 1 + seed / size % (size - from);
        Axis {
            readable: (from, from + length),
            from: f64::from(from),
            extent: f64::from(length),
            pixels,
            reversed: seed & 1 == 1,
        }
    };
    let whole =
        |size: u32| Axis { readable: (0, size), from: 0.0, extent: f64::from(size), pixels: size, reversed: false };
    [
        PictureRequest { x: whole(width), y: whole(height), transposed: false },
        PictureRequest { x: cut(width, seed >> 3, 20), y: cut(height, seed >> 5, 9), transposed: seed & 4 == 4 },
        PictureRequest { x: cut(width, seed >> 7, 3), y: cut(height, seed >> 1, 2), transposed: seed & 8 == 8 },
    ]
}
