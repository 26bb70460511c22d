//! Where the coefficients of the bands lie in blocks.

use crate::scalable::bands::{Band, HIGH, LOW, MIDDLE, places};

/// The places of the bands' coefficients in blocks of `side` by `side` coefficients. A band that such blocks do not
/// have has no places.
#[derive(Clone, Debug)]
pub(super) struct BandPlaces {
    pub(super) low: [u8; 3],
    pub(super) middle: [u8; 256],
    pub(super) high: [u8; 256],
}

impl BandPlaces {
    pub(super) fn new(side: u8, transposed: bool) -> Self {
        let placed = |natural: u8| {
            let [row, column] = if transposed { [natural & 7, natural >> 3] } else { [natural >> 3, natural & 7] };
            row * side + column
        };
        let (mut middle, mut high) = ([0; 256], [0; 256]);
        if side >= 4 {
            for (place, natural) in middle[1..].iter_mut().zip(places::<MIDDLE>(Band::Middle)) {
                *place = placed(natural);
            }
        }
        if side == 8 {
            for (place, natural) in high[1..].iter_mut().zip(places::<HIGH>(Band::High)) {
                *place = placed(natural);
            }
        }
        Self { low: LOW.map(placed), middle, high }
    }
}
