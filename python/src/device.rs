//! The device that batches are delivered to, and its options, as Python gives them.

use pyo3::prelude::*;
use spdl_gpu::{BatchPlacement, Device, DeviceOptions, Flip, NormaliseColumn};
use spdl_types::{DType, ImageLayout, Normalise};

use crate::errors::{self, ErrorKind};

/// An open device and its options.
#[derive(Clone, Debug)]
pub(crate) struct OpenDevice {
    pub(crate) device: Device,
    pub(crate) options: DeviceOptions,
}

/// `DeviceOptions` of `spdl_cluster.device`.
#[derive(Debug, FromPyObject)]
pub(crate) struct DeviceOptionsFields {
    buffers: u32,
    #[pyo3(from_py_with = columns)]
    normalise: Vec<(String, NormaliseFields)>,
    page_lock_max_bytes: u64,
}

/// `Normalise` of `spdl_cluster.device`.
#[derive(Debug, FromPyObject)]
struct NormaliseFields {
    #[pyo3(from_py_with = numbers)]
    mean: Vec<f32>,
    #[pyo3(from_py_with = numbers)]
    std: Vec<f32>,
    dtype: String,
    layout: String,
    flip: f64,
    seed: u64,
}

/// Reads a mapping from columns to `Normalise`, in its order.
fn columns(mapping: &Bound<'_, PyAny>) -> PyResult<Vec<(String, NormaliseFields)>> {
    mapping.call_method0("items")?.try_iter()?.map(|item| item?.extract()).collect()
}

/// Reads numbers from anything that can be iterated over.
fn numbers(sequence: &Bound<'_, PyAny>) -> PyResult<Vec<f32>> {
    sequence.try_iter()?.map(|number| number?.extract()).collect()
}

impl OpenDevice {
    /// Opens the device. Returns `None` if batches stay in their slots unchanged.
    pub(crate) fn open(py: Python<'_>, device: &str, options: DeviceOptionsFields) -> PyResult<Option<Self>> {
        let DeviceOptionsFields { buffers, normalise, page_lock_max_bytes } = options;
        let normalise = normalise.into_iter().map(|(column, by)| by.check(py, column)).collect::<PyResult<Vec<_>>>()?;
        let options = DeviceOptions { buffers, normalise, page_lock_max_bytes };
        let opened = options.check_values().and_then(|()| py.detach(|| Device::open(device)));
        let device = opened.map_err(|error| errors::of_device(py, &error, ""))?;
        let is_plain = device.placement() == BatchPlacement::Host && options.normalise.is_empty();
        Ok((!is_plain).then_some(Self { device, options }))
    }

    /// Returns the column's type on the device, if it differs from the job's.
    pub(crate) fn dtype(&self, column: &str) -> Option<DType> {
        self.options.normalise.iter().find(|made| made.column == column).map(|made| made.dtype)
    }
}

impl NormaliseFields {
    fn check(self, py: Python<'_>, column: String) -> PyResult<NormaliseColumn> {
        let Self { mean, std, dtype, layout, flip, seed } = self;
        let wrong = |what: &str, value: &dyn std::fmt::Debug, right: &str| {
            let problem = format!("`{what}` of column `{column}` is {value:?}, not {right}");
            ErrorKind::Setting.error(py, &problem, None)
        };
        let three = |what, values: &Vec<f32>| {
            <[f32; 3]>::try_from(values.as_slice()).map_err(|_| wrong(what, values, "three numbers: red, green, blue"))
        };
        let by = Normalise { mean: three("mean", &mean)?, std: three("std", &std)? };
        let dtype = match dtype.as_str() {
            "f16" => DType::F16,
            "bf16" => DType::Bf16,
            "f32" => DType::F32,
            _ => return Err(wrong("dtype", &dtype, "`f16`, `bf16` or `f32`")),
        };
        let layout = match layout.as_str() {
            "nchw" => ImageLayout::Nchw,
            "channels_last" => ImageLayout::Nhwc,
            _ => return Err(wrong("layout", &layout, "`nchw` or `channels_last`")),
        };
        let flip = if flip == 0.0 {
            Flip::Never
        } else if flip == 1.0 {
            Flip::Always
        } else {
            Flip::Random { seed, probability: flip }
        };
        Ok(NormaliseColumn { column, by, dtype, layout, flip })
    }
}
