//! Operations that run without Python and its lock: those of `spdl_cluster.ops`.

use std::{cell::RefCell, sync::Arc};

use bytes::Bytes;
use futures::{StreamExt, TryStreamExt, stream};
use pyo3::{
    prelude::*,
    pybacked::{PyBackedBytes, PyBackedStr},
    types::{PyList, PyTuple},
};
use spdl_canvas::AxisSpan;
use spdl_pixels::{Frame, PictureLimits, PictureScratch, PixelWriter};
use spdl_types::{DType, ImageLayout, Normalise};
use spdl_worker::decode::read_numpy;

use super::{
    array::OwnedArray,
    download::{self, Downloader},
    item::{ItemValue, attached},
    pictures::{KEPT_BYTES, PictureNormaliser, PictureResizer, Problem, shape, shown_part, spec},
};
use crate::errors::ErrorKind;

/// Objects of one list that are downloaded at a time.
const DOWNLOADS_AT_ONCE: usize = 16;

/// An operation that runs without Python. It can be called, too.
#[pyclass(frozen, module = "spdl_cluster._native")]
pub(crate) struct NativeOp(pub(crate) Arc<Work>);

/// The work of a native operation on an item. A list gives a list.
pub(crate) enum Work {
    /// Reads the object at a URL or path.
    Download(Downloader),
    /// Decodes, resizes and normalises a picture.
    DecodeImage(ImageDecoder),
    /// Reads an array of this name from a file of NumPy's.
    DecodeTensor { array: Option<String>, max_bytes: usize },
    /// Resizes a decoded picture.
    Resize(PictureResizer),
    /// Normalises a decoded picture.
    Normalise(PictureNormaliser),
    /// Stacks arrays.
    Collate,
}

#[pymethods]
impl NativeOp {
    /// Makes the operation that reads the object at a URL or path, of at most `max_bytes`.
    #[staticmethod]
    fn download(max_bytes: u64) -> Self {
        Self(Arc::new(Work::Download(Downloader::new(max_bytes))))
    }

    /// Makes the operation that decodes pictures to `size`, height and width.
    #[staticmethod]
    #[pyo3(signature = (size, *, crops_centre, dtype, channels_first, normalise))]
    fn decode_image(
        py: Python<'_>,
        size: Option<[u32; 2]>,
        crops_centre: bool,
        dtype: &str,
        channels_first: bool,
        normalise: Option<([f32; 3], [f32; 3])>,
    ) -> PyResult<Self> {
        let PictureNormaliser { dtype, layout, normalise } = normaliser(py, dtype, channels_first, normalise)?;
        Ok(Self(Arc::new(Work::DecodeImage(ImageDecoder { size, crops_centre, dtype, layout, normalise }))))
    }

    /// Makes the operation that reads an array of at most `max_bytes` from a file of NumPy's.
    #[staticmethod]
    fn decode_tensor(array: Option<String>, max_bytes: usize) -> Self {
        Self(Arc::new(Work::DecodeTensor { array, max_bytes }))
    }

    /// Makes the operation that resizes decoded pictures to `size`, height and width.
    #[staticmethod]
    #[pyo3(signature = (size, *, crops_centre))]
    fn resize(size: [u32; 2], crops_centre: bool) -> Self {
        Self(Arc::new(Work::Resize(PictureResizer { size, crops_centre })))
    }

    /// Makes the operation that converts and normalises decoded pictures.
    #[staticmethod]
    #[pyo3(signature = (*, dtype, channels_first, normalise))]
    fn normalise(
        py: Python<'_>,
        dtype: &str,
        channels_first: bool,
        normalise: Option<([f32; 3], [f32; 3])>,
    ) -> PyResult<Self> {
        Ok(Self(Arc::new(Work::Normalise(normaliser(py, dtype, channels_first, normalise)?))))
    }

    /// Makes the operation that stacks the arrays of a list.
    #[staticmethod]
    fn collate() -> Self {
        Self(Arc::new(Work::Collate))
    }

