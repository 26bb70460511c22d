//! A job's operations on arrays: `spdl_cluster.ops.transform`.

use std::{
    borrow::Cow,
    cell::RefCell,
    ffi::{c_char, c_int},
    ptr, slice,
};

use pyo3::{
    intern,
    prelude::*,
    pybacked::PyBackedBytes,
    types::{PyCapsule, PyCapsuleMethods},
};
use spdl_job::ImageOp;
use spdl_operations::{OperationScratch, RgbPicture};
use spdl_pixels::PictureLimits;
use spdl_worker::decode::PictureOps;

use super::{array::OwnedArray, pictures::KEPT_BYTES};
use crate::{errors::ErrorKind, job};

/// The operations of an `image` column of a job, on arrays; `transform` makes it.
#[pyclass(frozen, module = "spdl_cluster.ops", name = "Transform")]
pub(crate) struct ArrayTransform(PictureOps);

thread_local! {
    /// Buffers of the thread.
    static SCRATCH: RefCell<OperationScratch> = RefCell::default();
}

#[pymethods]
impl ArrayTransform {
    /// Not for callers: use `transform`.
    #[new]
    fn new(py: Python<'_>, ops: &Bound<'_, PyAny>, seed: u64) -> PyResult<Self> {
        let ops = ImageOp::read_list(job::value(ops, "ops")?, "ops.transform")
            .map_err(|error| ErrorKind::Setting.error(py, &error.to_string(), None))?;
        Ok(Self(PictureOps::new(ops, seed)))
    }

    /// Returns a new picture, or an array of those that `five_crop` or `ten_crop` makes of it; other threads of Python run meanwhile. The seed, the epoch and the sample's id decide what is
    /// drawn, and nothing else does.
    ///
    /// image: an array of NumPy's or a tensor of torch's, of bytes with the shape height, width, 3; it is not changed.
    ///
    /// Raises `DataError` if it is none.
    #[pyo3(signature = (image, /, *, epoch=0, id=0))]
    fn __call__<'py>(&self, image: &Bound<'py, PyAny>, epoch: u64, id: u64) -> PyResult<Bound<'py, PyAny>> {
        let py = image.py();
        let (pixels, [height, width]) = pixels(image)?;
        let (address, bytes) = pixels.place();
        let result = py.detach(|| {
            // SAFETY: `pixels` lives until the call ends, and has so many bytes there, which are initialised. Another thread may
            // write to them, as with NumPy's own functions, which release the lock too; bytes have no invalid values.
            #[allow(unsafe_code)]
            let pixels = unsafe { slice::from_raw_parts(ptr::with_exposed_provenance(address), bytes) };
            SCRATCH.with_borrow_mut(|scratch| {
                let mut picture = RgbPicture { pixels: Cow::Borrowed(pixels), size: [width, height] };
                self.0.apply([epoch, id], &mut picture, scratch, PictureLimits::default())?;
                scratch.shrink_to(KEPT_BYTES);
                let [width, height] = picture.size.map(|side| side as usize);
                let pixels = picture.pixels.into_owned();
                Ok(match self.0.pictures() as usize {
                    1 => OwnedArray::of_u8(&[height, width, 3], pixels),
                    pictures => OwnedArray::of_u8(&[pictures, height / pictures, width, 3], pixels),
                })
            })
        });
        let problem = |problem: spdl_worker::decode::BadSampleProblem| problem.to_string();
        result.map_err(|error| ErrorKind::Data.error(py, &problem(error), None))?.into_object(py)
    }

    const fn __repr__(&self) -> &'static str {
        "<spdl_cluster.ops.transform>"
    }
}

/// The description of an array for C programs in NumPy's array interface: the `PyArrayInterface` of `__array_struct__`.
#[repr(C)]
struct ArrayStruct {
    /// Always 2.
    two: c_int,
    dimensions: c_int,
    typekind: c_char,
    itemsize: c_int,
    flags: c_int,
    shape: *const isize,
    strides: *const isize,
    data: *const u8,
}

/// The flag of an array in row-major order without gaps.
const IS_DENSE: c_int = 1;

/// The bytes of an array.
enum ArrayBytes<'py> {
    /// The address and the length of the array's memory, and the capsule that keeps it alive.
    Shared(usize, usize, #[expect(dead_code, reason = "it is only kept")] Bound<'py, PyCapsule>),
    /// A copy, if the array has gaps.
    Copied(PyBackedBytes),
}

impl ArrayBytes<'_> {
    /// Returns the address and the number of the bytes.
    fn place(&self) -> (usize, usize) {
        match self {
            Self::Shared(address, bytes, _) => (*address, *bytes),
            Self::Copied(bytes) => (bytes.as_ptr().expose_provenance(), bytes.len()),
        }
    }
}

/// Returns the bytes of a picture, and its height and width.
fn pixels<'py>(image: &Bound<'py, PyAny>) -> PyResult<(ArrayBytes<'py>, [u32; 2])> {
    let wrong = |found: String| {
        let problem = "`transform` takes pictures as bytes with the shape [height, width, 3]";
        Err(ErrorKind::Data.error(image.py(), &format!("{problem}, and this is {found}"), None))
    };
    let array_struct = intern!(image.py(), "__array_struct__");
    let mut capsule = image.getattr_opt(array_struct)?;
    let from_tensor;
    let mut array = image;
    if capsule.is_none()
        && let Some(to_array) = image.getattr_opt(intern!(image.py(), "numpy"))?
    {
        // A tensor of torch's; the array shares its memory.
        from_tensor = to_array.call0()?;
        array = &from_tensor;
        capsule = array.getattr_opt(array_struct)?;
    }
    let Some(capsule) = capsule.and_then(|found| found.cast_into::<PyCapsule>().ok()) else {
        return wrong(format!("a `{}`", image.get_type().name()?));
    };
    let found = capsule.pointer_checked(None)?.cast::<ArrayStruct>();
    // SAFETY: NumPy's array interface guarantees that the capsule holds this struct for as long as it lives, and that
    // `shape` has as many sides as the array has dimensions.
    #[allow(unsafe_code)]
    let (found, shape) = unsafe {
        let found = found.as_ref();
        let dimensions = usize::try_from(found.dimensions).unwrap_or(0);
        (found, if dimensions == 0 { &[] } else { slice::from_raw_parts(found.shape, dimensions) })
    };
    let is_bytes = found.two == 2 && found.typekind as u8 == b'u' && found.itemsize == 1;
    let size = match *shape {
        [height, width, 3] if is_bytes => u32::try_from(height).ok().zip(u32::try_from(width).ok()),
        _ => None,
    };
    let Some((height, width)) = size.filter(|(height, width)| *height > 0 && *width > 0) else {
        return wrong(format!("{}{} {shape:?}", char::from(found.typekind as u8), found.itemsize));
    };
    let bytes = height as usize * width as usize * 3;
    let pixels = if found.flags & IS_DENSE != 0 {
        ArrayBytes::Shared(found.data.expose_provenance(), bytes, capsule)
    } else {
        ArrayBytes::Copied(array.call_method0("tobytes")?.extract()?)
    };
    if pixels.place().1 != bytes {
        return wrong(format!("{} bytes", pixels.place().1));
    }
    Ok((pixels, [height, width]))
}
