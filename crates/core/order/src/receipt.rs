//! The receipt: the digest of what was delivered.

use std::{fmt, iter::Sum, ops::AddAssign, str::FromStr};

use serde::{Deserialize, Serialize};

use spdl_types::{Position, SampleId, mix::splitmix64};

/// A sum, modulo 2^128, of one hash per delivered sample. The order of delivery and the number of ranks do not matter:
/// the receipts of all ranks add up to the receipt of the stream they shared.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Receipt(#[serde(with = "spdl_types::hex128")] pub u128);

impl Receipt {
    /// Adds one delivered sample: `id` at `position`.
    pub const fn add_sample(&mut self, position: Position, id: SampleId) {
        let a = splitmix64(position.epoch);
        let b = splitmix64(position.offset.wrapping_add(a));
        let low = splitmix64(id.0.wrapping_add(b));
        let high = splitmix64(low.wrapping_add(a ^ b.rotate_left(32)));
        self.0 = self.0.wrapping_add((high as u128) << 64 | low as u128);
    }
}

impl AddAssign for Receipt {
    fn add_assign(&mut self, other: Self) {
        self.0 = self.0.wrapping_add(other.0);
    }
}

impl Sum for Receipt {
    fn sum<I: Iterator<Item = Self>>(receipts: I) -> Self {
        receipts.fold(Self::default(), |mut sum, receipt| {
            sum += receipt;
            sum
        })
    }
}

impl fmt::Display for Receipt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl FromStr for Receipt {
    type Err = std::num::ParseIntError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        u128::from_str_radix(text, 16).map(Self)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(samples: &[(u64, u64, u64)]) -> Receipt {
        let mut receipt = Receipt::default();
        for &(epoch, offset, id) in samples {
            receipt.add_sample(Position::new(epoch, offset), SampleId(id));
        }
        receipt
    }

    #[test]
    fn the_receipts_of_ranks_add_up_to_the_receipt_of_the_stream() {
        let mut sum = of(&[(0, 1, 7)]);
        sum += of(&[(0, 0, 9), (1, 0, 3)]);
        assert_eq!(sum, of(&[(0, 0, 9), (0, 1, 7), (1, 0, 3)]));
        assert_eq!(sum, [of(&[(0, 1, 7)]), of(&[(0, 0, 9), (1, 0, 3)])].into_iter().sum());
        assert_eq!(sum.to_string().parse::<Receipt>().unwrap(), sum);
        assert_eq!(serde_json::to_string(&sum).unwrap(), format!("\"{sum}\""));
        assert_eq!(serde_json::from_str::<Receipt>(&serde_json::to_string(&sum).unwrap()).unwrap(), sum);
    }

    #[test]
    fn a_swap_a_loss_and_a_repeat_all_show() {
        let whole = of(&[(0, 0, 1), (0, 1, 2)]);
        assert_ne!(whole, of(&[(0, 0, 2), (0, 1, 1)]));
        assert_ne!(whole, of(&[(0, 0, 1)]));
        assert_ne!(whole, of(&[(0, 0, 1), (0, 1, 2), (0, 1, 2)]));
        assert_ne!(whole, of(&[(1, 0, 1), (1, 1, 2)]));
    }
}
