//! A job's operations on arrays: `spdl_cluster.ops.transform`.

use std::{borrow::Cow, cell::RefCell, ptr, slice};

use pyo3::{prelude::*, pybacked::PyBackedBytes, types::PyDict};
use spdl_core::job::ImageOp;
use spdl_operations::{OperationScratch, RgbPicture};
use spdl_pixels::PictureLimits;
use spdl_worker::decode::PictureOps;

use super::{array::Array, native::KEPT_BYTES};
use crate::{errors::ErrorKind, job};

/// The operations of an `image` column of a job.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct NativeTransform(PictureOps);

thread_local! {
    /// Buffers of the thread.
    static SCRATCH: RefCell<OperationScratch> = RefCell::default();
}

#[pymethods]
impl NativeTransform {
    /// Reads a list of operations, as in a job.
    #[new]
    fn new(py: Python<'_>, ops: &Bound<'_, PyAny>, seed: u64) -> PyResult<Self> {
        let ops = ImageOp::read_list(job::value(ops, "ops")?, "ops.transform")
            .map_err(|error| ErrorKind::Setting.error(py, &error.to_string(), None))?;
        Ok(Self(PictureOps::new(ops, seed)))
    }

    /// Applies the operations to a picture: an array of NumPy's of bytes with the shape height, width, 3.
    fn apply<'py>(&self, image: &Bound<'py, PyAny>, epoch: u64, id: u64) -> PyResult<Bound<'py, PyAny>> {
        let py = image.py();
        let (pixels, [height, width]) = pixels(image)?;
        let result = py.detach(|| {
            SCRATCH.with_borrow_mut(|scratch| {
                let mut picture = RgbPicture { pixels: Cow::Borrowed(pixels.bytes()), size: [width, height] };
                self.0.apply([epoch, id], &mut picture, scratch, PictureLimits::default())?;
                scratch.shrink_to(KEPT_BYTES);
                let [width, height] = picture.size.map(|side| side as usize);
                Ok(Array::of_u8(&[height, width, 3], picture.pixels.into_owned()))
            })
        });
        let problem = |problem: spdl_worker::decode::BadSampleProblem| problem.to_string();
        result.map_err(|error| ErrorKind::Data.error(py, &problem(error), None))?.into_object(py)
    }
}

/// The bytes of an array.
enum Pixels {
    /// Memory of the array, and how long it is. The caller keeps the array.
    Shared(usize, usize),
    /// A copy, if the array has gaps.
    Copied(PyBackedBytes),
}

impl Pixels {
    fn bytes(&self) -> &[u8] {
        match self {
            // SAFETY: NumPy's array interface says that an array without strides has so many bytes there, which are initialised.
            // The array lives until the call ends. Another thread may write to it, as with NumPy's own functions, which release
            // the lock too; bytes have no invalid values.
            #[allow(unsafe_code)]
            Self::Shared(address, bytes) => unsafe {
                slice::from_raw_parts(ptr::with_exposed_provenance(*address), *bytes)
            },
            Self::Copied(bytes) => bytes,
        }
    }
}

/// Returns the bytes of a picture, and its height and width.
fn pixels(image: &Bound<'_, PyAny>) -> PyResult<(Pixels, [u32; 2])> {
    let wrong = |found: String| {
        let problem = "`transform` takes pictures as bytes with the shape [height, width, 3]";
        Err(ErrorKind::Data.error(image.py(), &format!("{problem}, and this is {found}"), None))
    };
    let Some(interface) = image.getattr_opt("__array_interface__")?.and_then(|found| found.cast_into::<PyDict>().ok())
    else {
        return wrong(format!("a `{}`", image.get_type().name()?));
    };
    let entry = |name: &str| interface.get_item(name);
    let typestr: String = entry("typestr")?.map_or(Ok(String::new()), |found| found.extract())?;
    let shape: Vec<usize> = entry("shape")?.map_or(Ok(Vec::new()), |found| found.extract())?;
    let size = match shape[..] {
        [height, width, 3] if typestr == "|u1" => u32::try_from(height).ok().zip(u32::try_from(width).ok()),
        _ => None,
    };
    let Some((height, width)) = size.filter(|(height, width)| *height > 0 && *width > 0) else {
        return wrong(format!("{typestr} {shape:?}"));
    };
    let bytes = height as usize * width as usize * 3;
    let is_dense = entry("strides")?.is_none_or(|strides| strides.is_none());
    let data = entry("data")?.and_then(|data| data.extract::<(usize, bool)>().ok());
    let pixels = match data {
        Some((address, _)) if is_dense && address != 0 => Pixels::Shared(address, bytes),
        _ => Pixels::Copied(image.call_method0("tobytes")?.extract()?),
    };
    if pixels.bytes().len() != bytes {
        return wrong(format!("{} bytes", pixels.bytes().len()));
    }
    Ok((pixels, [height, width]))
}
