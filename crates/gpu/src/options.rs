//! The options of a loader on a device: the number of buffers, and how pictures are normalised.

use spdl_job::layout::{ColumnLayout, Layout, Place};
use spdl_types::{DType, ImageLayout, Normalise, mix::splitmix64};

use crate::DeviceError;

/// The smallest number of device buffers: the trainer uses one while the other is filled.
pub const MIN_BUFFERS: u32 = 2;
/// The largest number of device buffers.
pub const MAX_BUFFERS: u32 = 64;

/// Options of a loader [on a device](crate::LoaderExt::on_device).
#[derive(Clone, Debug, PartialEq)]
pub struct DeviceOptions {
    /// Number of batches that can be on the device at once: held by the trainer, ready, and being copied. Default 4:
    /// one in use, one that a loop still holds while it asks for the next, and two being copied. At least 2. Each
    /// additional buffer takes the device memory of one batch. Where the device's memory becomes too short for the
    /// larger buffers that ragged columns can need, the loader goes on with fewer.
    pub buffers: u32,
    /// Columns of pictures to normalise on the device, so that only their bytes cross the bus. Default: none.
    pub normalise: Vec<NormaliseColumn>,
    /// Maximum bytes of a slab to page-lock. Default 16 GiB. Slots beyond that are copied through the driver's own buffer,
    /// which is slower. A higher value can lock more memory: of each slot as much as its largest batch takes.
    pub page_lock_max_bytes: u64,
}

impl Default for DeviceOptions {
    fn default() -> Self {
        Self { buffers: 4, normalise: Vec::new(), page_lock_max_bytes: 16 << 30 }
    }
}

/// A column of pictures, u8 `[n, height, width, 3]` in the batch, and how it is normalised on the device.
#[derive(Clone, Debug, PartialEq)]
pub struct NormaliseColumn {
    /// The column's name.
    pub column: String,
    /// The mean and the standard deviation per channel: the result is `(value / 255 - mean) / std`.
    pub by: Normalise,
    /// The type of the result: f16, bf16 or f32.
    pub dtype: DType,
    /// The order of the result in memory. With [`ImageLayout::Nhwc`] the shape is still `[n, 3, height, width]`, and
    /// the strides place the channels last: PyTorch's `channels_last`.
    pub layout: ImageLayout,
    /// Which pictures to mirror horizontally.
    pub flip: Flip,
}

/// Which pictures to mirror.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Flip {
    /// None. The job may already mirror them (`random_flip`).
    #[default]
    Never,
    /// All.
    Always,
    /// Each with this probability. The draw depends on (seed, epoch, sample id) alone, so it is the same on every
    /// device and at every world size.
    Random {
        /// The key of the draws. Use another one for each column that is to be mirrored independently.
        seed: u64,
        /// A probability in 0..=1.
        probability: f64,
    },
}

impl Flip {
    /// Returns whether sample `id` is mirrored in `epoch`.
    #[must_use]
    pub fn is_mirrored(self, epoch: u64, id: u64) -> bool {
        match self {
            Self::Never => false,
            Self::Always => true,
            Self::Random { seed, probability } => {
                let draw = splitmix64(splitmix64(splitmix64(seed) ^ epoch) ^ id);
                ((draw >> 11) as f64) < probability * (1u64 << 53) as f64
            }
        }
    }
}

impl DeviceOptions {
    /// Checks that the options are valid for batches of this layout.
    ///
    /// # Errors
    /// Returns [`DeviceError::Option`] for the first invalid option, or [`DeviceError::Column`] for a column that does
    /// not exist.
    pub fn check(&self, layout: &Layout) -> Result<(), DeviceError> {
        self.check_values()?;
        self.normalise.iter().try_for_each(|column| picture(layout, &column.column).map(|_| ()))
    }

    /// Checks that the options are valid for some layout.
    ///
    /// # Errors
    /// Returns [`DeviceError::Option`] for the first invalid option.
    pub fn check_values(&self) -> Result<(), DeviceError> {
        let wrong = |option, problem| Err(DeviceError::Option { option, problem });
        if !(MIN_BUFFERS..=MAX_BUFFERS).contains(&self.buffers) {
            return wrong("buffers", format!("is {}, not in {MIN_BUFFERS}..={MAX_BUFFERS}", self.buffers));
        }
        for (index, column) in self.normalise.iter().enumerate() {
            let name = &column.column;
            if self.normalise[..index].iter().any(|other| other.column == *name) {
                return wrong("normalise", format!("names column `{name}` twice"));
            }
            if !matches!(column.dtype, DType::F16 | DType::Bf16 | DType::F32) {
                return wrong("normalise", format!("makes column `{name}` {:?}, not F16, Bf16 or F32", column.dtype));
            }
            if let Some(problem) = column.by.problem(true) {
                return wrong("normalise", format!("has for column `{name}` {problem}"));
            }
            if let Flip::Random { probability, .. } = column.flip
                && !(0.0..=1.0).contains(&probability)
            {
                return wrong("normalise", format!("mirrors column `{name}` with probability {probability}"));
            }
        }
        Ok(())
    }
}

/// A column of pictures in a batch: its index, and the pictures' height and width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PictureColumn {
    pub(crate) index: usize,
    pub(crate) height: u32,
    pub(crate) width: u32,
}

/// The number of channels of a picture.
pub(crate) const CHANNELS: usize = 3;

impl PictureColumn {
    /// Returns the number of pixels of one sample.
    pub(crate) const fn pixels(self) -> usize {
        self.height as usize * self.width as usize
    }

    /// Returns the number of elements of one sample.
    pub(crate) const fn elements(self) -> usize {
        self.pixels() * CHANNELS
    }
}