    /// Runs the operation on one item.
    fn __call__<'py>(&self, py: Python<'py>, item: Py<PyAny>) -> PyResult<Bound<'py, PyAny>> {
        let result = py.detach(|| {
            if self.0.is_asynchronous() {
                download::runtime()?.block_on(self.0.run_later(ItemValue::of(item)))
            } else {
                self.0.run(ItemValue::of(item))
            }
        });
        result.map_err(|problem| ErrorKind::Data.error(py, &problem, None))?.into_object(py)
    }
}

/// Returns how pixels are converted.
fn normaliser(
    py: Python<'_>,
    dtype: &str,
    channels_first: bool,
    normalise: Option<([f32; 3], [f32; 3])>,
) -> PyResult<PictureNormaliser> {
    let layout = if channels_first { ImageLayout::Nchw } else { ImageLayout::Nhwc };
    let normalise = normalise.map(|(mean, std)| Normalise { mean, std });
    let known = [DType::U8, DType::F16, DType::F32].into_iter().find(|known| known.name() == dtype);
    let dtype = known.ok_or_else(|| {
        ErrorKind::Setting.error(py, &format!("`dtype` is `{dtype}`, not `u8`, `f16` or `f32`"), None)
    })?;
    Ok(PictureNormaliser { dtype, layout, normalise })
}

impl Work {
    /// Returns whether the operation mostly waits.
    pub(crate) fn is_asynchronous(&self) -> bool {
        matches!(self, Self::Download(_))
    }

    /// Runs an operation that computes.
    pub(crate) fn run(&self, value: ItemValue) -> Result<ItemValue, Problem> {
        match (self, opened(value)?) {
            (Self::Collate, ItemValue::List(values)) => {
                let arrays = values.into_iter().map(|value| match value {
                    ItemValue::Array(array) => Ok(array),
                    _ => Err(
                        "`collate` takes lists of arrays that native operations made; use numpy's `stack` for others",
                    ),
                });
                OwnedArray::stacked(&arrays.collect::<Result<Vec<_>, _>>()?).map(ItemValue::Array)
            }
            (Self::Collate, _) => Err("`collate` takes lists; put `aggregate` in front of it".to_owned()),
            (work, ItemValue::List(values)) => {
                Ok(ItemValue::List(values.into_iter().map(|value| work.run(value)).collect::<Result<_, _>>()?))
            }
            (Self::DecodeImage(decoder), ItemValue::Bytes(bytes)) => decoder.decode(&bytes).map(ItemValue::Array),
            (Self::DecodeImage(_), _) => {
                Err("`decode_image` takes the bytes of a picture, or a list of them".to_owned())
            }
            (Self::DecodeTensor { array, max_bytes }, ItemValue::Bytes(file)) => {
                let read = read_numpy(&file, array.as_deref(), *max_bytes);
                let read =
                    read.map_err(|problem| format!("a tensor of {} bytes cannot be read: {problem}", file.len()))?;
                let shape: Vec<usize> = read.shape.iter().map(|side| *side as usize).collect();
                Ok(ItemValue::Array(OwnedArray::of_bytes(read.dtype, &shape, &read.elements)))
            }
            (Self::DecodeTensor { .. }, _) => {
                Err("`decode_tensor` takes the bytes of a .npy or .npz file, or a list of them".to_owned())
            }
            (Self::Resize(resizer), ItemValue::Array(picture)) => resizer.resize(&picture).map(ItemValue::Array),
            (Self::Normalise(normaliser), ItemValue::Array(picture)) => {
                normaliser.normalise(&picture).map(ItemValue::Array)
            }
            (Self::Resize(_), _) => Err("`resize` takes decoded pictures, or a list of them".to_owned()),
            (Self::Normalise(_), _) => Err("`normalise` takes decoded pictures, or a list of them".to_owned()),
            (Self::Download(_), _) => unreachable!("it runs asynchronously"),
        }
    }

