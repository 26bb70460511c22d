//! Checks that must pass on every device: every byte is copied correctly, and every normalised value is correct.

use std::time::Duration;

use spdl_gpu::{Device, DeviceBatch, DeviceError, DeviceOptions, Flip, NormaliseColumn, Tensor};
use spdl_types::{DType, ImageLayout, Normalise};
use spdl_wire::slab::Slab;

use crate::{
    feed::{FeedConfig, Refill, SlotMemory, label, text, write_pixels},
    raw::TrainerContext,
};

/// The longest wait for a batch.
pub const TIMEOUT: Duration = Duration::from_secs(60);

/// Returns an error's text, with its hint.
#[must_use]
pub fn words(error: DeviceError) -> String {
    error.hint().map_or_else(|| error.to_string(), |hint| format!("{error}; {hint}"))
}

/// Returns the pixels of all samples of a batch.
#[must_use]
pub fn pixels(batch: &DeviceBatch, sample_bytes: usize) -> Vec<u8> {
    let mut pixels = vec![0; batch.len() * sample_bytes];
    for (entry, sample) in batch.entries().iter().zip(pixels.chunks_exact_mut(sample_bytes)) {
        write_pixels(entry.id, sample);
    }
    pixels
}

/// Reads a batch back and compares every byte with the value that follows from its sample's id.
///
/// A description of the first difference.
pub fn compare(batch: &DeviceBatch) -> Result<(), String> {
    compare_with(batch, text)
}

/// As [`compare`], for samples with other texts.
///
/// A description of the first difference.
pub fn compare_with(batch: &DeviceBatch, text: impl Fn(u64) -> Vec<u8>) -> Result<(), String> {
    let column = |name| batch.column(name).map_err(|error| error.to_string());
    let read = |tensor: &Tensor| tensor.to_host().map_err(|error| error.to_string());
    let ids = || batch.entries().iter().map(|entry| entry.id);
    let differs = |what: &str| Err(format!("{what} of the batch from {} differ", batch.from()));
    let image = column("image")?.values();
    if read(image)? != pixels(batch, image.bytes() / batch.len().max(1)) {
        return differs("pixels");
    }
    let labels: Vec<u8> = ids().flat_map(|id| label(id).to_le_bytes()).collect();
    if read(column("label")?.values())? != labels {
        return differs("labels");
    }
    let texts = column("text")?;
    let mut offsets = vec![0i64];
    for id in ids() {
        offsets.push(offsets.last().unwrap_or(&0) + text(id).len() as i64);
    }
    let offset_bytes: Vec<u8> = offsets.iter().flat_map(|offset| offset.to_le_bytes()).collect();
    if read(texts.offsets().ok_or("no offsets")?)? != offset_bytes {
        return differs("offsets of texts");
    }
    if texts.host_offsets() != Some(&*offsets) {
        return differs("offsets of texts on the host");
    }
    if read(texts.values())? != ids().flat_map(&text).collect::<Vec<_>>() {
        return differs("texts");
    }
    Ok(())
}

/// Checks that copies of all columns are correct, in order, and that each batch comes once. Returns how many batches
/// were compared.
///
/// A description of the first difference.
pub fn copies(device: &Device, config: FeedConfig) -> Result<u64, String> {
    copies_then(device, config, |_| Ok(()))
}

/// As [`copies`], and checks that the driver has page-locked every slot.
///
/// The first slot that is not, too.
pub fn copies_from_locked(device: &Device, trainer: &TrainerContext, config: FeedConfig) -> Result<u64, String> {
    copies_then(device, config, |slab| {
        let mut starts = (0..slab.slots() as usize).map(|slot| slab.as_ptr().wrapping_add(slot * slab.slot_stride()));
        match starts.position(|address| !trainer.is_page_locked(address)) {
            Some(slot) => Err(format!("slot {slot} of {} is not page-locked", slab.slots())),
            None => Ok(()),
        }
    })
}

fn copies_then(
    device: &Device,
    config: FeedConfig,
    check: impl FnOnce(&Slab) -> Result<(), String>,
) -> Result<u64, String> {
    let (mut loader, slab) = config.start(device, DeviceOptions::default(), TIMEOUT).map_err(words)?;
    let mut count = 0;
    while let Some(batch) = loader.next_batch().map_err(words)? {
        if batch.from().offset != count * u64::from(config.samples) {
            return Err(format!("batch {count} is from {}", batch.from()));
        }
        compare(&batch)?;
        count += 1;
    }
    check(&slab)?;
    if count == config.batches { Ok(count) } else { Err(format!("{count} of {} batches came", config.batches)) }
}

