//! A job's operations on arrays: `spdl_cluster.ops.transform`.

use std::cell::RefCell;

use pyo3::{prelude::*, pybacked::PyBackedBytes};
use spdl_core::job::{DType, ImageOp};
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
    static SCRATCH: RefCell<(RgbPicture, OperationScratch)> = RefCell::default();
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

    /// Applies the operations to a picture of this height and width.
    fn apply<'py>(
        &self,
        py: Python<'py>,
        rgb: PyBackedBytes,
        size: [u32; 2],
        epoch: u64,
        id: u64,
    ) -> PyResult<Bound<'py, PyAny>> {
        let [height, width] = size;
        let bytes = u64::from(height) * u64::from(width) * 3;
        if bytes == 0 || bytes != rgb.len() as u64 {
            let problem = format!("a picture of {height}x{width} has {} bytes", rgb.len());
            return Err(ErrorKind::Data.error(py, &problem, None));
        }
        let result = py.detach(|| {
            SCRATCH.with_borrow_mut(|(picture, scratch)| {
                picture.pixels.clear();
                picture.pixels.extend_from_slice(&rgb);
                picture.size = [width, height];
                self.0.apply([epoch, id], picture, scratch, PictureLimits::default())?;
                let [width, height] = picture.size.map(|side| side as usize);
                let array = Array::of_bytes(DType::U8, &[height, width, 3], &picture.pixels);
                picture.shrink_to(KEPT_BYTES);
                scratch.shrink_to(KEPT_BYTES);
                Ok(array)
            })
        });
        let problem = |problem: spdl_worker::decode::BadSampleProblem| problem.to_string();
        result.map_err(|error| ErrorKind::Data.error(py, &problem(error), None))?.into_object(py)
    }
}