    /// Runs an operation that mostly waits.
    pub(crate) async fn run_later(&self, value: ItemValue) -> Result<ItemValue, Problem> {
        let Self::Download(downloader) = self else { unreachable!("it computes") };
        match opened(value)? {
            ItemValue::Text(url) => Ok(ItemValue::Bytes(downloader.read(&url).await?)),
            ItemValue::List(urls) => {
                let objects = stream::iter(urls).map(async |url| match url {
                    ItemValue::Text(url) => Ok(ItemValue::Bytes(downloader.read(&url).await?)),
                    _ => Err("`download` takes URLs and paths as text".to_owned()),
                });
                Ok(ItemValue::List(objects.buffered(DOWNLOADS_AT_ONCE).try_collect().await?))
            }
            _ => Err("`download` takes URLs and paths as text, or lists of them".to_owned()),
        }
    }
}

/// Takes text, bytes and lists out of their Python objects, without a copy of bytes.
fn opened(value: ItemValue) -> Result<ItemValue, Problem> {
    match value {
        ItemValue::Object(object) => attached(|py| read(object.get().bind(py))).map_err(|error| error.to_string()),
        ItemValue::List(values) => Ok(ItemValue::List(values.into_iter().map(opened).collect::<Result<_, _>>()?)),
        value => Ok(value),
    }
}

fn read(object: &Bound<'_, PyAny>) -> PyResult<ItemValue> {
    if let Ok(text) = object.extract::<PyBackedStr>() {
        return Ok(ItemValue::Text(text.to_string()));
    }
    if let Ok(bytes) = object.extract::<PyBackedBytes>() {
        return Ok(ItemValue::Bytes(Bytes::from_owner(bytes)));
    }
    if object.is_instance_of::<PyList>() || object.is_instance_of::<PyTuple>() {
        return Ok(ItemValue::List(object.try_iter()?.map(|item| read(&item?)).collect::<PyResult<_>>()?));
    }
    if object.hasattr("__array_interface__")? && object.getattr("dtype")?.getattr("name")?.eq("uint8")? {
        let shape: Vec<usize> = object.getattr("shape")?.extract()?;
        let bytes: PyBackedBytes = object.call_method0("tobytes")?.extract()?;
        return Ok(ItemValue::Array(OwnedArray::of_bytes(DType::U8, &shape, &bytes)));
    }
    Ok(ItemValue::of(object.clone().unbind()))
}

/// How a picture becomes an array.
pub(crate) struct ImageDecoder {
    /// Height and width; `None` for the picture's own.
    size: Option<[u32; 2]>,
    /// Whether the middle of the picture is cut out in the proportions of `size`, rather than the picture distorted.
    crops_centre: bool,
    dtype: DType,
    layout: ImageLayout,
    normalise: Option<Normalise>,
}

thread_local! {
    /// Buffers of the thread for decoding.
    static SCRATCH: RefCell<PictureScratch> = RefCell::default();
}

impl ImageDecoder {
    fn decode(&self, bytes: &[u8]) -> Result<OwnedArray, Problem> {
        let problem = |error| format!("a picture of {} bytes cannot be decoded: {error}", bytes.len());
        let picture = spdl_pixels::open(bytes, PictureLimits::default()).map_err(problem)?;
        let [width, height] = picture.seen();
        let size = self.size.unwrap_or([height, width]);
        let [rows, columns] = size;
        let writer = PixelWriter::new(&spec([columns, rows], self.dtype, self.layout, self.normalise));
        let [crop_width, crop_height] = shown_part([width, height], size, self.crops_centre);
        let spans = [span(width, crop_width, columns), span(height, crop_height, rows)];
        let stored = picture.orientation.stored(spans, picture.stored);
        let frame = Frame { place: [0, 0], pixels: [columns, rows], orientation: picture.orientation };
        let mut array = OwnedArray::zeros(self.dtype, &shape(self.layout, size));
        SCRATCH
            .with_borrow_mut(|scratch| {
                picture.render(stored, (&writer, &frame), (scratch, KEPT_BYTES), array.bytes_mut())
            })
            .map_err(problem)?;
        Ok(array)
    }
}

/// Returns the span that shows the middle `crop` of `side` pixels as `pixels` pixels.
fn span(side: u32, crop: u32, pixels: u32) -> AxisSpan {
    let from = (side - crop) / 2;
    AxisSpan { readable: (from, from + crop), from: from.into(), extent: crop.into(), place: 0, pixels, size: pixels }
}