/// Returns the cases for the kernel: every type, layout and kind of flip.
pub fn cases() -> impl Iterator<Item = NormaliseColumn> {
    let by = Normalise { mean: [0.485, 0.456, 0.406], std: [0.229, 0.224, 0.225] };
    let flips = [Flip::Never, Flip::Always, Flip::Random { seed: 3, probability: 0.5 }];
    let layouts = [ImageLayout::Nchw, ImageLayout::Nhwc];
    [DType::F16, DType::Bf16, DType::F32].into_iter().flat_map(move |dtype| {
        layouts.into_iter().flat_map(move |layout| {
            flips.map(move |flip| NormaliseColumn { column: "image".into(), by, dtype, layout, flip })
        })
    })
}

/// Checks that the kernel's results are those of double precision, rounded to the requested type. Returns the largest
/// error of all cases, in units of the last place of the type.
///
/// The first value with an error above 1.01 units: half a unit from rounding, the rest from single precision before it.
pub fn kernel(device: &Device, config: FeedConfig) -> Result<f64, String> {
    let mut worst = 0.0f64;
    for case in cases() {
        let options = DeviceOptions { normalise: vec![case.clone()], ..DeviceOptions::default() };
        let (mut loader, _slab) = config.start(device, options, TIMEOUT).map_err(words)?;
        while let Some(batch) = loader.next_batch().map_err(words)? {
            let off = compare_normalised(&batch, &case, config.size)?;
            worst = worst.max(off);
            if off > 1.01 {
                return Err(format!("{case:?}: a value is {off:.3} units of the last place off"));
            }
        }
    }
    Ok(worst)
}

/// Returns the largest error of a batch's pictures, in units of the last place.
fn compare_normalised(batch: &DeviceBatch, case: &NormaliseColumn, size: [u32; 2]) -> Result<f64, String> {
    let image = batch.column("image").map_err(|error| error.to_string())?.values();
    let [height, width] = size.map(|side| side as usize);
    let expected_shape = [batch.len() as i64, 3, height as i64, width as i64];
    if image.shape() != expected_shape || image.dtype() != case.dtype {
        return Err(format!("the kernel made {image:?}"));
    }
    let bytes = image.to_host().map_err(|error| error.to_string())?;
    let value = |at: usize| -> f64 {
        let bytes = &bytes[at * case.dtype.bytes()..];
        match case.dtype {
            DType::F16 => half::f16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
            DType::Bf16 => half::bf16::from_le_bytes([bytes[0], bytes[1]]).to_f64(),
            _ => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into(),
        }
    };
    let strides: Vec<usize> = image.strides().iter().map(|stride| *stride as usize).collect();
    let pixels = pixels(batch, height * width * 3);
    let mut worst = 0.0f64;
    for (sample, entry) in batch.entries().iter().enumerate() {
        let is_mirrored = case.flip.is_mirrored(entry.epoch, entry.id);
        for (at, byte) in pixels[sample * height * width * 3..][..height * width * 3].iter().enumerate() {
            let (row, seen, channel) = (at / 3 / width, at / 3 % width, at % 3);
            let column = if is_mirrored { width - 1 - seen } else { seen };
            let (mean, std) = (f64::from(case.by.mean[channel]), f64::from(case.by.std[channel]));
            let exact = (f64::from(*byte) / 255.0 - mean) / std;
            let index = [sample, channel, row, column];
            let place = index.iter().zip(&strides).map(|(index, stride)| index * stride).sum();
            worst = worst.max((value(place) - exact).abs() / unit(case.dtype, exact));
        }
    }
    Ok(worst)
}

/// Returns a unit of the last place near a value; near zero, the unit of the errors that single precision has made by
/// then.
fn unit(dtype: DType, value: f64) -> f64 {
    let mantissa_bits = match dtype {
        DType::F16 => 10,
        DType::Bf16 => 7,
        _ => 23,
    };
    let least = if dtype == DType::F32 { 1.0 } else { 2f64.powi(-14) };
    2f64.powi(value.abs().max(least).log2().floor() as i32 - mantissa_bits) + 2e-7
}

/// Returns the recipe with another kind of memory for its slots, which are always rewritten.
#[must_use]
pub const fn of_slab(config: FeedConfig, slab: SlotMemory) -> FeedConfig {
    FeedConfig { slab, refill: Refill::Always, ..config }
}