/// Returns the column named `name` if it holds pictures that can be normalised.
pub(crate) fn picture(layout: &Layout, name: &str) -> Result<PictureColumn, DeviceError> {
    let columns = layout.columns();
    let Some(index) = columns.iter().position(|column| column.name == name) else {
        let known: Vec<_> = columns.iter().map(|column| format!("`{}`", column.name)).collect();
        return Err(spdl_client::ColumnError::Missing { column: name.to_owned(), known: known.join(", ") }.into());
    };
    match &columns[index] {
        ColumnLayout { dtype: DType::U8, place: Place::Fixed { shape, .. }, .. } if matches!(shape[..], [_, _, channels] if channels as usize == CHANNELS) => {
            Ok(PictureColumn { index, height: shape[0], width: shape[1] })
        }
        ColumnLayout { dtype, place, .. } => {
            let actual = match place {
                Place::Fixed { shape, .. } => format!("{dtype:?} {shape:?}"),
                Place::Ragged { .. } => "ragged".to_owned(),
            };
            let problem = format!("needs U8 [height, width, 3] in column `{name}`, which is {actual}");
            Err(DeviceError::Option { option: "normalise", problem })
        }
    }
}

/// Returns the normalised value of each byte in each channel, in the column's type. Uses the same arithmetic as a
/// worker that normalises.
pub(crate) fn table(column: &NormaliseColumn) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(CHANNELS * 256 * column.dtype.bytes());
    for channel in 0..CHANNELS {
        for byte in 0..=255u8 {
            let value = (f32::from(byte) / 255.0 - column.by.mean[channel]) / column.by.std[channel];
            match column.dtype {
                DType::F16 => bytes.extend(half::f16::from_f32(value).to_le_bytes()),
                DType::Bf16 => bytes.extend(half::bf16::from_f32(value).to_le_bytes()),
                _ => bytes.extend(value.to_le_bytes()),
            }
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use spdl_job::{BytesColumn, Column, ColumnKind, ImageColumn};

    fn layout() -> Layout {
        let image = |layout| ColumnKind::Image(ImageColumn { layout, size: [4, 5], ..ImageColumn::default() });
        let columns = [
            ("image", image(ImageLayout::Nhwc), DType::U8),
            ("planes", image(ImageLayout::Nchw), DType::U8),
            ("text", ColumnKind::Bytes(BytesColumn { max_bytes: 10 }), DType::U8),
        ];
        let column = |(name, kind, dtype): (&str, _, _)| Column::new(name, name, kind, dtype);
        Layout::new(&columns.map(column), 8)
    }

    pub(crate) fn column(name: &str) -> NormaliseColumn {
        NormaliseColumn {
            column: name.into(),
            by: Normalise { mean: [0.5, 0.25, 0.0], std: [0.5, 0.25, 1.0] },
            dtype: DType::F32,
            layout: ImageLayout::Nchw,
            flip: Flip::Never,
        }
    }

    fn problem(options: DeviceOptions) -> String {
        options.check(&layout()).unwrap_err().to_string()
    }

    #[test]
    fn options_that_make_no_sense_are_named_with_what_is_wrong() {
        let with = |column| DeviceOptions { normalise: vec![column], ..DeviceOptions::default() };
        assert_eq!(with(column("image")).check(&layout()), Ok(()));
        let one = DeviceOptions { buffers: 1, ..DeviceOptions::default() };
        assert!(problem(one).contains("`buffers` is 1"));
        assert!(problem(with(column("imago"))).contains("there are `image`, `planes`, `text`"));
        assert!(problem(with(column("text"))).contains("which is ragged"));
        assert!(problem(with(column("planes"))).contains("which is U8 [3, 4, 5]"));
        assert!(problem(with(NormaliseColumn { dtype: DType::F64, ..column("image") })).contains("F64"));
        let zero = Normalise { mean: [0.0; 3], std: [1.0, 0.0, 1.0] };
        assert!(problem(with(NormaliseColumn { by: zero, ..column("image") })).contains("std of zero"));
        let often = Flip::Random { seed: 1, probability: 1.5 };
        assert!(problem(with(NormaliseColumn { flip: often, ..column("image") })).contains("1.5"));
        let twice = DeviceOptions { normalise: vec![column("image"), column("image")], ..DeviceOptions::default() };
        assert!(problem(twice).contains("twice"));
    }

    #[test]
    fn flips_follow_the_sample_and_the_epoch_and_come_as_often_as_asked() {
        let flip = Flip::Random { seed: 7, probability: 0.25 };
        let count = |epoch| (0..10_000).filter(|id| flip.is_mirrored(epoch, *id)).count();
        assert!((2300..2700).contains(&count(0)), "{}", count(0));
        assert!((0..100).any(|id| flip.is_mirrored(0, id) != flip.is_mirrored(1, id)));
        let always = Flip::Random { seed: 7, probability: 1.0 };
        assert!((0..1000).all(|id| always.is_mirrored(3, id) && Flip::Always.is_mirrored(3, id)));
        assert!(!(0..1000).any(|id| Flip::Random { seed: 7, probability: 0.0 }.is_mirrored(3, id)));
    }

    #[test]
    fn a_table_is_within_a_rounding_of_double_precision() {
        let by = Normalise { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
        let table = table(&NormaliseColumn { by, ..column("image") });
        let values: &[f32] = bytemuck::cast_slice(&table);
        for (at, value) in values.iter().enumerate() {
            let (channel, byte) = (at / 256, at % 256);
            let exact = (byte as f64 / 255.0 - f64::from(by.mean[channel])) / f64::from(by.std[channel]);
            assert!((f64::from(*value) - exact).abs() <= 3e-7 * exact.abs().max(1.0), "{value} for {exact}");
        }
    }
}
